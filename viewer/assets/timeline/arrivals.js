/* The picture of when each rank came to each collective. */
import { element, exportLinks, svg } from "./dom.js";
import { ask } from "./server.js";

const { durationText } = window.chakrascopeUnits;
const MOST_COLLECTIVES = 60, MOST_DOTS = 64, MOST_NAME = 38, ROW = 20, LEFT = 250, RIGHT = 140, HEAD = 22;

/* Draw into *out* the collectives that ranks came to furthest apart, of the ranks that have a row. */
export async function showArrivals(timeline, out) {
  const { run } = timeline;
  if (!timeline.arrivals || timeline.arrivals.run !== run) {
    const columns = await ask("arrivals", timeline.query({}));
    if (!columns || run !== timeline.run || !timeline.isShown) { return; }
    timeline.arrivals = { run, columns };
  }
  const { columns } = timeline.arrivals, calls = callsOf(columns, new Set(timeline.rows.ranksOf(timeline.main)));
  const late = (places) => Math.max(...places.map((i) => columns.late_ns[i]));
  const shown = [...calls].sort((a, b) => late(b) - late(a)).slice(0, MOST_COLLECTIVES);
  if (!shown.length) { out.replaceChildren(element("p", "No collective of several ranks is shown.")); return; }
  const note = `Each dot is a rank, placed by its delay after the first; the last rank is named.`
    + (calls.length > shown.length ? ` The ${shown.length} of ${calls.length} collectives with the largest skew.` : "");
  const wide = Math.max(400, document.getElementById("timeline-panel").clientWidth - LEFT - RIGHT - 24), scale = wide / Math.max(1, late(shown[0]));
  out.replaceChildren(exportLinks("arrivals", new URLSearchParams({ run })), element("p", note, "figure-note"), picture(timeline, columns, shown, wide, scale));
}

/* Return the places in *columns* of each collective's arrivals, of the *ranks* shown. */
function callsOf(columns, ranks) {
  const calls = new Map();
  columns.collective.forEach((collective, i) => {
    if (!ranks.has(columns.rank[i])) { return; }
    if (!calls.has(collective)) { calls.set(collective, []); }
    calls.get(collective).push(i);
  });
  return [...calls.values()];
}

function picture(timeline, columns, calls, wide, scale) {
  const made = svg("svg", {
    width: LEFT + wide + RIGHT, height: calls.length * ROW + HEAD, class: "arrivals", role: "img", "aria-label": "Delay of each rank after the first at each collective",
  });
  for (const [part, anchor] of [[0, "start"], [0.5, "middle"], [1, "end"]]) {
    made.append(svg("text", { x: LEFT + part * wide, y: 11, "text-anchor": anchor, class: "soft" }, part ? `+${durationText(Math.round((part * wide) / scale))}` : "first"));
  }
  calls.forEach((places, row) => { made.append(...callParts(timeline, columns, places, HEAD + row * ROW + ROW / 2, scale)); });
  return made;
}

/* Return one row of the picture: the collective's name, a line, a dot per rank, and the last rank's name. */
function callParts(timeline, columns, places, y, scale) {
  const { late_ns: late, rank, start_ns: start, operation, collective, module, node_id: node } = columns, x = (i) => LEFT + late[i] * scale;
  const ordered = [...places].sort((a, b) => late[a] - late[b] || rank[b] - rank[a]), last = ordered[ordered.length - 1], every = Math.ceil(ordered.length / MOST_DOTS);
  const name = `${operation[last]} ${collective[last]}${module[last] ? ` · ${module[last]}` : ""}`;
  const dots = ordered.filter((i, place) => place % every === 0 || i === last).map((i) => {
    const dot = svg("circle", { cx: x(i), cy: y, r: i === last ? 5 : 4, class: i === last ? "last" : "came", "data-rank": rank[i] });
    dot.append(svg("title", {}, `rank ${rank[i]} arrived ${late[i] ? `${durationText(late[i])} after the first` : "first"}, at ${durationText(start[i])}`));
    dot.addEventListener("click", () => timeline.selection.choose(rank[i], node[i]));
    return dot;
  });
  return [
    svg("text", { x: 0, y: y + 4 }, name.length > MOST_NAME ? `${name.slice(0, MOST_NAME - 1)}…` : name),
    svg("line", { x1: LEFT, x2: x(last), y1: y, y2: y, class: "reach" }), ...dots,
    svg("text", { x: x(last) + 9, y: y + 4, class: "soft" }, late[last] ? `rank ${rank[last]} +${durationText(late[last])}` : "all together"),
  ];
}
