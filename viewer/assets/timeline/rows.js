/* The time window of the timeline, and its rows: their order and height, and the folded, pinned and hidden ranks. */
import { rangesText, ranksOf } from "./address.js";

export const LABEL_WIDTH = 204, OVERVIEW_HEIGHT = 22, TOP = OVERVIEW_HEIGHT + 26;
const MIN_SPAN_NS = 20;

export class View {
  constructor(canvas, changed) {
    Object.assign(this, { canvas, changed, t0: 0, t1: 1, start: 0, makespan: 1 });
  }

  get width() { return Math.max(50, this.canvas.clientWidth - LABEL_WIDTH); }
  get height() { return this.canvas.clientHeight; }
  get right() { return LABEL_WIDTH + this.width; }
  get span() { return this.t1 - this.t0; }
  get scale() { return this.width / this.span; }
  x(t) { return LABEL_WIDTH + (t - this.t0) * this.scale; }
  t(x) { return this.t0 + (x - LABEL_WIDTH) / this.scale; }

  /* The length of the step; a device may begin the measured step later than the host. */
  get whole() { return this.makespan - this.start; }
  fit() { this.window(this.start - 0.01 * this.whole, this.makespan + 0.01 * this.whole); }

  window(t0, t1) {
    const span = Math.min(Math.max(t1 - t0, MIN_SPAN_NS), 1.1 * this.makespan);
    const middle = (t0 + t1) / 2, low = -0.05 * this.makespan, high = 1.05 * this.makespan;
    this.t0 = Math.max(low, Math.min(middle - span / 2, high - span));
    this.t1 = this.t0 + span;
    this.changed();
  }

  zoom(factor, x) {
    const at = this.t(x === undefined ? LABEL_WIDTH + this.width / 2 : Math.max(x, LABEL_WIDTH));
    this.window(at - (at - this.t0) * factor, at + (this.t1 - at) * factor);
  }

  pan(pixels) {
    const shift = pixels / this.scale;
    this.window(this.t0 + shift, this.t1 + shift);
  }

  /* Centre the time window on the x position of a click in the overview. */
  jump(x) {
    const t = this.start + ((x - LABEL_WIDTH) / this.width) * this.whole, half = this.span / 2;
    this.window(t - half, t + half);
  }
}

// Heights of rows in pixels: of nested rows, and the least height of rows of nodes.
const USUAL = { group: 18, lane: 22 }, SHORT = { group: 12, lane: 16 };
// Whether host calls that last for the whole step are shown, the greatest depth of the other host calls and of other nested
// rows that are shown, and the least heights of rows.
const ALL_ROWS = { outer: true, calls: Infinity, nested: Infinity, least: USUAL };
// The depth of host calls that stays in sight as long as other nested rows can be folded.
const LAST_CALLS = 3;
const TALLEST_LANE = 36, MIN_PANEL = 176, MIN_HEIGHT = 220, GAP = 4, BELOW = 10;
export const ORDERS = { finish: "finish_ns", exposed: "exposed_comm_ns", waiting: "waiting_ns" };

/* Return the visible groups of equal ranks of a source, in the chosen order. */
function groupsOf(source, settings) {
  const groups = new Map(), only = ranksOf(settings.ranks), hidden = ranksOf(settings.hidden) || new Set();
  for (const facts of source.ranks) {
    const key = settings.same === "apart" ? facts.rank : facts.same_as;
    if (!groups.has(key)) { groups.set(key, { rank: key, ranks: [], facts, replaced: false, apart: 0 }); }
    const group = groups.get(key);
    group.ranks.push(facts.rank);
    group.apart = Math.max(group.apart, facts.apart_ns);
    group.replaced = group.replaced || facts.replaced;
  }
  const column = ORDERS[settings.order];
  source.groups = [...groups.values()].filter((group) => source.lanesOf.has(group.rank));
  const shown = source.groups.filter((group) => !hidden.has(group.rank) && (!only || group.ranks.some((rank) => only.has(rank))));
  if (column) { shown.sort((a, b) => b.facts[column] - a.facts[column] || a.rank - b.rank); }
  return shown;
}

/* Return the rows of a group of ranks, one row per lane. Rows with the same *kin* have the same label and level. The *depth* of
   a nested row or a row of host calls counts the rows of its kin from 1, separately for *outer* calls. */
function rowsOf(source, group, pinned) {
  const lanes = source.lanesOf.get(group.rank), depths = new Map();
  const rows = lanes.map((lane, place) => {
    const { level, label, outer } = source.lanes[lane], isGroup = level !== "slice", thread = level === "call" ? label : "";
    // Sampled stacks get a short name, for which the label has room.
    const name = !isGroup ? label : thread.replace(/^thread (\d+), Python sampled$/, "sampled $1") || level, kin = `${level} ${label}`, key = `${kin} ${outer}`, depth = isGroup ? (depths.get(key) || 0) + 1 : 0;
    depths.set(key, depth);
    return { source, group, lane, place, name, kin, isGroup, isEmpty: false, thread, outer, depth, pinned };
  });
  return rows;
}

export class Rows {
  constructor(timeline) {
    Object.assign(this, { timeline, all: [], scroll: 0, pinnedCount: 0, pinnedHeight: 0, restHeight: 0, laneHeight: USUAL.lane });
    Object.assign(this, ALL_ROWS);
  }

  /* Build all rows. Rows of pinned ranks come first, as they stay visible. The rows of compared runs follow the rows of the
     same rank. */
  arrange() {
    const { sources, settings, holder } = this.timeline;
    const pinned = ranksOf(settings.pinned) || new Set(), listed = sources.map((source) => groupsOf(source, settings));
    const byRank = listed.map((groups) => new Map(groups.map((group) => [group.rank, group]))), order = [...new Set(listed.flat().map((group) => group.rank))];
    this.all = [];
    for (const source of sources) { source.rowOf.fill(-1); }
    for (const rank of [...order.filter((each) => pinned.has(each)), ...order.filter((each) => !pinned.has(each))]) {
      byRank.forEach((groups, i) => { if (groups.has(rank)) { this.add(rowsOf(sources[i], groups.get(rank), pinned.has(rank))); } });
    }
    this.pinnedCount = this.all.filter((row) => row.pinned).length;
    this.fitHeight();
    holder.dataset.rows = this.all.length;
  }

  add(rows) {
    const [{ source, group }] = rows, lanes = source.lanesOf.get(group.rank).length;
    for (const row of rows) {
      for (const rank of group.ranks) {
        const own = source.lanesOf.get(rank) || [];
        if (own.length === lanes) { source.rowOf[own[row.place]] = this.all.length; }
      }
      this.all.push(row);
    }
  }

  /* Set the height of the rows to fit the canvas, and pass the total height of the rows to the style sheet. */
  fitHeight() {
    const { holder, panel, tools } = this.timeline, most = Math.max(MIN_HEIGHT, holder.offsetHeight + panel.element.offsetHeight - MIN_PANEL);
    const isResized = document.documentElement.style.getPropertyValue("--timeline-panel") !== "";
    tools.noteFolded(this.foldToFit(isResized ? holder.offsetHeight : most));
    const shown = this.all.filter((row) => !this.isFolded(row)), lanes = shown.filter((row) => !row.isGroup).length;
    const fixed = (shown.length - lanes) * this.least.group + TOP + BELOW;
    this.laneHeight = this.least.lane;
    if (lanes) { this.laneHeight = Math.max(this.least.lane, Math.min(TALLEST_LANE, Math.floor((most - fixed - GAP * lanes) / lanes))); }
    [this.pinnedHeight, this.restHeight] = [true, false].map((pinned) => this.stack(this.all.filter((row) => row.pinned === pinned)));
    // A gap separates the last pinned rank from the other ranks.
    if (this.pinnedHeight && this.restHeight) { this.pinnedHeight += GAP; }
    holder.style.setProperty("--rows-height", `${TOP + this.pinnedHeight + this.restHeight + BELOW}px`);
    this.scroll = Math.max(0, Math.min(this.scroll, this.mostScroll));
  }

  /* Fold rows until the rows of nodes of all ranks are in sight on a canvas that is *most* pixels high: host calls that last for
     the whole step, other host calls to a depth of three, then other nested rows, in shorter rows if necessary, and the
     remaining host calls at last. If that is impossible, only fold host calls to a depth of three. Return whether no host call
     has a row. */
  foldToFit(most) {
    Object.assign(this, ALL_ROWS);
    if (this.timeline.settings.fit) { return false; }
    const rows = this.all.slice(0, this.all.findLastIndex((row) => !row.thread) + 1).filter((row) => !this.isFolded(row));
    const ranks = new Set(rows.map((row) => row.group)).size;
    const deepest = (kept) => rows.filter((row) => kept(row) && !row.outer).reduce((depth, row) => Math.max(depth, row.depth), 0);
    const calls = deepest((row) => row.thread), nested = deepest((row) => !row.thread), last = Math.min(calls, LAST_CALLS);
    const fits = (choice) => {
      Object.assign(this, choice);
      const shown = rows.filter((row) => !this.isDeep(row)), groups = shown.filter((row) => row.isGroup).length;
      return TOP + BELOW + GAP * ranks + groups * choice.least.group + (shown.length - groups) * choice.least.lane <= most;
    };
    const down = (from, to, choice) => Array.from({ length: Math.max(0, from - to + 1) }, (_, i) => choice(from - i));
    const folded = { ...ALL_ROWS, outer: false };
    const choices = [
      folded, ...down(calls, last, (depth) => ({ ...folded, calls: depth })),
      ...[USUAL, SHORT].flatMap((least) => down(nested, 1, (depth) => ({ outer: false, calls: last, nested: depth, least }))),
      ...down(last - 1, 0, (depth) => ({ outer: false, calls: depth, nested: 1, least: SHORT })),
    ];
    Object.assign(this, choices.find(fits) || { ...folded, calls: last });
    return calls > 0 && this.calls === 0;
  }

  /* Set the top, height, label and line number of *rows*, and return the total height of the rows. The line number counts the
     rows of the same rank above a row. A label that repeats the label of the row above is empty. */
  stack(rows) {
    let at = 0, before = null;
    for (const row of rows) {
      row.top = at; row.height = 0;
      if (this.isFolded(row)) { continue; }
      const isSame = before && before.group === row.group && before.source === row.source;
      if (before && !isSame) { at += GAP; }
      row.top = at;
      row.height = row.isGroup ? this.least.group : this.laneHeight;
      row.line = isSame ? before.line + 1 : 0;
      row.label = isSame && row.isGroup && before.kin === row.kin ? "" : row.name;
      const hidden = row.label && row.isGroup ? rows.filter((each) => each.group === row.group && each.source === row.source && each.kin === row.kin && this.isDeep(each)).length : 0;
      if (hidden) { row.label = `${row.name} +${hidden}`; }
      at += row.height;
      before = row;
    }
    return at;
  }

  /* Return the greatest depth that is shown of rows such as *row*. */
  deepest(row) { return row.thread ? this.calls : this.nested; }

  isDeep(row) { return row.outer ? !this.outer : row.depth > this.deepest(row); }

  isFolded(row) { return this.isDeep(row) || (row.isEmpty && this.timeline.settings.empty !== ""); }

  /* Mark the rows of a source's visible *lanes* that are empty in the window; return whether a row has changed. */
  noteEmpty(source, lanes) {
    const { batch, shift } = source, { t0, t1 } = this.timeline.view, busy = new Set(), asked = new Set(lanes);
    for (let i = 0; i < batch.count; i++) {
      if (batch.end[i] + shift >= t0 && batch.start[i] + shift <= t1) { busy.add(batch.lane[i]); }
    }
    const changed = this.all.filter((row) => row.source === source && asked.has(row.lane) && row.isEmpty === busy.has(row.lane));
    for (const row of changed) { row.isEmpty = !row.isEmpty; }
    return changed.length > 0;
  }

  /* The y position of the top of the scrolling rows on the canvas. */
  get top() { return TOP + this.pinnedHeight; }
  get mostScroll() { return Math.max(0, this.restHeight + this.top + 8 - this.timeline.view.height); }

  scrollBy(pixels) {
    this.scroll = Math.max(0, Math.min(this.mostScroll, this.scroll + pixels));
    this.timeline.refresh();
  }

  /* Return the y position of the top of a row on the canvas. */
  y(row) { return row.pinned ? TOP + row.top : this.top + row.top - this.scroll; }

  /* Return the row that shows a lane of a source, even if the lane's rank is folded into another rank; null without a row. */
  of(source, lane) { return lane >= 0 && source.rowOf[lane] >= 0 ? this.all[source.rowOf[lane]] : null; }

  /* Return the index of the row at the y position of the canvas: -1 above all rows, the number of rows below all rows. */
  placeAt(y) {
    if (y < TOP) { return -1; }
    const fixed = y < this.top, low = fixed ? 0 : this.pinnedCount, high = fixed ? this.pinnedCount : this.all.length;
    const at = fixed ? y - TOP : y - this.top + this.scroll;
    for (let i = low; i < high; i++) { if (at < this.all[i].top + this.all[i].height) { return i; } }
    return high;
  }

  at(y) { return this.all[this.placeAt(y)]; }

  /* Return the lanes of a source whose rows are visible, or at most *margin* rows away from the visible rows. */
  lanesInSight(source, margin) {
    const room = margin * this.laneHeight, low = this.top - room, high = this.timeline.view.height + room;
    return this.all.filter((row) => row.source === source && !this.isDeep(row) && (row.pinned || (this.y(row) > low && this.y(row) < high))).map((row) => row.lane);
  }

  /* Return all ranks of a source that have a row, including folded ranks. */
  ranksOf(source) { return [...new Set(this.all.filter((row) => row.source === source).flatMap((row) => row.group.ranks))]; }

  /* Return one rank of each group of equal ranks that has a row in a source. */
  representatives(source) { return [...new Set(this.all.filter((row) => row.source === source).map((row) => row.group.rank))]; }

  /* Pin or unpin the ranks of a row, or hide or show the ranks. */
  toggle(setting, rank) {
    const ranks = ranksOf(this.timeline.settings[setting]) || new Set();
    if (!ranks.delete(rank)) { ranks.add(rank); }
    this.timeline.set(setting, rangesText(ranks));
  }

  has(setting, rank) { return (ranksOf(this.timeline.settings[setting]) || new Set()).has(rank); }
}
