// Colours that differ for the colour-blind too (after Okabe and Ito), told apart further by dashes.

/** @typedef {{ color: string, dash: number[] }} Look */

const LIGHT = ["#0072b2", "#d55e00", "#00835f", "#b0528c", "#b87800", "#2a8fc7", "#4b4b4b"];
const DARK = ["#5aa9f0", "#ff8a4c", "#3fc79a", "#e59ac6", "#f0b429", "#8fd0f7", "#c9c9c9"];
const DASHES = [[], [7, 3], [2, 3], [8, 3, 2, 3]];

export const isDark = () => document.documentElement.dataset.theme === "dark";

const MOST_DASHED = LIGHT.length * DASHES.length; // more than that and dashes only flicker: one points at a curve instead

/**
 * @param {number} at
 * @param {number} [among]
 * @returns {Look}
 */
export function look(at, among = 1) {
  const colours = isDark() ? DARK : LIGHT;
  const dash = among > MOST_DASHED ? [] : DASHES[Math.floor(at / colours.length) % DASHES.length];
  return { color: colours[at % colours.length], dash };
}

/** @param {string} name */
export function token(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// From poor to good: pale to strong on a light ground, dim to bright on a dark one, in steps of
// lightness, which every eye can tell apart.
const RAMPS = {
  light: [
    [201, 209, 219],
    [143, 184, 222],
    [62, 134, 196],
    [13, 84, 150],
    [6, 40, 92],
  ],
  dark: [
    [62, 68, 78],
    [92, 96, 105],
    [140, 133, 106],
    [201, 180, 88],
    [255, 232, 90],
  ],
};

/** @param {number} share 0 to 1 */
export const ramp = (share) => `rgb(${rampParts(share).join(" ")})`;

/** @param {number} share */
export function rampParts(share) {
  const steps = RAMPS[isDark() ? "dark" : "light"];
  const at = Math.max(0, Math.min(1, share)) * (steps.length - 1);
  const low = Math.min(steps.length - 2, Math.floor(at));
  return steps[low].map((part, i) => Math.round(part + (steps[low + 1][i] - part) * (at - low)));
}
