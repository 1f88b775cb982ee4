/* The selected slice, and the marked area with a summary of the slices in the area. */
import { rangesText } from "./address.js";
import { element, exportLinks, list, table } from "./dom.js";
import { LABEL_WIDTH } from "./rows.js";
import { ask } from "./server.js";

const { durationText } = window.chakrascopeUnits;
const SLIGHT = 0.02;

export class Selection {
  constructor(timeline) { Object.assign(this, { timeline, node: null, key: "", wanted: null, trail: [] }); }

  /* Select a node on every page by writing the node into the address. */
  choose(rank, node) {
    const query = new URLSearchParams(window.location.search);
    query.set("run", this.timeline.run);
    query.set("rank", rank);
    query.set("node", node);
    window.dash_clientside.set_props("url", { search: `?${query}` });
    return this.show({ rank, node });
  }

  /* Show the selected node of the address once the run is loaded. */
  async show(selection) {
    const { timeline } = this, { dataset } = timeline.holder;
    this.wanted = selection;
    if (!timeline.isLoaded) { return; }
    const key = selection && selection.node >= 0 ? `${selection.rank}:${selection.node}` : "";
    if (key && key === dataset.selected) { timeline.draw(); return; }
    if (!key) { this.node = null; this.key = ""; dataset.selected = ""; timeline.draw(); return; }
    const node = await timeline.details(timeline.main, selection.rank, selection.node, true);
    if (!this.wanted || key !== `${this.wanted.rank}:${this.wanted.node}` || !timeline.isShown) { return; }
    // If the same node is selected again, for example after a reload of the rows, the marked area and the window stay.
    const isNew = key !== this.key;
    if (isNew) { timeline.area = null; }
    this.node = node; this.key = key;
    if (node && !timeline.area) { timeline.panel.showDetails(node.details, node); }
    if (node && isNew) { this.reveal(node); }
    dataset.selected = node ? key : "";
    timeline.draw();
    await this.findCounterparts(node);
  }

  /* Scroll to the selected slice; if its rank is hidden or filtered out, all ranks are shown again. */
  reveal(node) {
    const { timeline } = this, { rows, view } = timeline;
    if (!rows.of(timeline.main, node.lane) && node.lane >= 0) {
      Object.assign(timeline.settings, { hidden: "", ranks: "" });
      timeline.arrange();
    }
    const row = rows.of(timeline.main, node.lane);
    if (row && !row.pinned) {
      const y = rows.y(row);
      if (y < rows.top || y > view.height - row.height) { rows.scrollBy(y - (rows.top + view.height) / 2); }
    }
    const x = view.x(node.start_ns), end = view.x(node.end_ns);
    if (end < LABEL_WIDTH || x > view.right || end - x < 2) {
      const span = Math.max(60 * (node.end_ns - node.start_ns), 2000), middle = (node.start_ns + node.end_ns) / 2;
      view.window(middle - span / 2, middle + span / 2);
    }
  }

  /* Find the counterpart of *node* in each compared run or step, and show the difference in duration. */
  async findCounterparts(node) {
    const { timeline } = this, { others } = timeline.beside;
    for (const source of others) { source.counterpart = null; }
    if (!node) { return; }
    const answers = await Promise.all(others.map(({ run, step }) => ask("counterpart", timeline.query({ beside: run, rank: node.rank, node: node.node, ...(step === undefined ? {} : { step }) }))));
    if (this.node !== node || !timeline.isShown) { return; }
    others.forEach((source, i) => {
      const found = answers[i];
      if (!found) { return; }
      source.counterpart = found.node >= 0 ? found : null;
      timeline.beside.compare(node, source, found);
    });
    timeline.draw();
  }

  /* Fit the window to the marked area or to the selected slice; if the window already fits, show the whole step. */
  fit() {
    const { area, view } = this.timeline, { node } = this;
    const chosen = area || (node && node.lane >= 0 ? { t0: node.start_ns, t1: node.end_ns } : null);
    if (!chosen) { view.fit(); return; }
    const span = Math.max(chosen.t1 - chosen.t0, 20), wanted = [chosen.t0 - 0.1 * span, chosen.t0 + 1.1 * span];
    const isShown = Math.abs(view.t0 - wanted[0]) < SLIGHT * span && Math.abs(view.t1 - wanted[1]) < SLIGHT * span;
    if (isShown) { view.fit(); } else { view.window(...wanted); }
  }

  /* Select the cause of the selected node, or go back along the trail of causes. */
  walk(direction) {
    const { node } = this;
    if (!node) { return undefined; }
    if (direction > 0) {
      const next = this.trail.pop();
      return next ? this.choose(next.rank, next.node) : undefined;
    }
    return this.back(node.cause);
  }

  /* Select the host work at the end of the chain of causes of the selected node. */
  async toHost() {
    const { node, timeline } = this, found = node && await ask("host", timeline.query({ rank: node.rank, node: node.node }));
    return found && node === this.node ? this.back(found.node) : undefined;
  }

  back(cause) {
    const { node } = this;
    if (cause < 0) { return undefined; }
    this.trail.push({ rank: node.rank, node: node.node });
    return this.choose(node.rank, cause);
  }

  /* Select the next or previous slice of the row, or the first slice of the window if no slice is selected. */
  step(direction) {
    const { main, rows, view } = this.timeline, { batch } = main, { node } = this;
    if (!batch) { return undefined; }
    const own = node ? rows.of(main, node.lane) : rows.all.find((row) => row.source === main && !row.isGroup);
    if (!own) { return undefined; }
    const from = node ? node.start_ns : view.t0;
    let best = -1, nearest = Infinity;
    for (let i = 0; i < batch.count; i++) {
      const ahead = (batch.start[i] - from) * (node ? direction : 1);
      if (batch.lane[i] !== own.lane || ahead <= 0 || ahead >= nearest || (node && batch.node[i] === node.node)) { continue; }
      best = i; nearest = ahead;
    }
    return best >= 0 ? this.choose(node ? node.rank : own.group.rank, batch.node[best]) : undefined;
  }
}

/* A marked area (a time interval on some rows), and the summary of the slices in the area. */
const TITLES = {
  operator: "Operator", name: "Name", row: "Row", kind: "Kind", slices: "Slices", total_ns: "Total", mean_ns: "Mean", longest_ns: "Longest",
};

export class Area {
  constructor(timeline, t0, t1, rows) {
    Object.assign(this, { timeline, t0, t1, keys: new Set(rows.map((row) => this.key(row, timeline))) });
  }

  /* Return a key of a row that stays valid when lane numbers change, which happens while ranks are read. */
  key(row, { sources } = this.timeline) { return `${sources.indexOf(row.source)}:${row.group.rank}:${row.place}`; }

  /* Return the marked rows among the current rows of the timeline. */
  rows() { return this.timeline.rows.all.filter((row) => this.keys.has(this.key(row))); }

  /* Return the summary of the area as elements, with a part for each run that has rows in the area. */
  async measure() {
    const { sources } = this.timeline, parts = [];
    for (const source of sources) {
      const lanes = this.rows().filter((row) => row.source === source).map((row) => row.lane);
      if (!lanes.length) { continue; }
      const query = this.timeline.query({ run: source.run, t0: Math.round(this.t0 - source.shift), t1: Math.round(this.t1 - source.shift), lanes: rangesText(lanes) });
      const found = await ask("area", query);
      if (found) { parts.push(...this.title(source), ...summary(found, query)); }
    }
    return parts;
  }

  title(source) {
    return this.timeline.sources.length < 2 ? [] : [element("p", source.title, "side-title")];
  }
}

/* Return the elements of an area's summary: totals, export links, and a table of the largest sums by name. */
function summary(found, query) {
  const { columns } = found;
  const isTime = (column) => column.endsWith("_ns"), isNumber = (column) => isTime(column) || column === "slices";
  const numbers = [...columns.keys()].filter((i) => isNumber(columns[i]));
  const text = (value, column) => (isTime(column) ? durationText(Math.round(value)) : isNumber(column) ? value.toLocaleString("en") : value);
  const rows = table(columns.map((column) => TITLES[column] || column), numbers, found.rows, (row) => columns.map((column) => text(row[column], column)));
  const more = found.more > 0 ? [element("p", `and ${found.more.toLocaleString("en")} more names, in the export`)] : [];
  return [list(found.details, "details"), exportLinks("area", query), rows, ...more];
}
