/* Reads and writes the settings and the time window of the timeline in the address, so that a view can be shared. Converts
   ranks to text and back. */
// Settings of the timeline with their defaults.
const SETTINGS = {
  rows: "", empty: "", colour: "kind", order: "rank", same: "", ranks: "", pinned: "", hidden: "", seek: "", beside: "", align: "", measured: "", calls: "", fit: "",
};

export function readSettings() {
  const query = new URLSearchParams(window.location.search);
  return Object.fromEntries(Object.entries(SETTINGS).map(([name, usual]) => [name, query.get(name) || usual]));
}

/* Return the time window in the address if the address names *run*, else null. */
export function readWindow(run) {
  const query = new URLSearchParams(window.location.search);
  const t0 = Number(query.get("t0") || NaN), t1 = Number(query.get("t1") || NaN);
  return query.get("run") === run && t1 > t0 ? [t0, t1] : null;
}

/* Write the run, its time window and the settings into the address without an entry in the browser's history; return whether
   the address has changed. */
export function writeAddress(run, settings, view) {
  const query = new URLSearchParams(window.location.search);
  query.set("run", run);
  query.set("t0", Math.round(view.t0));
  query.set("t1", Math.round(view.t1));
  for (const [name, usual] of Object.entries(SETTINGS)) {
    if (settings[name] === usual) { query.delete(name); } else { query.set(name, settings[name]); }
  }
  if (`?${query}` === window.location.search) { return false; }
  try {
    window.history.replaceState(window.history.state, "", `?${query}`);
  } catch {
    return false;  // browsers limit how often the address may change
  }
  return true;
}

/* Make Dash read the address again; otherwise Dash would restore the old address at the next click. */
export function reportAddress() { window.dispatchEvent(new PopStateEvent("popstate", { state: window.history.state })); }

/* Return integers as text in ranges, such as 0-3,7. */
export function rangesText(numbers) {
  const parts = [];
  for (const number of [...numbers].sort((a, b) => a - b)) {
    const last = parts[parts.length - 1];
    if (last && number <= last[1] + 1) { last[1] = number; } else { parts.push([number, number]); }
  }
  return parts.map(([a, b]) => (a === b ? `${a}` : `${a}-${b}`)).join(",");
}

/* Return the set of ranks in a text such as 0-3,7; null for empty or invalid text. */
export function ranksOf(text) {
  const ranks = new Set();
  for (const part of text.split(/[\s,]+/).filter(Boolean)) {
    const pair = /^(\d{1,7})(?:-(\d{1,7}))?$/.exec(part);
    if (!pair) { return null; }
    for (let rank = Number(pair[1]); rank <= Number(pair[2] || pair[1]); rank += 1) { ranks.add(rank); }
  }
  return ranks.size ? ranks : null;
}

/* Return ranks as text for display, such as 0-6, or 1, 3 ... 15 for evenly spaced ranks. */
export function ranksText(ranks) {
  const step = ranks.length > 2 ? ranks[1] - ranks[0] : 1;
  if (step > 1 && ranks.every((rank, i) => rank === ranks[0] + i * step)) {
    return `${ranks[0]}, ${ranks[1]} … ${ranks[ranks.length - 1]}`;
  }
  return rangesText(ranks).replaceAll(",", ", ").replaceAll("-", "–");
}
