/* What the timeline keeps in the address, so that a view can be shared: its settings and the window in time. */

// Each setting and its value when the address lacks it.
const SETTINGS = {
  rows: "", empty: "", colour: "kind", order: "rank", same: "", ranks: "", pinned: "", hidden: "", seek: "", beside: "", align: "", measured: "",
};

export function readSettings() {
  const query = new URLSearchParams(window.location.search);
  return Object.fromEntries(Object.entries(SETTINGS).map(([name, usual]) => [name, query.get(name) || usual]));
}

/* Return the window in the address, if it is one of *run*. */
export function readWindow(run) {
  const query = new URLSearchParams(window.location.search);
  const t0 = Number(query.get("t0") || NaN), t1 = Number(query.get("t1") || NaN);
  return query.get("run") === run && t1 > t0 ? [t0, t1] : null;
}

/* Write what is shown into the address without a step in the browser's history. Dash reads the address again only when
   an event says that it changed; unaware, it would put its own back at the next click. */
export function writeAddress(settings, view) {
  const query = new URLSearchParams(window.location.search);
  query.set("t0", Math.round(view.t0));
  query.set("t1", Math.round(view.t1));
  for (const [name, usual] of Object.entries(SETTINGS)) {
    if (settings[name] === usual) { query.delete(name); } else { query.set(name, settings[name]); }
  }
  if (`?${query}` === window.location.search) { return; }
  window.history.replaceState(window.history.state, "", `?${query}`);
  window.dispatchEvent(new PopStateEvent("popstate", { state: window.history.state }));
}
