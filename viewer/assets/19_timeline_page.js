"use strict";
/* Joins the timeline to its page: Dash hands over the run, the scheme and the selection. */
(function () {
  const { TimelineBeside } = window.chakrascopeTimeline;

  /* The address may be ahead of a selection that is still on its way from the server; then this one is old. */
  function isOld(selection) {
    const query = new URLSearchParams(window.location.search), rank = query.get("rank");
    return Boolean(selection && selection.node >= 0 && rank !== null && (Number(rank) !== selection.rank || Number(query.get("node")) !== selection.node));
  }

  window.dash_clientside = window.dash_clientside || {};
  window.dash_clientside.chakrascope = Object.assign(window.dash_clientside.chakrascope || {}, {
    timeline(run, scheme, measured, selection) {
      const holder = document.getElementById("timeline");
      if (!holder || !run) { return window.dash_clientside.no_update; }
      if (!holder.timeline) { holder.timeline = new TimelineBeside(holder); }
      const timeline = holder.timeline, wanted = measured === true;
      if (timeline.run !== run || timeline.measured !== wanted) { timeline.load(run, wanted); } else { timeline.draw(); }
      if (!isOld(selection)) { timeline.select(selection); }
      return window.dash_clientside.no_update;
    },
  });
})();
