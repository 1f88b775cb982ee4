"use strict";
/* The box that finds modules, operators and nodes. What is typed stays in the browser; answers that come late are dropped. */
(function () {
  const PAUSE_MS = 120, GROUPS = { module: "Modules", operator: "Operators", node: "Nodes" };
  let timer = 0, asked = 0, hits = [], active = -1, run = "";

  const byId = (name) => document.getElementById(name);
  const field = () => byId("node-search"), list = () => byId("search-hits");
  const { durationText } = window.chakrascopeUnits;
  const counted = (count, noun) => `${count.toLocaleString("en-US")} ${noun}${count === 1 ? "" : "s"}`;

  function show(open) {
    const box = field();
    list().hidden = !open;
    box.setAttribute("role", "combobox");
    box.setAttribute("aria-controls", "search-hits");
    box.setAttribute("aria-autocomplete", "list");
    box.setAttribute("aria-expanded", String(open));
    if (!open) { mark(-1); }
  }

  function mark(place) {
    active = place;
    const options = [...list().querySelectorAll("[role=option]")];
    options.forEach((option, at) => option.setAttribute("aria-selected", String(at === place)));
    if (place < 0) { field().removeAttribute("aria-activedescendant"); return; }
    field().setAttribute("aria-activedescendant", options[place].id);
    options[place].scrollIntoView({ block: "nearest" });
  }

  const alike = (hit) => (hit.ranks > 1 ? `rank ${hit.rank} and ${counted(hit.ranks - 1, "other")} alike` : `rank ${hit.rank}`);

  function facts(hit) {
    if (hit.what === "node") { return `rank ${hit.rank} · node ${hit.node_id} · ${durationText(hit.duration_ns)}${hit.ranks > 1 ? ` · on ${hit.ranks - 1} more ranks` : ""}`; }
    return `${counted(hit.nodes, "node")}, ${durationText(hit.duration_ns)} · ${alike(hit)}`;
  }

  function element(kind, className, text) {
    const made = document.createElement(kind);
    made.className = className;
    made.textContent = text;
    return made;
  }

  function draw(text) {
    const box = list();
    box.replaceChildren();
    let group = null;
    hits.forEach((hit, place) => {
      if (!group || group.dataset.what !== hit.what) {
        group = document.createElement("div");
        group.dataset.what = hit.what;
        group.setAttribute("role", "group");
        group.setAttribute("aria-label", GROUPS[hit.what]);
        const head = element("div", "search-group", GROUPS[hit.what]);
        head.setAttribute("aria-hidden", "true");
        group.appendChild(head);
        box.appendChild(group);
      }
      const option = element("div", "search-hit", "");
      option.id = `search-hit-${place}`;
      option.setAttribute("role", "option");
      option.dataset.place = String(place);
      option.append(element("span", "search-name", hit.name.slice(0, 80)), " ", element("span", "search-facts", facts(hit)));
      group.appendChild(option);
    });
    if (!hits.length) { box.appendChild(element("div", "search-group", `No match for "${text.slice(0, 40)}".`)); }
    byId("search-told").textContent = hits.length ? `${hits.length} found` : "Nothing found";
    show(true);
  }

  async function find(text) {
    const number = ++asked, query = new URLSearchParams(window.location.search);
    const wanted = new URLSearchParams({ q: text, run: query.get("run") || "", rank: query.get("rank") || "-1" });
    try {
      const answer = await window.fetch(`./api/find?${wanted}`);
      if (number !== asked) { return; }
      const found = answer.ok ? await answer.json() : { run: "", hits: [] };
      hits = found.hits;
      run = found.run;
    } catch (_error) { return; }
    if (number === asked && document.activeElement === field()) { draw(text); }
  }

  function soon() {
    window.clearTimeout(timer);
    const text = field().value.trim();
    asked += 1;
    if (!text) { show(false); return; }
    timer = window.setTimeout(() => find(text), PAUSE_MS);
  }

  function choose(hit) {
    const query = new URLSearchParams(window.location.search);
    query.set("run", run);
    query.set("rank", hit.rank);
    query.set("node", hit.node_id);
    show(false);
    asked += 1;
    window.dash_clientside.set_props("node-search", { value: "" });
    window.dash_clientside.set_props("url", { search: `?${query}` });
  }

  document.addEventListener("input", (event) => { if (event.target === field()) { soon(); } });
  document.addEventListener("focusin", (event) => {
    if (event.target === field()) { if (field().value.trim()) { soon(); } } else if (list() && !list().hidden) { show(false); }
  });
  document.addEventListener("keydown", (event) => {
    if (event.target !== field()) { return; }
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && !list().hidden && hits.length) { event.preventDefault(); mark((active + step + hits.length) % hits.length); }
    if (event.key === "Enter" && !list().hidden && hits.length) { event.preventDefault(); choose(hits[Math.max(0, active)]); }
    if (event.key === "Escape") { asked += 1; show(false); }
  });
  /* Before the box loses the focus, which would close the list. */
  document.addEventListener("mousedown", (event) => {
    const option = event.target.closest && event.target.closest(".search-hit");
    if (option) { event.preventDefault(); }
    else if (list() && !list().hidden && !event.target.closest(".node-search")) { show(false); }
  });
  document.addEventListener("click", (event) => {
    const option = event.target.closest && event.target.closest(".search-hit");
    if (option) { choose(hits[Number(option.dataset.place)]); }
  });
})();
