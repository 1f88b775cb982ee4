"use strict";
/* The frame of every page: the colour scheme, the connection to the server, the node search, the title of the tab, the link
   to share, and the addresses of scripts that only some pages need. */

/* Light or dark colours: pages follow the system's scheme until the user chooses the other scheme with the switch. */
(function () {
  const KEY = "chakrascope-scheme", system = window.matchMedia("(prefers-color-scheme: dark)");

  function chosen() {
    try { return window.localStorage.getItem(KEY); } catch (_error) { return null; }
  }

  /* Store the user's colour scheme; if the user chooses the system's scheme, pages follow the system again. */
  function remember(dark) {
    try {
      if (dark === system.matches) { window.localStorage.removeItem(KEY); }
      else { window.localStorage.setItem(KEY, dark ? "dark" : "light"); }
    } catch (_error) { /* Without storage, pages follow the system's scheme. */ }
  }

  system.addEventListener("change", () => {
    if (!chosen()) { window.dash_clientside.set_props("dark", { checked: system.matches }); }
  });

  window.chakrascopeCallbacks({
    firstScheme() { const kept = chosen(); return kept ? kept === "dark" : system.matches; },

    scheme(dark) {
      if (typeof dark !== "boolean") { return window.dash_clientside.no_update; }
      remember(dark);
      return dark ? "dark" : "light";
    },
  });
})();

/* The connection to the server: a banner reports a lost server, and requests are retried once the server answers again. */
(function () {
  const EVERY_MS = 1500, LOOK_MS = 6000, ALIVE = "./api/alive", CALLBACK = "_dash-update-component";
  const real = window.fetch.bind(window);
  let gone = null;  // while the server is lost, a promise that resolves once the server answers again

  const wait = (ms) => new Promise((resolve) => { window.setTimeout(resolve, ms); });

  function banner(text, state) {
    let box = document.getElementById("server-state");
    if (!box) {
      box = document.createElement("div");
      box.id = "server-state";
      box.setAttribute("role", "alert");
      document.body.appendChild(box);
    }
    box.dataset.state = state;
    box.textContent = text;
    box.hidden = !text;
  }

  async function alive() {
    try { return await real(ALIVE, { cache: "no-store" }); } catch (_error) { return null; }
  }

  async function watchFor() {
    const since = Date.now();
    let answer = null;
    while (!answer) {
      const seconds = Math.round((Date.now() - since) / 1000);
      banner(`The viewer does not answer (for ${seconds} s): was it stopped? Retrying; `
        + "start it with the same --port to continue here.", "gone");
      await wait(EVERY_MS);
      answer = await alive();
    }
    gone = null;
    if (answer.ok) {
      banner("The viewer is available again.", "back");
      window.setTimeout(() => { if (!gone) { banner("", ""); } }, 3000);
    } else { refused(); }
    return answer.ok;
  }

  const lost = () => { gone = gone || watchFor(); return gone; };

  function refused() {
    banner("The viewer restarted: open the address that it printed.", "refused");
  }

  /* A click is never sent twice, as the server may have acted on the click before the response was lost. */
  const mayRepeat = (options) => !(options && typeof options.body === "string" && options.body.includes(".n_clicks\""));

  window.fetch = async function (resource, options) {
    const address = String(resource && resource.url ? resource.url : resource);
    const method = (options && options.method) || "GET";
    const repeats = method === "GET" || address.includes(CALLBACK);
    for (;;) {
      try {
        const answer = await real(resource, options);
        if (answer.status === 403 && address.includes(CALLBACK)) { refused(); }
        return answer;
      } catch (error) {
        const aborted = error && error.name === "AbortError";
        if (aborted || !repeats) { throw error; }
        const back = await lost();
        if (!back) { throw error; }
        if (!mayRepeat(options)) {
          banner("The viewer is available again. Check whether your last action took effect; repeat it if not.", "back");
          throw error;
        }
      }
    }
  };

  /* A page that sends no requests notices a lost server by this periodic check. */
  window.setInterval(async () => {
    if (!document.hidden && !gone && !(await alive())) { lost(); }
  }, LOOK_MS);
})();

/* The search box for modules, operators and nodes. Responses to an earlier text are dropped. */
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
    const isTyping = event.target instanceof Element && event.target.closest("input, textarea, select, [contenteditable], [role='dialog']");
    // The timeline has a separate search.
    if (event.key === "/" && !isTyping && field() && !document.getElementById("timeline")) { event.preventDefault(); field().focus(); }
    if (event.target !== field()) { return; }
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && !list().hidden && hits.length) { event.preventDefault(); mark((active + step + hits.length) % hits.length); }
    if (event.key === "Enter" && !list().hidden && hits.length) { event.preventDefault(); choose(hits[Math.max(0, active)]); }
    if (event.key === "Escape") { asked += 1; show(false); }
  });
  /* The browser sends mousedown before the search box loses the focus, which would close the list of hits. */
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

/* The title of the browser's tab, and the link to share. */
(function () {
  function named(children) {
    const links = Array.isArray(children) ? children : [];
    const shown = links.find((link) => link.props && (link.props.className || "").includes("active"));
    return shown ? String(shown.props.children) : "";
  }

  async function copied(text) {
    try { await navigator.clipboard.writeText(text); return true; } catch (_error) { /* Browsers allow access to the clipboard only over TLS and on this machine. */ }
    const box = document.querySelector("#share-link");
    if (!box) { return false; }
    box.focus();
    box.select();
    try { return document.execCommand("copy"); } catch (_error) { return false; }
  }

  /* The component that uploads files takes no label for its file input, so the label is set here. */
  new MutationObserver(() => {
    for (const box of document.querySelectorAll("input[type=file]:not([aria-label])")) {
      const holder = box.closest("[id]"), button = box.parentElement && box.parentElement.querySelector("button");
      box.setAttribute("aria-label", (button && button.textContent) || (holder && holder.textContent) || "Choose a file");
    }
  }).observe(document.documentElement, { childList: true, subtree: true });

  window.chakrascopeCallbacks({
    title(navigation, run, runs, study) {
      const about = (runs || []).find((each) => each.value === run);
      const parts = [named(navigation), about ? about.label.split(" · ")[0] : "", study || "", "Chakrascope"];
      document.title = parts.filter(Boolean).join(" · ");
      return window.dash_clientside.no_update;
    },

    /* Return the query string that a page writes into its address; no update if the browser shows another page by now. */
    rewrite(written) {
      const isShown = written && written.path === `/${window.location.pathname.split("/").pop()}`;
      return isShown ? written.search : window.dash_clientside.no_update;
    },

    /* Show a link to the current view, including the token that the recipient of the link needs. */
    async share(clicks) {
      if (!clicks) { return [window.dash_clientside.no_update, window.dash_clientside.no_update, window.dash_clientside.no_update]; }
      const address = new URL(window.location.href);
      address.searchParams.delete("token");
      const answer = await window.fetch("./api/token");
      // A viewer without a token answers /api/token with an HTML page in place of JSON.
      const told = (answer.headers.get("content-type") || "").includes("json");
      const token = answer.ok && told ? (await answer.json()).token : "";
      if (token) { address.searchParams.set("token", token); }
      const own = ["localhost", "127.0.0.1", "[::1]"].includes(address.hostname);
      window.setTimeout(async () => {
        const done = await copied(address.href);
        const told = document.getElementById("share-done");
        if (told) { told.textContent = done ? "Copied." : "Select the address and copy it."; }
      }, 150);
      return [true, address.href, own ? "It works only in browsers on this machine; start the viewer with --host to share it."
        : ""];
    },
  });
})();

/* The browser's buttons Back and Forward restore the settings of a page. A page whose controls show other settings than the
   address is drawn again; the timeline and the selection follow the address themselves. */
(function () {
  const OWN = ["run", "rank", "node", "t0", "t1"];
  let target = "", shown = null;

  window.addEventListener("popstate", (event) => { target = event.isTrusted ? window.location.pathname + window.location.search : ""; });

  function settingsOf(search) {
    const query = new URLSearchParams(search);
    for (const name of OWN) { query.delete(name); }
    query.sort();
    return String(query);
  }

  window.chakrascopeCallbacks({
    returned(pathname, search) {
      const before = shown, settings = settingsOf(search), isReturn = target === pathname + search;
      shown = { pathname, settings };
      target = "";
      const isStale = isReturn && before && before.pathname === pathname && before.settings !== settings;
      return isStale && !document.getElementById("timeline") ? Date.now() : window.dash_clientside.no_update;
    },
  });
})();

/* Charts need only a third of plotly.js, which viewer/_routes.py serves. Dash would load the whole library: it sets the
   property _dashPlotlyJSURL to the address of the whole library, which the setter below ignores. */
(function () {
  const script = new URL("../charts/plotly-cartesian-4.1.1.min.js", document.currentScript.src).href;
  Object.defineProperty(window, "_dashPlotlyJSURL", { get: () => script, set: () => { /* The address of the smaller script is kept. */ } });
})();

/* Import the modules of the timeline (assets/timeline/) at the first visit to its page. */
(function () {
  const timeline = new URL("timeline/timeline.js", document.currentScript.src).href;

  window.chakrascopeCallbacks({
    async timeline(run, _scheme, selection) {
      (await import(timeline)).show(run, selection);
      return window.dash_clientside.no_update;
    },
  });
})();
