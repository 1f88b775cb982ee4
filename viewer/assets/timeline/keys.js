/* The keys of the timeline, and the box that lists them. */
import { button, element, list } from "./dom.js";
import { LABEL_WIDTH } from "./view.js";

const ZOOM = 0.7;
const pointed = ({ pointer: { at } }) => (at && at.x > LABEL_WIDTH ? at.x : undefined);
const zoom = (factor) => (timeline) => timeline.view.zoom(factor, pointed(timeline));
const pan = (way) => ({ view }) => view.pan((way * view.width) / 6);
const scroll = (way) => ({ rows }) => rows.scrollBy(3 * way * rows.laneHeight);
const walk = (way) => (timeline) => timeline.next(() => timeline.selection.walk(way));
const step = (way) => (timeline) => timeline.next(() => timeline.selection.step(way));

// What the box lists: the keys as people know them, what they do, and each key's action.
const KEYS = [
  ["W, S", "zoom in, out at the pointer; Ctrl and wheel do so too", { w: zoom(ZOOM), s: zoom(1 / ZOOM) }],
  ["A, D, ←, →", "move in time; drag does so too", { a: pan(-1), d: pan(1), ArrowLeft: pan(-1), ArrowRight: pan(1) }],
  ["↑, ↓", "other ranks; the wheel does so too", { ArrowUp: scroll(-1), ArrowDown: scroll(1) }],
  ["F", "fit the selection or mark; again: the whole step", { f: ({ selection }) => selection.fit() }],
  ["M", "mark the time of the selected slice, and sum up its content", { m: (timeline) => timeline.markSelected() }],
  ["Shift and drag", "mark an area, and sum up its slices by name", {}],
  ["/", "search; Enter and Shift+Enter, or N and Shift+N, step through the hits", {
    "/": ({ search }) => search.focus(), n: (timeline, event) => timeline.next(() => timeline.search.step(event.shiftKey ? -1 : 1)),
  }],
  [", and .", "the slice before and after in its row", { ",": step(-1), ".": step(1) }],
  ["[ and ]", "walk to the node that let the selected one start, and back", { "[": walk(-1), "]": walk(1) }],
  ["H", "to the host work that the selected slice waited for; ] goes back", { h: (timeline) => timeline.next(() => timeline.selection.toHost()) }],
  ["T", "write a note on the mark or selection", { t: ({ notes }) => notes.write() }],
  ["P", "critical path on, off", { p: (timeline) => { timeline.showPath = !timeline.showPath; timeline.draw(); } }],
  ["Click on a rank's name", "pin it on top; with Shift: hide it", {}],
  ["Esc", "close, unmark, stop searching", { Escape: (timeline) => timeline.escape() }],
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
