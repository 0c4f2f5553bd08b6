// Loaded before anything is drawn, so that the page never flashes in the wrong colours.
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const kept = () => {
    try {
      return localStorage.getItem("theme");
    } catch {
      return null; // storage may be switched off
    }
  };
  const apply = () => {
    document.documentElement.dataset.theme = kept() ?? (dark.matches ? "dark" : "light");
    dispatchEvent(new Event("themechange"));
  };
  dark.addEventListener("change", apply);
  window.switchTheme = () => {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    try {
      localStorage.setItem("theme", next);
    } catch {
      // the switch then lasts until the next load
    }
    document.documentElement.dataset.theme = next;
    dispatchEvent(new Event("themechange"));
  };
  apply();
})();
