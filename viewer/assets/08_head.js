"use strict";
/* The page's name in the browser's tab, and a link to hand on. */
(function () {
  function named(children) {
    const links = Array.isArray(children) ? children : [];
    const shown = links.find((link) => link.props && (link.props.className || "").includes("active"));
    return shown ? String(shown.props.children) : "";
  }

  async function copied(text) {
    try { await navigator.clipboard.writeText(text); return true; } catch (_error) { /* Only over TLS and on this machine. */ }
    const box = document.querySelector("#share-link");
    if (!box) { return false; }
    box.focus();
    box.select();
    try { return document.execCommand("copy"); } catch (_error) { return false; }
  }

  /* The chooser of a file is made by a component that cannot be told its name. */
  new MutationObserver(() => {
    for (const box of document.querySelectorAll("input[type=file]:not([aria-label])")) {
      const holder = box.closest("[id]"), button = box.parentElement && box.parentElement.querySelector("button");
      box.setAttribute("aria-label", (button && button.textContent) || (holder && holder.textContent) || "Choose a file");
    }
  }).observe(document.documentElement, { childList: true, subtree: true });

  window.dash_clientside = window.dash_clientside || {};
  window.dash_clientside.chakrascope = Object.assign(window.dash_clientside.chakrascope || {}, {
    title(navigation, run, runs, study) {
      const about = (runs || []).find((each) => each.value === run);
      const parts = [named(navigation), about ? about.label.split(" · ")[0] : "", study || "", "Chakrascope"];
      document.title = parts.filter(Boolean).join(" · ");
      return window.dash_clientside.no_update;
    },

    /* What a page writes into its address, unless it was left meanwhile. */
    rewrite(written) {
      const isShown = written && written.path === `/${window.location.pathname.split("/").pop()}`;
      return isShown ? written.search : window.dash_clientside.no_update;
    },

    /* The address with the token, which whoever gets it needs as well. */
    async share(clicks) {
      if (!clicks) { return [window.dash_clientside.no_update, window.dash_clientside.no_update, window.dash_clientside.no_update]; }
      const address = new URL(window.location.href);
      address.searchParams.delete("token");
      const answer = await window.fetch("./api/token");
      // A viewer that asks for no token has none to tell: what it answers is a page.
      const told = (answer.headers.get("content-type") || "").includes("json");
      const token = answer.ok && told ? (await answer.json()).token : "";
      if (token) { address.searchParams.set("token", token); }
      const own = ["localhost", "127.0.0.1", "[::1]"].includes(address.hostname);
      window.setTimeout(async () => {
        const done = await copied(address.href);
        const told = document.getElementById("share-done");
        if (told) { told.textContent = done ? "Copied." : "Select it, and copy it."; }
      }, 150);
      return [true, address.href, own ? "It works only in browsers on this machine; start the viewer with --host to share it."
        : ""];
    },
  });
})();
