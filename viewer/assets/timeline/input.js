/* Handles the mouse on the canvas (hover, click, drag, wheel) and the keys, and shows the box that lists the keys. */
import { button, element, list } from "./dom.js";
import { LABEL_WIDTH, OVERVIEW_HEIGHT } from "./rows.js";

const { durationText } = window.chakrascopeUnits;
const MIN_DRAG = 4;

export class Pointer {
  constructor(timeline) {
    // *at* is the position of the pointer, and *hovered* is the key of the slice under the pointer.
    // *quiet* is the key of a slice whose tooltip stays closed.
    Object.assign(this, { timeline, at: null, hovered: "", quiet: null, drag: null, tip: element("div", null, "timeline-tip") });
    const { canvas, holder } = timeline;
    holder.appendChild(this.tip);
    canvas.addEventListener("pointerdown", (event) => this.down(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", (event) => this.up(event));
    canvas.addEventListener("pointerleave", () => { this.at = null; this.hovered = ""; this.tip.style.display = "none"; });
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
  }

  /* Return the row, the batch and the index of the slice at a point of the canvas; null if no slice is there. */
  hit(x, y) {
    const { rows, view } = this.timeline, row = rows.at(y);
    if (!row || !row.source.batch || x < LABEL_WIDTH) { return null; }
    const { batch } = row.source, t = view.t(x) - row.source.shift;
    let best = -1, nearest = 2 / view.scale;
    for (let i = 0; i < batch.count; i++) {
      if (batch.lane[i] !== row.lane) { continue; }
      const gap = Math.max(batch.start[i] - t, t - batch.end[i], 0);
      if (gap < nearest || (gap === nearest && gap === 0)) { best = i; nearest = gap; }
    }
    return best < 0 ? null : { row, batch, i: best, rank: row.group.rank, node: batch.node[best] };
  }

  /* Close the tooltip and keep the tooltip closed until the pointer leaves the slice. */
  hideTip() {
    this.quiet = this.hovered;
    this.tip.style.display = "none";
  }

  async hover(x, y) {
    const { timeline, tip } = this, { canvas, rows, view } = timeline, hit = this.hit(x, y);
    const key = hit ? `${timeline.sources.indexOf(hit.row.source)}:${hit.row.lane}:${hit.i}:${hit.node}` : "";
    canvas.style.cursor = x < LABEL_WIDTH && rows.at(y) ? "pointer" : "";
    if (key !== this.hovered) {
      this.hovered = key; this.quiet = null;
      tip.style.display = "none";
      if (!hit) { return; }
      const node = await timeline.details(hit.row.source, hit.rank, hit.node);
      if (!node || this.hovered !== key || this.quiet === key) { return; }
      tip.textContent = tipText(hit, Object.fromEntries(node.details));
    } else if (!hit || this.quiet === key || !tip.textContent) { return; }
    tip.style.display = "block";
    tip.style.left = `${Math.max(0, Math.min(x + 14, canvas.clientWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${Math.max(0, Math.min(y + 14, view.height - tip.offsetHeight - 4))}px`;
  }

  click(x, y, shift) {
    const { timeline, timeline: { rows } } = this, row = rows.at(y), hit = this.hit(x, y);
    this.hideTip();
    if (row && x < LABEL_WIDTH) { rows.toggle(shift ? "hidden" : "pinned", row.group.rank); return; }
    if (hit && hit.row.isGroup) { this.markGroup(hit); return; }
    if (hit) { timeline.choose(hit.row.source, hit.rank, hit.node); }
  }

  /* Mark the time of a group of slices, such as a module, and sum up the slices in this time. */
  markGroup({ row, batch, i }) {
    const { timeline } = this, { shift } = row.source;
    const isBelow = (each) => (row.thread ? each.thread === row.thread && each.place >= row.place : !each.thread);
    const below = timeline.rows.all.filter((each) => each.source === row.source && each.group === row.group && isBelow(each));
    timeline.mark(batch.start[i] + shift, batch.end[i] + shift, below);
    timeline.measure();
  }

  /* Mark the area between two points of the canvas: a time interval on some rows. */
  markBetween(from, to) {
    const { rows, view } = this.timeline, ordered = (a, b) => a - b;
    const times = [view.t(from.x), view.t(to.x)].sort(ordered), places = [rows.placeAt(from.y), rows.placeAt(to.y)].sort(ordered);
    this.timeline.mark(...times, rows.all.slice(Math.max(0, places[0]), places[1] + 1));
  }

  down(event) {
    const { canvas, view } = this.timeline, at = { x: event.offsetX, y: event.offsetY };
    canvas.focus(); canvas.setPointerCapture(event.pointerId);
    const does = at.y < OVERVIEW_HEIGHT ? "jumps" : at.x < LABEL_WIDTH ? "names" : event.shiftKey ? "measures" : "pans";
    this.drag = { ...at, from: at, does, moved: false };
    if (does === "jumps") { view.jump(at.x); }
  }

  move(event) {
    const { drag, timeline: { rows, view } } = this, at = { x: event.offsetX, y: event.offsetY };
    this.at = at;
    if (!drag) { this.hover(at.x, at.y); return; }
    const dx = drag.x - at.x, dy = drag.y - at.y;
    if (!drag.moved && Math.abs(dx) + Math.abs(dy) < MIN_DRAG) { return; }
    this.hideTip();
    if (drag.does === "measures") { this.markBetween(drag.from, at); }
    else if (drag.does === "jumps") { view.jump(at.x); }
    else { if (drag.does === "pans") { view.pan(dx); } rows.scrollBy(dy); }
    Object.assign(drag, at, { moved: true });
  }

  up(event) {
    const { drag } = this;
    this.drag = null;
    if (drag && drag.does === "measures" && drag.moved) { this.timeline.measure(); }
    else if (drag && !drag.moved && drag.does !== "jumps") { this.click(event.offsetX, event.offsetY, event.shiftKey); }
  }

  wheel(event) {
    const { rows, view } = this.timeline;
    event.preventDefault();
    this.hideTip();
    if (event.ctrlKey || event.metaKey) { view.zoom(Math.exp(event.deltaY * 0.002), event.offsetX); }
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) { view.pan(event.deltaX || event.deltaY); }
    else { rows.scrollBy(event.deltaY); }
  }
}

function tipText({ row, batch, i }, facts) {
  const merged = batch.merged[i], span = durationText(batch.end[i] - batch.start[i]);
  if (row.thread) { return `${batch.name[i] >= 0 ? batch.names[batch.name[i]] : "calls"} · ${span}`; }
  if (row.isGroup) { return [batch.name[i] >= 0 ? batch.names[batch.name[i]] : row.label, span, `longest in it: ${facts.Name}`].join(" · "); }
  const times = row.source.measured ? `measured ${facts.Measured}` : facts.Simulated;
  return [facts.Name, times, facts.Cause, facts.Module].filter(Boolean).join(" · ") + (merged > 1 ? ` · longest of ${merged} here` : "");
}

/* The keys of the timeline, and the help box that lists the keys. */
const ZOOM = 0.7;
const pointed = ({ pointer: { at } }) => (at && at.x > LABEL_WIDTH ? at.x : undefined);
const zoom = (factor) => (timeline) => timeline.view.zoom(factor, pointed(timeline));
const pan = (way) => ({ view }) => view.pan((way * view.width) / 6);
const scroll = (way) => ({ rows }) => rows.scrollBy(3 * way * rows.laneHeight);
const walk = (way) => (timeline) => timeline.next(() => timeline.selection.walk(way));
const step = (way) => (timeline) => timeline.next(() => timeline.selection.step(way));

// Rows of the help box: the names of keys, their effect, and the action of each key.
const KEYS = [
  ["W, S", "zoom in or out at the pointer, also with Ctrl and the wheel", { w: zoom(ZOOM), s: zoom(1 / ZOOM) }],
  ["A, D, ←, →", "move in time, also by dragging", { a: pan(-1), d: pan(1), ArrowLeft: pan(-1), ArrowRight: pan(1) }],
  ["↑, ↓", "scroll through the ranks, also with the wheel", { ArrowUp: scroll(-1), ArrowDown: scroll(1) }],
  ["F", "fit the selection or the marked area; press again to fit the whole step", { f: ({ selection }) => selection.fit() }],
  ["M", "mark the time of the selected slice, and sum up the slices in it", { m: (timeline) => timeline.markSelected() }],
  ["Shift and drag", "mark an area, and sum up its slices by name", {}],
  ["/", "search; Enter and Shift+Enter, or N and Shift+N, step through the matches", {
    "/": ({ search }) => search.focus(), n: (timeline, event) => timeline.next(() => timeline.search.step(event.shiftKey ? -1 : 1)),
  }],
  [", and .", "select the previous or next slice of the row", { ",": step(-1), ".": step(1) }],
  ["[ and ]", "select the cause of the selected node, or go back", { "[": walk(-1), "]": walk(1) }],
  ["H", "select the host work that the selected slice waited for; ] goes back", { h: (timeline) => timeline.next(() => timeline.selection.toHost()) }],
  ["T", "write a note on the marked area or the selection", { t: ({ notes }) => notes.write() }],
  ["P", "show or hide the critical path", { p: (timeline) => { timeline.showPath = !timeline.showPath; timeline.draw(); } }],
  ["Click on a rank's name", "pin the rank at the top; with Shift, hide it", {}],
  ["Esc", "close this help, remove the marked area, or end the search", { Escape: (timeline) => timeline.escape() }],
  ["?", "this help", { "?": ({ help }) => help.toggle() }],
];
const ACTIONS = Object.assign({}, ...KEYS.map(([, , actions]) => actions));

export function press(timeline, event) {
  if (event.ctrlKey || event.metaKey || event.altKey || !timeline.isLoaded) { return; }
  const action = ACTIONS[event.key] || ACTIONS[event.key.toLowerCase()];
  if (action) { event.preventDefault(); timeline.pointer.hideTip(); action(timeline, event); }
}

export class Help {
  constructor(timeline) {
    this.timeline = timeline;
    this.box = element("div", null, "timeline-keys", { id: "timeline-keys", tabIndex: -1 });
    this.box.setAttribute("role", "dialog"); this.box.setAttribute("aria-label", "Keys of the timeline");
    this.box.append(element("h3", "Keys of the timeline"), list(KEYS), button("Close", () => this.toggle()));
    this.box.addEventListener("keydown", (event) => {
      if (event.key === "Escape" || event.key === "?") { event.preventDefault(); event.stopPropagation(); this.toggle(); }
    });
    const opener = document.getElementById("timeline-help-open");
    if (opener) { opener.onclick = () => this.toggle(); }
  }

  get isOpen() { return this.box.isConnected; }

  toggle() {
    if (this.isOpen) { this.box.remove(); this.timeline.focus(); return; }
    this.timeline.holder.parentElement.append(this.box);
    this.box.focus();
  }
}
