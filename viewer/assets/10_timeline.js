"use strict";
/* Loads the modules of the timeline (assets/timeline/) when its page is shown first. */
(function () {
  const timeline = new URL("timeline/timeline.js", document.currentScript.src).href;

  window.dash_clientside = window.dash_clientside || {};
  window.dash_clientside.chakrascope = Object.assign(window.dash_clientside.chakrascope || {}, {
    async timeline(run, _scheme, selection) {
      (await import(timeline)).show(run, selection);
      return window.dash_clientside.no_update;
    },
  });
})();
