// Colours that differ for the colour-blind too (after Okabe and Ito), told apart further by dashes.

const LIGHT = ["#0072b2", "#d55e00", "#00835f", "#b0528c", "#b87800", "#2a8fc7", "#4b4b4b"];
const DARK = ["#5aa9f0", "#ff8a4c", "#3fc79a", "#e59ac6", "#f0b429", "#8fd0f7", "#c9c9c9"];
const DASHES = [[], [7, 3], [2, 3], [8, 3, 2, 3]];

export const isDark = () => document.documentElement.dataset.theme === "dark";

export function look(at) {
  const colours = isDark() ? DARK : LIGHT;
  return { color: colours[at % colours.length], dash: DASHES[Math.floor(at / colours.length) % DASHES.length] };
}

export function token(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// From poor to good: a scale of blue to yellow (after cividis), safe for the colour-blind.
const RAMP = [[0, 34, 78], [53, 69, 108], [102, 105, 112], [148, 142, 119], [200, 184, 102], [254, 232, 56]];

export function ramp(share) {
  const at = Math.max(0, Math.min(1, share)) * (RAMP.length - 1);
  const [low, rest] = [Math.min(RAMP.length - 2, Math.floor(at)), at - Math.min(RAMP.length - 2, Math.floor(at))];
  const mix = RAMP[low].map((part, i) => Math.round(part + (RAMP[low + 1][i] - part) * rest));
  return `rgb(${mix.join(" ")})`;
}
