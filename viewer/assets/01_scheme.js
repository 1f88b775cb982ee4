"use strict";
/* Light or dark: as the system says, until the user chooses the other one here. */
(function () {
  const KEY = "chakrascope-scheme", system = window.matchMedia("(prefers-color-scheme: dark)");

  function chosen() {
    try { return window.localStorage.getItem(KEY); } catch (_error) { return null; }
  }

  /* Who chooses what the system says anyway follows the system from then on. */
  function remember(dark) {
    try {
      if (dark === system.matches) { window.localStorage.removeItem(KEY); }
      else { window.localStorage.setItem(KEY, dark ? "dark" : "light"); }
    } catch (_error) { /* A browser that keeps nothing shows what its system says. */ }
  }

  system.addEventListener("change", () => {
    if (!chosen()) { window.dash_clientside.set_props("dark", { checked: system.matches }); }
  });

  window.dash_clientside = window.dash_clientside || {};
  window.dash_clientside.chakrascope = Object.assign(window.dash_clientside.chakrascope || {}, {
    firstScheme() { const kept = chosen(); return kept ? kept === "dark" : system.matches; },

    scheme(dark) {
      if (typeof dark !== "boolean") { return window.dash_clientside.no_update; }
      remember(dark);
      return dark ? "dark" : "light";
    },
  });
})();
