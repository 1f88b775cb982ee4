"use strict";
/* Charts are bars, lines and heat maps: a third of plotly.js (viewer/_routes.py). Dash writes here where all of it is. */
(function () {
  const script = new URL("../charts/plotly-cartesian-4.1.1.min.js", document.currentScript.src).href;
  Object.defineProperty(window, "_dashPlotlyJSURL", { get: () => script, set: () => { /* It stays ours. */ } });
})();
