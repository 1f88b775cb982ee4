/* The selected slice, steps from it to others, and what does the same in the run beside. */
import { ask } from "./server.js";
import { LABEL_WIDTH } from "./view.js";

const SLIGHT = 0.02;

export class Selection {
  constructor(timeline) { Object.assign(this, { timeline, node: null, key: "", wanted: null, trail: [] }); }

  /* Select a node on every page: the selection lives in the address. */
  choose(rank, node) {
    const query = new URLSearchParams(window.location.search);
    query.set("run", this.timeline.run);
    query.set("rank", rank);
    query.set("node", node);
    window.dash_clientside.set_props("url", { search: `?${query}` });
    return this.show({ rank, node });
  }

  /* Show what the address selects; before the run is loaded, it waits until then. */
  async show(selection) {
    const { timeline } = this, { dataset } = timeline.holder;
    this.wanted = selection;
    if (!timeline.isLoaded) { return; }
    const key = selection && selection.node >= 0 ? `${selection.rank}:${selection.node}` : "";
    if (key && key === dataset.selected) { timeline.draw(); return; }
    if (!key) { this.node = null; this.key = ""; dataset.selected = ""; timeline.draw(); return; }
    const node = await timeline.details(timeline.main, selection.rank, selection.node, true);
    if (!this.wanted || key !== `${this.wanted.rank}:${this.wanted.node}` || !timeline.isShown) { return; }
    // The rows may have been made anew under it: what was marked since stays, and so does the window.
    const isNew = key !== this.key;
    if (isNew) { timeline.area = null; }
    this.node = node; this.key = key;
    if (node && !timeline.area) { timeline.panel.showDetails(node.details, node); }
    if (node && isNew) { this.reveal(node); }
    dataset.selected = node ? key : "";
    timeline.draw();
    await this.findCounterparts(node);
  }

  /* Bring the selected slice into sight: a rank that is hidden or filtered out is shown again. */
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

  /* Find what does the same in each run or step beside, and show how much longer it takes there. */
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

  /* Fit what is marked or selected; if that is shown already, everything. */
  fit() {
    const { area, view } = this.timeline, { node } = this;
    const chosen = area || (node && node.lane >= 0 ? { t0: node.start_ns, t1: node.end_ns } : null);
    if (!chosen) { view.fit(); return; }
    const span = Math.max(chosen.t1 - chosen.t0, 20), wanted = [chosen.t0 - 0.1 * span, chosen.t0 + 1.1 * span];
    const isShown = Math.abs(view.t0 - wanted[0]) < SLIGHT * span && Math.abs(view.t1 - wanted[1]) < SLIGHT * span;
    if (isShown) { view.fit(); } else { view.window(...wanted); }
  }

  /* Go to the node whose end let the selected one start, or back along the trail of such steps. */
  walk(direction) {
    const { node } = this;
    if (!node) { return undefined; }
    if (direction > 0) {
      const next = this.trail.pop();
      return next ? this.choose(next.rank, next.node) : undefined;
    }
    return this.back(node.cause);
  }

  /* Go to the host work at the end of the chain of nodes that let the selected one start. */
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

  /* Select the next slice of the row, or the one before; the first of the window if none is selected. */
  step(direction) {
    const { main, rows, view } = this.timeline, { batch } = main, { node } = this;
    if (!batch) { return undefined; }
    const own = node ? rows.of(main, node.lane) : rows.all.find((row) => row.source === main && !row.isGroup && !row.measured);
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
