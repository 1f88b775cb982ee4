/* The search of the timeline: it marks what it finds, and steps through it. */
import { button, element } from "./dom.js";
import { rangesText } from "./ranks.js";
import { ask } from "./server.js";

const FIND_DELAY_MS = 200;

export class Search {
  constructor(timeline) {
    // *hits* are how many there are and which is shown, null until the server has answered.
    Object.assign(this, { timeline, hits: null, timer: 0 });
    this.input = element("input", null, "timeline-input", { id: "timeline-find", type: "search", placeholder: "search ( / )", autocomplete: "off", spellcheck: false });
    this.input.setAttribute("aria-label", "Search the timeline");
    this.input.addEventListener("input", () => { clearTimeout(this.timer); this.timer = setTimeout(() => this.seek(this.input.value.trim()), FIND_DELAY_MS); });
    this.input.addEventListener("keydown", (event) => this.key(event));
    this.count = element("span", "", "timeline-found", { id: "timeline-found", role: "status" });
    const arrow = (text, words, way) => button(text, () => timeline.next(() => this.step(way)), { title: words, ariaLabel: words });
    this.element = element("div", null, "timeline-find");
    this.element.append(this.input, arrow("‹", "previous hit", -1), arrow("›", "next hit", 1), this.count);
  }

  get text() { return this.timeline.settings.seek; }

  key(event) {
    if (event.key === "Enter") {
      event.preventDefault();
      clearTimeout(this.timer);
      this.timeline.next(() => this.step(event.shiftKey ? -1 : 1, this.input.value.trim()));
    } else if (event.key === "Escape") { event.preventDefault(); event.stopPropagation(); this.stop(); this.timeline.focus(); }
  }

  focus() { this.input.focus(); this.input.select(); }

  /* Show what the address searches for, but leave alone what somebody is typing. */
  shown() {
    if (this.input !== document.activeElement) { this.input.value = this.text; }
    if (this.text && !this.hits) { this.seek(this.text); }
  }

  /* Mark all that *text* finds, and show how many there are. */
  async seek(text) {
    const { timeline } = this;
    if (!timeline.isLoaded) { return; }
    timeline.settings.seek = text;
    this.hits = null;
    timeline.refresh();
    if (!text) { this.count.textContent = ""; delete timeline.holder.dataset.found; return; }
    const hits = await this.ask({});
    if (this.text === text && hits) { this.show({ ...hits, at: -1 }); }
  }

  ask(where) {
    const { rows, main } = this.timeline;
    return ask("seek", this.timeline.query({ seek: this.text, ranks: rangesText(rows.representatives(main)), ...where }));
  }

  /* Go to the next hit, or the one before; the first one is the first in the window. */
  async step(way, text) {
    const { timeline } = this;
    if (text !== undefined && text !== this.text) { await this.seek(text); }
    if (!this.text || !timeline.isLoaded) { return; }
    if (!this.hits) { await this.seek(this.text); }
    const isFirst = !this.hits || this.hits.at < 0, count = isFirst ? 0 : this.hits.count;
    const hits = await this.ask(isFirst ? { t0: Math.round(timeline.view.t0) } : { at: (this.hits.at + way + count) % Math.max(1, count) });
    if (!hits) { return; }
    this.show({ ...hits, at: hits.count ? hits.at : -1 });
    if (hits.count) { await timeline.selection.choose(hits.rank, hits.node); }
  }

  show(hits) {
    const { count, at, ranks } = hits, where = ranks ? ` in ${ranks} ranks` : "", number = (value) => value.toLocaleString("en");
    this.hits = hits;
    this.count.textContent = (count ? (at < 0 ? `${number(count)} found` : `${number(at + 1)} of ${number(count)}`) : "nothing found") + where;
    this.count.title = where ? "Large runs are searched a few ranks at a time: enter ranks under Ranks to search these." : "";
    this.timeline.holder.dataset.found = `${at + 1}/${count}`;
  }

  stop() {
    clearTimeout(this.timer);
    this.input.value = "";
    this.seek("");
  }
}
