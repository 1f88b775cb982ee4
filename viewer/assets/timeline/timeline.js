/* The timeline: creates its parts, loads the runs to show, and fetches the slices of visible rows. Each part has one concern
   and reaches the other parts through the timeline object. */
import { rangesText, readSettings, readWindow, reportAddress, writeAddress } from "./address.js";
import { Beside } from "./beside.js";
import { element } from "./dom.js";
import { Help, Pointer, press } from "./input.js";
import { Notes } from "./notes.js";
import { paint } from "./paint.js";
import { Panel } from "./panel.js";
import { Rows, View } from "./rows.js";
import { Area, Selection } from "./selection.js";
import { ask, askSlices, askSource } from "./server.js";
import { Search, Tools } from "./tools.js";

const FETCH_DELAY_MS = 90, ADDRESS_DELAY_MS = 150, ROWS_OF_MARGIN = 4;
// Settings whose changes need new data from the server.
const SERVER_SETTINGS = ["rows", "colour", "beside", "measured", "calls"];

class Timeline {
  constructor(holder) {
    const canvas = holder.querySelector("canvas");
    Object.assign(this, { holder, canvas, context: canvas.getContext("2d"), settings: readSettings() });
    Object.assign(this, { run: "", sources: [], area: null, showPath: true, sequence: 0, turn: Promise.resolve() });
    this.view = new View(canvas, () => this.refresh());
    this.rows = new Rows(this);
    this.selection = new Selection(this);
    this.pointer = new Pointer(this);
    this.notes = new Notes(this);
    this.panel = new Panel(this);
    this.search = new Search(this);
    this.tools = new Tools(this);
    this.beside = new Beside(this);
    this.help = new Help(this);
    this.problem = element("p", "", "timeline-problem");
    this.problem.setAttribute("role", "alert");
    this.listenWhileShown();
  }

  get isLoaded() { return this.sources.length > 0 && this.main.run === this.run; }
  get main() { return this.sources[0]; }
  get scheme() { return this.holder.dataset.scheme === "dark" ? "dark" : "light"; }

  /* Return the value of a setting that the page attribute of the same name provides by default: "1", "0" or "" (unknown). */
  choice(name) { return this.holder.dataset[name] && (this.settings[name] || this.holder.dataset[name]); }
  /* Whether the rows have measured times, which host calls need. */
  get showsMeasured() { return this.choice("measured") === "1"; }
  /* Whether host calls are shown, once the server has read them. */
  get wantsCalls() { return this.showsMeasured && this.choice("calls") === "1"; }
  get showsCalls() { return this.wantsCalls && (this.settings.calls === "1" || this.callsRead === this.run); }

  /* Return a query for the API. *measured* applies to the main run, whose colours other runs have. */
  query(more) {
    return new URLSearchParams({ run: this.run, main: this.run, measured: this.settings.measured, calls: this.showsCalls ? 1 : 0, nested: this.nested ? 1 : 0, ...more });
  }

  details(source, rank, node, flows) { return ask("node", this.query({ run: source.run, rank, node, flows: flows ? 1 : 0 })); }

  async load(run) {
    const isSame = this.isLoaded && this.run === run, load = {};
    this.run = run; this.current = load; this.holder.dataset.selected = "";
    const nested = { nested: 1, flat: 0 }[this.settings.rows], first = await this.source(run, nested === undefined ? "auto" : nested);
    const others = first ? await this.beside.sourcesOf(first) : [];
    if (load !== this.current || !first || !this.isShown) { return; }
    this.nested = first.nested;
    this.sources = [first, ...others];
    this.view.start = Math.min(...this.sources.map((source) => source.start_ns));
    this.view.makespan = Math.max(...this.sources.map((source) => source.makespan));
    this.overview = null;
    if (!isSame) { this.area = null; this.selection.key = ""; }
    this.beside.place();
    this.arrange();
    this.notes.load();
    const [t0, t1] = (!isSame && readWindow(run)) || [];
    if (isSame) { this.refresh(); } else if (t1 > t0) { this.view.window(t0, t1); } else { this.view.fit(); }
    if (this.selection.wanted) { this.selection.show(this.selection.wanted); }
    this.readCalls(run);
  }

  /* Make the server read the host calls in the background, and show the host calls once they are read. */
  async readCalls(run) {
    if (!this.wantsCalls || this.showsCalls || !this.nested || this.callsAsked === run) { return; }
    this.callsAsked = run;
    this.tools.noteCalls("(being read…)");
    const query = { run, measured: 1, calls: 1, nested: 1 }, found = await ask("lanes", new URLSearchParams(query));
    const lanes = found && found.lanes.some(({ level }) => level === "call") ? rangesText(found.lanes.map(({ lane }) => lane)) : "";
    if (lanes) { await askSlices(new URLSearchParams({ ...query, lanes, px: 1 })); }
    if (run !== this.run || !this.isShown) { return; }
    this.tools.noteCalls(!found ? "(the traces cannot be read)" : lanes ? "" : "(the traces have none)");
    if (lanes) { this.callsRead = run; }
    if (lanes && this.showsCalls) { this.next(() => this.loadAgain()); }
  }

  /* Whether the browser still shows the Timeline page; a late response must not change another page. */
  get isShown() { return this.holder.isConnected; }

  /* Request the lanes again, and keep the scroll position of the uppermost visible rank. */
  async loadAgain() {
    const { rows } = this, top = rows.all.find((row) => !row.pinned && rows.y(row) >= rows.top - row.height), y = top && rows.y(top);
    await this.load(this.run);
    const same = top && rows.all.find((row) => !row.pinned && row.group.rank === top.group.rank && row.place === top.place);
    if (same) { rows.scrollBy(rows.y(same) - y); }
  }

  /* Return the source of slices of a run, or null after an error, whose message is shown in place of the slices. */
  async source(run, nested) {
    try {
      const source = await askSource(run, this.query({ run, nested, colour: this.settings.colour }));
      this.problem.remove();
      return source;
    } catch (error) {
      this.problem.textContent = error.message;
      this.holder.append(this.problem);
      return null;
    }
  }

  /* Build the rows again, and update the tools and the panel. */
  arrange() {
    this.rows.arrange();
    this.tools.shown();
    this.search.shown();
    this.beside.shown();
    this.panel.showRanks();
    this.panel.showTab();
  }

  /* Change a setting of the timeline, and request new data if the setting needs new data. */
  set(name, value) {
    if (this.settings[name] === value) { return undefined; }
    this.settings[name] = value;
    this.writeSoon();
    if (SERVER_SETTINGS.includes(name)) { this.area = null; return this.load(this.run); }
    this.arrange();
    this.refresh();
    return undefined;
  }

  /* Restore the settings and the time window of the address after Back or Forward. */
  async restore() {
    const before = this.settings;
    this.settings = readSettings();
    if (SERVER_SETTINGS.some((name) => before[name] !== this.settings[name])) { this.area = null; await this.load(this.run); } else { this.arrange(); }
    const [t0, t1] = readWindow(this.run) || [];
    if (t1 > t0) { this.view.window(t0, t1); } else { this.refresh(); }
  }

  draw() { paint(this); }

  refresh() {
    this.draw();
    clearTimeout(this.fetching);
    this.fetching = setTimeout(() => this.fetch(), FETCH_DELAY_MS);
    this.writeSoon();
  }

  /* Write the address while the view changes, but report it to Dash, which asks the server, only after the last change. */
  writeSoon() {
    const later = (act) => setTimeout(() => { if (this.isShown) { act(); } }, ADDRESS_DELAY_MS);
    const write = () => { this.isUnreported = writeAddress(this.run, this.settings, this.view) || this.isUnreported; };
    this.writing ||= later(() => { this.writing = 0; write(); });
    clearTimeout(this.reporting);
    this.reporting = later(() => { write(); if (this.isUnreported) { this.isUnreported = false; reportAddress(); } });
  }

  /* Fetch the slices of the visible rows, with a margin of half a window before and after the window. */
  async fetch() {
    const sequence = ++this.sequence, { t0, t1, span, width } = this.view;
    const inSight = this.sources.map((source) => this.rows.lanesInSight(source, ROWS_OF_MARGIN));
    const batches = await Promise.all(this.sources.map(async (source, i) => {
      const lanes = inSight[i];
      return lanes.length ? askSlices(this.query({
        run: source.run, colour: this.settings.colour, lanes: rangesText(lanes), px: Math.round(2 * width),
        t0: Math.floor(t0 - source.shift - span / 2), t1: Math.ceil(t1 - source.shift + span / 2), ...(this.settings.seek ? { seek: this.settings.seek } : {}),
      })) : null;
    }));
    if (sequence !== this.sequence || !this.isShown) { return; }
    // In a large run, the number of a rank's lanes is known only once the rank is read. A new edition has other lanes.
    if (this.sources.some((source, i) => batches[i] && batches[i].edition !== source.edition)) { this.loadAgain(); return; }
    this.sources.forEach((source, i) => { source.batch = batches[i] || source.batch; });
    const isNews = this.sources.filter((source, i) => batches[i] && this.rows.noteEmpty(source, inSight[i])).length > 0;
    // Folding or unfolding rows changes the height of the other rows.
    if (isNews && this.settings.empty) { this.rows.fitHeight(); this.refresh(); return; }
    this.draw();
    this.holder.dataset.slices = batches.reduce((sum, batch) => sum + (batch ? batch.count : 0), 0);
  }

  /* Select a slice. For a slice of a compared run, which other pages do not show, only show the details. */
  async choose(source, rank, node) {
    if (source === this.main) { this.selection.choose(rank, node); return; }
    const found = await this.details(source, rank, node, true);
    if (found && this.isShown) { this.panel.showDetails([["Of", source.name], ...found.details]); }
  }

  mark(t0, t1, rows) {
    this.area = new Area(this, t0, t1, rows);
    this.draw();
  }

  markSelected() {
    const { node } = this.selection;
    if (node && node.lane >= 0) { this.mark(node.start_ns, node.end_ns, this.rows.all); this.measure(); }
  }

  /* Request the summary of the marked area and show the summary in the panel. */
  async measure() {
    const { area } = this, parts = await area.measure();
    if (area === this.area && this.isShown) { this.panel.showArea(parts); }
  }

  escape() {
    if (this.help.isOpen) { this.help.toggle(); }
    else if (this.area) { this.area = null; this.draw(); }
    else if (this.settings.seek) { this.search.stop(); }
  }

  /* Queue an action, so that fast key presses act in order; a failed action does not stop the following actions. */
  next(act) { this.turn = this.turn.then(act).catch(() => undefined); }

  focus() { this.canvas.focus({ preventScroll: true }); }

  /* Handle key presses anywhere on the page, except in text fields and dialogs, until the user leaves the page. */
  listenWhileShown() {
    const isTyping = (target) => target instanceof Element && target.closest("input, textarea, select, [contenteditable], [role='dialog'], [role='listbox']");
    const ends = new AbortController(), resize = new ResizeObserver(() => { if (this.isLoaded) { this.rows.fitHeight(); this.refresh(); } });
    const listen = (target, name, act) => target.addEventListener(name, (event) => {
      if (this.isShown) { act(event); } else { ends.abort(); resize.disconnect(); }
    }, { signal: ends.signal });
    listen(document, "keydown", (event) => { if (!event.defaultPrevented && !isTyping(event.target)) { press(this, event); } });
    listen(window, "scroll", () => this.pointer.hideTip());
    listen(window, "popstate", (event) => { if (event.isTrusted && this.isLoaded && isOnTimeline()) { this.next(() => this.restore()); } });
    for (const pane of [this.holder, this.panel.element]) { resize.observe(pane); }
  }
}

const isOnTimeline = () => window.location.pathname.endsWith("/timeline");

/* Return whether the address has a newer selection than *selection*, which comes from the server. */
function isOld(selection) {
  const query = new URLSearchParams(window.location.search), rank = query.get("rank");
  return Boolean(selection && selection.node >= 0 && rank !== null && (Number(rank) !== selection.rank || Number(query.get("node")) !== selection.node));
}

/* Show a run and the selected node on the Timeline page. */
export function show(run, selection) {
  const holder = document.getElementById("timeline");
  if (!holder || !run) { return; }
  holder.timeline = holder.timeline || new Timeline(holder);
  const { timeline } = holder;
  if (timeline.run !== run) { timeline.load(run); } else { timeline.draw(); }
  if (!isOld(selection)) { timeline.selection.show(selection); }
}
