"use strict";
/* A server that does not answer is told, asked for again, and what was asked meanwhile is asked once more. */
(function () {
  const EVERY_MS = 1500, LOOK_MS = 6000, ALIVE = "./api/alive", CALLBACK = "_dash-update-component";
  const real = window.fetch.bind(window);
  let gone = null;  // while the server is away, a promise of its return

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

  /* What a click began may have been done before the answer was lost, so it is never sent twice. */
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

  /* A page that asks for nothing would not notice. */
  window.setInterval(async () => {
    if (!document.hidden && !gone && !(await alive())) { lost(); }
  }, LOOK_MS);
})();
