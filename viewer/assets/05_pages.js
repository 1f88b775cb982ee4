"use strict";
/* Parts of single pages: table cells, links between studies, the buttons of jobs, Ctrl+Enter, and separators of panes. */

/* Table cells: links and number formats. A table column names its format as {"function": "inTime(params.value)"}. Each study is
   a separate application below /study/NAME/, so that a link to a study reloads the page. */
(function () {
  const { bandwidthText, bytesText, changeText, durationText, instantText, operationsText, shareText } = window.chakrascopeUnits;
  const missing = (value) => value === null || value === undefined;
  const address = (name) => `/study/${encodeURIComponent(name)}/`;

  window.dashAgGridComponentFunctions = Object.assign(window.dashAgGridComponentFunctions || {}, {
    RunLink: (props) => window.React.createElement("span", null,
      window.React.createElement(window.dash_core_components.Link,
        { href: `./?run=${encodeURIComponent(props.data.id)}`, className: "text-link", title: props.value }, props.value),
      props.data.default ? window.React.createElement("span", { className: "default-run" }, "default") : null),
    StudyLink: (props) => window.React.createElement("a",
      { href: address(props.data.name), className: "text-link", title: props.value }, props.value),
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

  window.chakrascopeCallbacks({
    /* Open the same page of another study, without the selection of the current study. */
    openStudy(name, pathname) {
      const parts = (pathname || "/").split("/"), page = parts.pop();
      if (name && decodeURIComponent(parts.pop()) !== name) { window.location.assign(address(name) + page); }
      return window.dash_clientside.no_update;
    },
  });
})();

/* The buttons of jobs. The list of jobs is drawn again when a job begins or ends, which may replace a button between press
   and release. The browser then creates no click event, so this code tracks presses itself. */
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
  /* A button that had the keyboard focus gets the focus back when the list of jobs is drawn again. */
  let focused = "";
  document.addEventListener("focusin", (event) => { focused = nameOf(buttonOf(event)); });
  document.addEventListener("keydown", (event) => { if (event.key === "Tab") { focused = ""; } });
  new MutationObserver(() => {
    if (!focused || document.activeElement !== document.body) { return; }
    const again = [...document.querySelectorAll("#job-list [data-job-action]")].find((button) => nameOf(button) === focused);
    if (again) { again.focus({ preventScroll: true }); }
  }).observe(document.documentElement, { childList: true, subtree: true });

  /* Handle clicks from the keyboard, whose events have detail 0. */
  document.addEventListener("click", (event) => {
    const button = buttonOf(event);
    if (button && event.detail === 0) { ask(button); }
  });
})();

/* Ctrl+Enter presses the main button of a page. The answer to a query is marked as stale once the query is edited. */
(function () {
  const REPORT_MS = 40, CHECK_MS = 5000;
  let asked = null;  // the button to click; any other key or click withdraws the request

  /* Click the requested button once it is enabled: the server checks the fields first. It stays disabled for invalid ones. */
  function press(go, until) {
    if (go !== asked || !go.isConnected || go.dataset.loading || Date.now() > until) { return; }
    if (go.disabled) { window.setTimeout(() => press(go, until), REPORT_MS); } else { asked = null; go.click(); }
  }

  document.addEventListener("pointerdown", () => { asked = null; });
  document.addEventListener("keydown", (event) => {
    const isGo = event.key === "Enter" && (event.ctrlKey || event.metaKey);
    const go = asked = isGo ? document.querySelector("#page [aria-keyshortcuts='Control+Enter']") : null;
    if (!go) { return; }
    event.preventDefault();
    event.stopPropagation();  // a select would open its list
    // Text fields report their text to Dash when they lose the focus. Lists close, and would open again with the focus.
    if (event.target instanceof HTMLInputElement) {
      event.target.blur();
      if (!event.target.matches("[aria-haspopup]")) { event.target.focus(); }
    }
    // Fields report the last key press to Dash only after some tasks; an earlier click would send the text before it.
    window.setTimeout(() => press(go, Date.now() + CHECK_MS), REPORT_MS);
  }, true);

  window.chakrascopeCallbacks({
    staleAnswer: (sql, answered) => (answered && answered !== sql ? "stale" : ""),
  });
})();

/* Separators between two panes set the size of the following pane by pointer or keys. The size is a CSS variable with the
   name of the pane, and the browser stores the size for the next visit. */
(function () {
  const STORE = "chakrascope-panes", LEAST = 48, MIN_BEFORE = 220, KEY_PIXELS = 24;
  let drag = null;

  function stored() {
    try { return JSON.parse(window.localStorage.getItem(STORE)) || {}; } catch { return {}; }
  }

  function store(sizes) {
    try { window.localStorage.setItem(STORE, JSON.stringify(sizes)); } catch { /* Without storage, the size of a pane is lost when the page closes. */ }
  }

  const separatorOf = (event) => event.target instanceof Element && event.target.closest("[role='separator'][aria-controls]");
  const paneOf = (separator) => document.getElementById(separator.getAttribute("aria-controls"));
  const isUpright = (separator) => separator.getAttribute("aria-orientation") === "vertical";
  const extent = (separator, element) => element.getBoundingClientRect()[isUpright(separator) ? "width" : "height"];
  const at = (separator, event) => (isUpright(separator) ? event.clientX : event.clientY);

  /* Return the total size of both panes next to a separator, in pixels. */
  const room = (separator) => extent(separator, separator.previousElementSibling) + extent(separator, paneOf(separator));

  function announce(separator) {
    separator.setAttribute("aria-valuenow", Math.round((100 * extent(separator, paneOf(separator))) / Math.max(1, room(separator))));
  }

  function resize(separator, pixels) {
    const { id } = paneOf(separator), size = Math.round(Math.max(LEAST, Math.min(pixels, room(separator) - MIN_BEFORE)));
    document.documentElement.style.setProperty(`--${id}`, `${size}px`);
    store({ ...stored(), [id]: size });
    announce(separator);
  }

  /* Restore the default size of the pane. */
  function reset(separator) {
    const { id } = paneOf(separator), { [id]: _gone, ...rest } = stored();
    document.documentElement.style.removeProperty(`--${id}`);
    store(rest);
    announce(separator);
  }

  const grow = (pixels) => (separator) => resize(separator, extent(separator, paneOf(separator)) + pixels);
  const KEYS = {
    ArrowUp: grow(KEY_PIXELS), ArrowLeft: grow(KEY_PIXELS), ArrowDown: grow(-KEY_PIXELS), ArrowRight: grow(-KEY_PIXELS),
    Home: (separator) => resize(separator, room(separator)), End: (separator) => resize(separator, 0), Enter: reset,
  };

  function listen(name, act) {
    document.addEventListener(name, (event) => {
      const separator = separatorOf(event);
      if (separator && paneOf(separator)) { act(separator, event); }
    });
  }

  listen("focusin", announce);
  listen("dblclick", reset);
  listen("keydown", (separator, event) => {
    if (!KEYS[event.key] || event.ctrlKey || event.metaKey || event.altKey) { return; }
    event.preventDefault();  // the timeline page has other actions for the arrow keys
    KEYS[event.key](separator);
  });
  listen("pointerdown", (separator, event) => {
    separator.setPointerCapture(event.pointerId);
    drag = { separator, size: extent(separator, paneOf(separator)), from: at(separator, event) };
  });
  listen("pointermove", (separator, event) => {
    if (drag && drag.separator === separator) { resize(separator, drag.size + drag.from - at(separator, event)); }
  });
  for (const name of ["pointerup", "pointercancel"]) { document.addEventListener(name, () => { drag = null; }); }

  for (const [id, size] of Object.entries(stored())) {
    if (Number.isFinite(size)) { document.documentElement.style.setProperty(`--${id}`, `${size}px`); }
  }
})();
