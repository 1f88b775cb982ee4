"use strict";
/* The timeline's controls: search, rows, colours, order and choice of ranks, the run beside, and help with the keys. */
(function () {
  const { TimelinePanel, element, ranksOf, rangesText } = window.chakrascopeTimeline;
  const FIND_DELAY_MS = 200;
  const CHOICES = {
    rows: ["Rows", { "": "as fits", nested: "nested", flat: "streams" }],
    colour: ["Colour", { kind: "kind", operator: "operator", module: "module", stream: "stream" }],
    order: ["Ranks by", { rank: "number", finish: "finish", exposed: "exposed comm.", waiting: "waiting" }],
  };
  const KEYS = [
    ["W, S", "zoom in, out at the pointer; Ctrl and wheel do so too"], ["A, D, ←, →", "move in time; drag does so too"], ["↑, ↓", "other ranks; the wheel does so too"],
    ["F", "fit what is selected or marked; again: the whole step"], ["M", "mark the time of the selected slice, and sum up what is in it"],
    ["Shift and drag", "mark an area, and sum up its slices by name"], ["/", "search; Enter and Shift+Enter, or N and Shift+N, step through what is found"],
    [", and .", "the slice before and after in its row"], ["[ and ]", "walk to the node that let the selected one start, and back"],
    ["T", "write a note on what is marked or selected"], ["P", "critical path on, off"], ["Click on a rank's name", "pin it on top; with Shift: hide it"], ["Esc", "close, unmark, stop searching"], ["?", "this help"],
  ];

  class TimelineTools extends TimelinePanel {
    constructor(holder) {
      super(holder);
      const out = document.getElementById("timeline-tools");
      if (!out) { return; }
      this.controls = {};
      const choices = Object.entries(CHOICES).map(([name, [title, options]]) => this.choice(name, title, options));
      out.replaceChildren(this.finder(), ...choices, this.rankFilter(), this.folding());
      const help = document.getElementById("timeline-help-open");
      if (help) { help.onclick = () => this.toggleHelp(); }
      this.showTools();
    }

    labelled(title, control) {
      const label = element("label", `${title} `, "timeline-control");
      label.append(control);
      return label;
    }

    choice(name, title, options) {
      const select = element("select", null, "timeline-input", { id: `timeline-${name}`, onchange: () => { this.set(name, select.value); this.canvas.focus({ preventScroll: true }); } });
      for (const [value, text] of Object.entries(options)) { select.append(element("option", text, "", { value })); }
      this.controls[name] = select;
      return this.labelled(title, select);
    }

    rankFilter() {
      const input = element("input", null, "timeline-input timeline-ranks", { id: "timeline-filter", type: "text", placeholder: "all", title: "such as 0-3, 16" });
      input.addEventListener("input", () => {
        const isRead = !input.value.trim() || ranksOf(input.value) !== null;
        input.setAttribute("aria-invalid", String(!isRead));
        if (isRead) { this.set("ranks", input.value.trim()); }
      });
      this.controls.ranks = input;
      return this.labelled("Ranks", input);
    }

    folding() {
      const box = element("input", null, "", { id: "timeline-same", type: "checkbox", onchange: () => this.set("same", box.checked ? "" : "apart") });
      this.controls.same = box;
      const label = element("label", null, "timeline-control");
      label.append(box, " fold equal ranks");
      return label;
    }

    finder() {
      const group = element("div", null, "timeline-find"), input = element("input", null, "timeline-input", { id: "timeline-find", type: "search", placeholder: "search ( / )", autocomplete: "off", spellcheck: false });
      input.setAttribute("aria-label", "Search the timeline");
      input.addEventListener("input", () => { clearTimeout(this.finding); this.finding = setTimeout(() => this.seek(input.value.trim()), FIND_DELAY_MS); });
      input.addEventListener("keydown", (event) => {
        if (event.key === "Enter") { event.preventDefault(); clearTimeout(this.finding); this.next(() => this.seekNext(event.shiftKey ? -1 : 1, input.value.trim())); }
        else if (event.key === "Escape") { event.preventDefault(); event.stopPropagation(); this.stopSeeking(); this.canvas.focus({ preventScroll: true }); }
      });
      const step = (text, words, direction) => element("button", text, "timeline-button", { type: "button", title: words, ariaLabel: words, onclick: () => this.next(() => this.seekNext(direction)) });
      this.found = element("span", "", "timeline-found", { id: "timeline-found", role: "status" });
      this.controls.seek = input;
      group.append(input, step("‹", "previous hit", -1), step("›", "next hit", 1), this.found);
      return group;
    }

    /* Show in the controls what is set, but leave alone what somebody is typing into. */
    showTools() {
      for (const [name, control] of Object.entries(this.controls || {})) {
        if (control === document.activeElement && control.type !== "checkbox") { continue; }
        if (control.type === "checkbox") { control.checked = this.settings[name] !== "apart"; } else { control.value = this.settings[name]; }
      }
      this.showLegend();
      if (this.isLoaded && this.settings.seek && !this.hits) { this.seek(this.settings.seek); }
    }

    showLegend() {
      const out = document.getElementById("timeline-legend");
      if (!out || !this.main) { return; }
      const items = this.main.legend.map(([name, colour]) => {
        const item = element("span", null, "legend-item"), box = element("i");
        box.style.background = colour;
        item.append(box, name.length > 40 ? `${name.slice(0, 39)}…` : name);
        return item;
      });
      const more = this.main.more ? [element("span", `and ${this.main.more.toLocaleString("en")} more, whose colours repeat these`, "legend-item")] : [];
      out.replaceChildren(...items, ...more);
    }

    focusFind() { const input = this.controls.seek; input.focus(); input.select(); }

    /* Mark all that *text* finds, and say how many there are. */
    async seek(text) {
      if (!this.isLoaded) { return; }
      this.settings.seek = text;
      this.hits = null;
      this.refresh();
      if (!text) { this.found.textContent = ""; delete this.holder.dataset.found; return; }
      const hits = await this.askHits({});
      if (this.settings.seek === text && hits) { this.hits = { ...hits, at: -1 }; this.showHits(); }
    }

    async askHits(where) {
      const query = this.query({ seek: this.settings.seek, ranks: rangesText(this.representatives()), ...where });
      const reply = await fetch(`./api/seek?${query}`);
      return reply.ok ? reply.json() : null;
    }

    /* Go to the next thing found, or the one before; the first one is the first in the window. */
    async seekNext(direction, text) {
      if (text !== undefined && text !== this.settings.seek) { await this.seek(text); }
      if (!this.settings.seek || !this.isLoaded) { return; }
      if (!this.hits) { await this.seek(this.settings.seek); }
      const isFirst = !this.hits || this.hits.at < 0, at = isFirst ? { t0: Math.round(this.t0) } : { at: (this.hits.at + direction + this.hits.count) % Math.max(1, this.hits.count) };
      const hits = await this.askHits(at);
      if (!hits) { return; }
      this.hits = { ...hits, at: hits.count ? hits.at : -1 };
      this.showHits();
      if (hits.count) { await this.choose(hits.rank, hits.node); }
    }

    showHits() {
      const { count, at, ranks } = this.hits, where = ranks ? ` in ${ranks} ranks` : "";
      const found = count ? (at < 0 ? `${count.toLocaleString("en")} found` : `${(at + 1).toLocaleString("en")} of ${count.toLocaleString("en")}`) : "nothing found";
      this.found.textContent = found + where;
      this.found.title = where ? "So many nodes are searched a few ranks at a time: name ranks under Ranks to search these." : "";
      this.holder.dataset.found = `${at + 1}/${count}`;
    }

    stopSeeking() {
      clearTimeout(this.finding);
      this.controls.seek.value = "";
      this.seek("");
    }

    escape() {
      if (this.help && this.help.isConnected) { this.toggleHelp(); }
      else if (this.area) { this.area = null; this.draw(); }
      else if (this.settings.seek) { this.stopSeeking(); }
    }

    toggleHelp() {
      if (this.help && this.help.isConnected) { this.help.remove(); this.canvas.focus({ preventScroll: true }); return; }
      const box = element("div", null, "timeline-keys", { id: "timeline-keys", tabIndex: -1 }), pairs = element("dl");
      box.setAttribute("role", "dialog"); box.setAttribute("aria-label", "Keys of the timeline");
      for (const [keys, what] of KEYS) {
        const pair = element("div");
        pair.append(element("dt", keys), element("dd", what));
        pairs.append(pair);
      }
      box.append(element("h3", "Keys of the timeline"), pairs, element("button", "Close", "timeline-button", { type: "button", onclick: () => this.toggleHelp() }));
      box.addEventListener("keydown", (event) => { if (event.key === "Escape" || event.key === "?") { event.preventDefault(); event.stopPropagation(); this.toggleHelp(); } });
      this.help = box;
      this.holder.parentElement.append(box);
      box.focus();
    }
  }

  Object.assign(window.chakrascopeTimeline, { TimelineTools });
})();
