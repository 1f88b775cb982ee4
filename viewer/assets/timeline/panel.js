/* The panel below the canvas with tabs for details, ranks, arrivals, host calls and notes. */
import { ranksText } from "./address.js";
import { button, element, exportLinks, list, svg, table } from "./dom.js";
import { ORDERS } from "./rows.js";
import { ask } from "./server.js";

const { durationText } = window.chakrascopeUnits;
const TABS = { details: "Details", ranks: "Ranks", arrivals: "Arrivals", stacks: "Host calls", notes: "Notes" };
const MAX_GROUPS = 300;

export class Panel {
  constructor(timeline) {
    Object.assign(this, { timeline, element: document.getElementById("timeline-panel") });
    const tabs = document.getElementById("timeline-tabs");
    tabs.setAttribute("role", "tablist");
    this.tabs = Object.fromEntries(Object.entries(TABS).map(([name, title]) => {
      const tab = element("button", title, "timeline-tab", { type: "button", onclick: () => this.open(name) });
      tab.setAttribute("role", "tab");
      tab.setAttribute("aria-controls", `timeline-${name}`);
      return [name, tab];
    }));
    tabs.replaceChildren(...Object.values(this.tabs));
    this.open("ranks");
  }

  part(name) { return document.getElementById(`timeline-${name}`); }

  open(name) {
    this.tab = name;
    for (const [each, tab] of Object.entries(this.tabs)) {
      tab.setAttribute("aria-selected", String(each === name));
      this.part(each).hidden = each !== name;
    }
    this.showTab();
  }

  /* Fill in the open tab, if its content depends on the timeline. */
  showTab() {
    if (!this.timeline.isLoaded) { return; }
    if (this.tab === "arrivals") { showArrivals(this.timeline, this.part("arrivals")); }
    if (this.tab === "stacks") { this.askStacks(); }
    if (this.tab === "notes") { this.timeline.notes.show(); }
  }

  /* Show *details*, with links to the dependencies and dependents of the selected *node*, if any. */
  showDetails(details, node) {
    const out = this.part("details");
    out.replaceChildren(list(details, "details"), ...(node ? this.neighbours(node) : []));
    delete out.dataset.area;
    // The tabs "notes" and "stacks" stay open, as their content follows the selection.
    this.open(["notes", "stacks"].includes(this.tab) ? this.tab : "details");
  }

  neighbours({ rank, neighbours }) {
    return [["Waits for", true], ["Awaited by", false]].flatMap(([title, before]) => {
      const near = neighbours.filter((each) => each.before === before), items = element("ul", null, "side-list");
      items.append(...near.map(({ node_id: node, name, why }) => {
        const item = element("li"), query = new URLSearchParams(window.location.search);
        query.set("rank", rank); query.set("node", node);
        item.append(element("a", `${name}, node ${node}`, "text-link", { href: `./timeline?${query}`, onclick: (event) => this.follow(event, rank, node) }), ` (${why})`);
        return item;
      }));
      const more = near.length ? near[0].of - near.length : 0;
      if (more) { items.append(element("li", `and ${more.toLocaleString("en")} more`)); }
      return near.length ? [element("h3", title, "side-title"), items] : [];
    });
  }

  /* Select a node on this page, unless a modifier key requests a new browser tab. */
  follow(event, rank, node) {
    if (event.ctrlKey || event.metaKey || event.shiftKey) { return; }
    event.preventDefault();
    this.timeline.next(() => this.timeline.selection.choose(rank, node));
  }

  /* Request the host calls of the marked area, else of the selected slice, else of the window. The server converts simulated
     times to measured times. A Dash callback of the page draws the host calls. */
  askStacks() {
    const { area, notes, rows, run, main, selection: { node } } = this.timeline, subject = notes.subject();
    const isTimed = !area && node && node.measured, [t0, t1] = isTimed ? node.measured : [subject.t0, subject.t1];
    const ranks = area ? [...new Set(area.rows().map((row) => row.group.rank))] : node ? [node.rank] : rows.representatives(main);
    window.dash_clientside.set_props("timeline-stacks-asked", { data: { run, ranks, t0: Math.max(0, t0), t1: Math.max(t0 + 1, t1), measured: Boolean(isTimed) || main.measured } });
  }

  showArea(parts) {
    const out = this.part("details");
    out.replaceChildren(...parts);
    out.dataset.area = "yes";
    this.open(this.tab === "stacks" ? "stacks" : "details");
  }

  /* List the ranks with their sort keys and buttons that pin, hide or show a rank; equal ranks share a row. */
  showRanks() {
    const { main, run, settings } = this.timeline, out = this.part("ranks");
    const focused = out.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    const column = ORDERS[settings.order], groups = [...main.groups];
    if (column) { groups.sort((a, b) => b.facts[column] - a.facts[column]); }
    const ranks = table(
      ["Ranks", "Finish", "Exposed communication", "Waiting for others", "Pin or hide"], [1, 2, 3], groups.slice(0, MAX_GROUPS),
      (group) => [rankWords(group), ...Object.values(ORDERS).map((name) => durationText(group.facts[name])), this.rankButtons(group.rank)],
    );
    const more = groups.length > MAX_GROUPS ? [element("p", `and ${groups.length - MAX_GROUPS} more; choose which with "Ranks"`)] : [];
    out.replaceChildren(exportLinks("standings", new URLSearchParams({ run })), ranks, ...more);
    const again = focused && out.querySelector(`[data-key="${focused}"]`);
    if (again) { again.focus(); }
  }

  rankButtons(rank) {
    const { rows } = this.timeline, both = element("span", null, "rank-buttons");
    const made = [["pinned", "Pin", "Unpin"], ["hidden", "Hide", "Show"]].map(([setting, ...words]) => {
      const isOn = rows.has(setting, rank), word = words[Number(isOn)], toggle = button(word, () => rows.toggle(setting, rank));
      toggle.setAttribute("aria-pressed", String(isOn));
      toggle.setAttribute("aria-label", `${word} rank ${rank}`);
      toggle.dataset.key = `${setting}:${rank}`;
      return toggle;
    });
    both.append(made[0], " ", made[1]);
    return both;
  }
}

function rankWords({ ranks, apart }) {
  return `${ranksText(ranks)}${ranks.length > 1 ? `: ${ranks.length} equal ranks${apart ? `, within ${durationText(apart)}` : ""}` : ""}`;
}

/* The chart of the arrival times of ranks at each collective. */
const MAX_COLLECTIVES = 60, MAX_DOTS = 64, MAX_NAME = 38, ROW = 20, LEFT = 250, RIGHT = 140, HEAD = 22;

/* Draw the arrivals at the collectives with the largest skew into the element *out*, for the ranks that have a row. */
async function showArrivals(timeline, out) {
  const { run } = timeline;
  if (!timeline.arrivals || timeline.arrivals.run !== run) {
    const columns = await ask("arrivals", timeline.query({}));
    if (!columns || run !== timeline.run || !timeline.isShown) { return; }
    timeline.arrivals = { run, columns };
  }
  const { columns } = timeline.arrivals, calls = callsOf(columns, new Set(timeline.rows.ranksOf(timeline.main)));
  const late = (places) => Math.max(...places.map((i) => columns.late_ns[i]));
  const shown = [...calls].sort((a, b) => late(b) - late(a)).slice(0, MAX_COLLECTIVES);
  if (!shown.length) { out.replaceChildren(element("p", "No collective of several ranks is shown.")); return; }
  const note = `Each dot is a rank, placed by its delay after the first; the last rank is named.`
    + (calls.length > shown.length ? ` The ${shown.length} of ${calls.length} collectives with the largest skew.` : "");
  const wide = Math.max(400, document.getElementById("timeline-panel").clientWidth - LEFT - RIGHT - 24), scale = wide / Math.max(1, late(shown[0]));
  out.replaceChildren(exportLinks("arrivals", new URLSearchParams({ run })), element("p", note, "figure-note"), picture(timeline, columns, shown, wide, scale));
}

/* Return, for each collective, the indices in *columns* of its arrivals on *ranks*. */
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

/* Return one row of the chart of arrivals: the name of the collective, a line, a dot per rank, and the last rank. */
function callParts(timeline, columns, places, y, scale) {
  const { late_ns: late, rank, start_ns: start, operation, collective, module, node_id: node } = columns, x = (i) => LEFT + late[i] * scale;
  const ordered = [...places].sort((a, b) => late[a] - late[b] || rank[b] - rank[a]), last = ordered[ordered.length - 1], every = Math.ceil(ordered.length / MAX_DOTS);
  const name = `${operation[last]} ${collective[last]}${module[last] ? ` · ${module[last]}` : ""}`;
  const dots = ordered.filter((i, place) => place % every === 0 || i === last).map((i) => {
    const dot = svg("circle", { cx: x(i), cy: y, r: i === last ? 5 : 4, class: i === last ? "last" : "came", "data-rank": rank[i] });
    dot.append(svg("title", {}, `rank ${rank[i]} arrived ${late[i] ? `${durationText(late[i])} after the first` : "first"}, at ${durationText(start[i])}`));
    dot.addEventListener("click", () => timeline.selection.choose(rank[i], node[i]));
    return dot;
  });
  return [
    svg("text", { x: 0, y: y + 4 }, name.length > MAX_NAME ? `${name.slice(0, MAX_NAME - 1)}…` : name),
    svg("line", { x1: LEFT, x2: x(last), y1: y, y2: y, class: "reach" }), ...dots,
    svg("text", { x: x(last) + 9, y: y + 4, class: "soft" }, late[last] ? `rank ${rank[last]} +${durationText(late[last])}` : "all together"),
  ];
}
