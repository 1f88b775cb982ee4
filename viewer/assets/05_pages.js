"use strict";
/* What single pages and lists need: cells of tables, several studies, buttons of jobs, and the query. */

/* Cells of tables: the link to a run, and formats; a table column names one as {"function": "inTime(params.value)"}. */
(function () {
  const { bandwidthText, bytesText, changeText, durationText, instantText, operationsText, shareText } = window.chakrascopeUnits;
  const missing = (value) => value === null || value === undefined;

  window.dashAgGridComponentFunctions = Object.assign(window.dashAgGridComponentFunctions || {}, {
    RunLink: (props) => window.React.createElement("span", null,
      window.React.createElement(window.dash_core_components.Link,
        { href: `./?run=${encodeURIComponent(props.data.id)}`, className: "text-link", title: props.value }, props.value),
      props.data.default ? window.React.createElement("span", { className: "default-run" }, "default") : null),
  });

  window.dashAgGridFunctions = Object.assign(window.dashAgGridFunctions || {}, {
    inTime: (ns) => (missing(ns) ? "" : durationText(ns)),
    inSteps: (ns, steps) => (missing(ns) ? "" : durationText(ns) + (steps > 1 ? ` (${steps} steps)` : "")),
    inTimeIfAny: (ns) => (missing(ns) || ns < 0 ? "" : durationText(ns)),
    asInstant: (ns, resolution) => (missing(ns) ? "" : instantText(ns, resolution)),
    inPercent: (share) => (missing(share) ? "" : shareText(share)),
    inSignedPercent: (share) => (missing(share) ? "" : changeText(share)),
    inSignedTime: (ns) => (missing(ns) ? "" : `${ns > 0 ? "+" : ""}${durationText(ns)}`),
    inThousands: (count) => (missing(count) ? "" : count.toLocaleString("en-US")),
    inOperations: (count) => (missing(count) ? "" : operationsText(count)),
    inFourDigits: (value) => (missing(value) ? "" : value.toLocaleString("en-US", { maximumSignificantDigits: 4 })),
    inRate: (bytesPerNs) => (missing(bytesPerNs) ? "" : bandwidthText(bytesPerNs)),
    toTheMinute: (time) => (missing(time) ? "" : time.slice(0, 16)),
    inBytes: (bytes) => (missing(bytes) || bytes < 0 ? "" : bytesText(bytes)),
  });
})();

/* Several studies: each is an application of its own below /study/NAME/, so that going there loads a page. */
(function () {
  const address = (name) => `/study/${encodeURIComponent(name)}/`;

  window.dash_clientside = window.dash_clientside || {};
  window.dash_clientside.chakrascope = Object.assign(window.dash_clientside.chakrascope || {}, {
    /* Show the same page of another study; what is selected there is its own affair. */
    openStudy(name, pathname) {
      const parts = (pathname || "/").split("/"), page = parts.pop();
      if (name && decodeURIComponent(parts.pop()) !== name) { window.location.assign(address(name) + page); }
      return window.dash_clientside.no_update;
    },
  });

  window.dashAgGridComponentFunctions = Object.assign(window.dashAgGridComponentFunctions || {}, {
    StudyLink: (props) => window.React.createElement("a",
      { href: address(props.data.name), className: "text-link", title: props.value }, props.value),
  });
})();

/* The buttons of jobs. Their list is drawn anew when a job begins or ends, so what is pressed may be gone when it is let go: the
   browser makes no click of that, and Dash forgets what was asked of components that are gone. */
(function () {
  let pressed = "";

  const buttonOf = (event) => event.target.closest && event.target.closest("[data-job-action]");
  const nameOf = (button) => (button ? `${button.dataset.jobAction} ${button.dataset.job}` : "");

  function ask(button) {
    const asked = { action: button.dataset.jobAction, job: Number(button.dataset.job), at: Date.now() };
    window.dash_clientside.set_props("job-asked", { data: asked });
  }

  document.addEventListener("pointerdown", (event) => { pressed = nameOf(buttonOf(event)); });
  document.addEventListener("pointerup", (event) => {
    const button = buttonOf(event);
    if (button && nameOf(button) === pressed) { ask(button); }
    pressed = "";
  });
  /* The button that had the focus has it again when the list was drawn anew. */
  let focused = "";
  document.addEventListener("focusin", (event) => { focused = nameOf(buttonOf(event)); });
  document.addEventListener("keydown", (event) => { if (event.key === "Tab") { focused = ""; } });
  new MutationObserver(() => {
    if (!focused || document.activeElement !== document.body) { return; }
    const again = [...document.querySelectorAll("#job-list [data-job-action]")].find((button) => nameOf(button) === focused);
    if (again) { again.focus({ preventScroll: true }); }
  }).observe(document.documentElement, { childList: true, subtree: true });

  /* Without a pointer: from the keyboard. */
  document.addEventListener("click", (event) => {
    const button = buttonOf(event);
    if (button && event.detail === 0) { ask(button); }
  });
})();

/* Ctrl+Enter presses the button of a page that runs what is entered; an answer to another query looks like one. */
(function () {
  document.addEventListener("keydown", (event) => {
    const go = event.key === "Enter" && (event.ctrlKey || event.metaKey) && document.querySelector("#page [aria-keyshortcuts='Control+Enter']");
    if (!go) { return; }
    event.preventDefault();
    // Fields hand over what is typed when they lose the focus.
    if (event.target instanceof HTMLInputElement) { event.target.blur(); event.target.focus(); }
    go.click();
  });

  window.dash_clientside = window.dash_clientside || {};
  window.dash_clientside.chakrascope = Object.assign(window.dash_clientside.chakrascope || {}, {
    staleAnswer: (sql, answered) => (answered && answered !== sql ? "stale" : ""),
  });
})();
