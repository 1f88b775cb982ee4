"use strict";
/* Separators between two panes: they set the size of the pane that they control, the one after them, by pointer and by
   keys. A size is a CSS variable with the name of the pane; the browser's storage has it for the next visit. */
(function () {
  const STORE = "chakrascope-panes", LEAST = 48, LEAST_BEFORE = 220, KEY_PIXELS = 24;
  let drag = null;

  function stored() {
    try { return JSON.parse(window.localStorage.getItem(STORE)) || {}; } catch { return {}; }
  }

  function store(sizes) {
    try { window.localStorage.setItem(STORE, JSON.stringify(sizes)); } catch { /* without storage a size lasts as long as the page */ }
  }

  const separatorOf = (event) => event.target instanceof Element && event.target.closest("[role='separator'][aria-controls]");
  const paneOf = (separator) => document.getElementById(separator.getAttribute("aria-controls"));
  const isUpright = (separator) => separator.getAttribute("aria-orientation") === "vertical";
  const extent = (separator, element) => element.getBoundingClientRect()[isUpright(separator) ? "width" : "height"];
  const at = (separator, event) => (isUpright(separator) ? event.clientX : event.clientY);

  /* The pixels that both panes share. */
  const room = (separator) => extent(separator, separator.previousElementSibling) + extent(separator, paneOf(separator));

  function announce(separator) {
    separator.setAttribute("aria-valuenow", Math.round((100 * extent(separator, paneOf(separator))) / Math.max(1, room(separator))));
  }

  function resize(separator, pixels) {
    const { id } = paneOf(separator), size = Math.round(Math.max(LEAST, Math.min(pixels, room(separator) - LEAST_BEFORE)));
    document.documentElement.style.setProperty(`--${id}`, `${size}px`);
    store({ ...stored(), [id]: size });
    announce(separator);
  }

  /* Give the pane the size again that the page would choose. */
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
    event.preventDefault();  // the keys of the page do something else
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
