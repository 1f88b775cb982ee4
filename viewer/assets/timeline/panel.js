/* The panel below the timeline: the selected slice or marked area, the ranks, arrivals, notes. */
import { showArrivals } from "./arrivals.js";
import { button, element, exportLinks, list, table } from "./dom.js";
import { ranksText } from "./ranks.js";
import { ORDERS } from "./rows.js";

const { durationText } = window.chakrascopeUnits;
const TABS = { details: "Details", ranks: "Ranks", arrivals: "Arrivals", stacks: "Host calls", notes: "Notes" };
const MOST_GROUPS = 300;

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

  /* Fill in the tab that is open, if it follows what the timeline shows. */
  showTab() {
    if (!this.timeline.isLoaded) { return; }
    if (this.tab === "arrivals") { showArrivals(this.timeline, this.part("arrivals")); }
    if (this.tab === "stacks") { this.askStacks(); }
    if (this.tab === "notes") { this.timeline.notes.show(); }
  }

  /* Show *details*, and as links what the selected *node*, if it is one, waits for, and what waits for it. */
  showDetails(details, node) {
    const out = this.part("details");
    out.replaceChildren(list(details, "details"), ...(node ? this.neighbours(node) : []));
    delete out.dataset.area;
    // These tabs follow the selection.
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
      return near.length ? [element("h3", title, "side-title"), items] : [];
    });
  }

  /* Select a node in place, unless a key asks the browser for another tab. */
  follow(event, rank, node) {
    if (event.ctrlKey || event.metaKey || event.shiftKey) { return; }
    event.preventDefault();
    this.timeline.next(() => this.timeline.selection.choose(rank, node));
  }

  /* Ask for the host calls in what is marked, or else of the selected slice as measured, or else in the window: a callback of
     the page draws them. */
  askStacks() {
    const { area, notes, rows, run, main, selection: { node } } = this.timeline, subject = notes.subject();
    const [t0, t1] = !area && node && node.measured ? node.measured : [subject.t0, subject.t1];
    const ranks = area ? [...new Set(area.rows().map((row) => row.group.rank))] : node ? [node.rank] : rows.representatives(main);
    window.dash_clientside.set_props("timeline-stacks-asked", { data: { run, ranks, t0: Math.max(0, t0), t1: Math.max(t0 + 1, t1) } });
  }

  showArea(parts) {
    const out = this.part("details");
    out.replaceChildren(...parts);
    out.dataset.area = "yes";
    this.open(this.tab === "stacks" ? "stacks" : "details");
  }

  /* List the ranks: those that did the same as one, with what they are sorted by; pin, hide, show again. */
  showRanks() {
    const { main, run, settings } = this.timeline, out = this.part("ranks");
    const focused = out.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    const column = ORDERS[settings.order], groups = [...main.groups];
    if (column) { groups.sort((a, b) => b.facts[column] - a.facts[column]); }
    const ranks = table(
      ["Ranks", "Finish", "Exposed communication", "Waiting for others", "Pin or hide"], [1, 2, 3], groups.slice(0, MOST_GROUPS),
      (group) => [rankWords(group), ...Object.values(ORDERS).map((name) => durationText(group.facts[name])), this.rankButtons(group.rank)],
    );
    const more = groups.length > MOST_GROUPS ? [element("p", `and ${groups.length - MOST_GROUPS} more; choose which with "Ranks"`)] : [];
    out.replaceChildren(exportLinks("standings", new URLSearchParams({ run })), ranks, ...more);
    const again = focused && out.querySelector(`[data-key="${focused}"]`);
    if (again) { again.focus(); }
  }

  rankButtons(rank) {
    const { rows } = this.timeline, both = element("span");
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
