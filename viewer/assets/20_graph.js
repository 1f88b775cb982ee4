"use strict";
/* Keeps the graph in its frame: fits it again when the frame or what is drawn changes. */
(function () {
  const PADDING = 30, watched = new WeakSet();

  function fit(holder) {
    const box = document.getElementById("graph"), cy = box && box._cyreg && box._cyreg.cy;
    if (!holder.isConnected || !cy || cy.destroyed()) { return; }
    cy.resize();
    cy.fit(undefined, PADDING);
  }

  function watch() {
    const holder = document.querySelector(".graph-holder");
    if (!holder || watched.has(holder)) { return; }
    watched.add(holder);
    const observer = new ResizeObserver(() => { if (holder.isConnected) { fit(holder); } else { observer.disconnect(); } });
    observer.observe(holder);
  }

  window.dash_clientside = window.dash_clientside || {};
  window.dash_clientside.chakrascope = Object.assign(window.dash_clientside.chakrascope || {}, {
    fitGraph() {
      watch();
      const holder = document.querySelector(".graph-holder");
      if (holder) { window.requestAnimationFrame(() => fit(holder)); }
      return window.dash_clientside.no_update;
    },
  });
})();
