"use strict";
/* The buttons of jobs. Their list is drawn anew while it works, and a click that met the old one would be lost to Dash. */
(function () {
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-job-action]");
    if (!button) { return; }
    const asked = { action: button.dataset.jobAction, job: Number(button.dataset.job), at: Date.now() };
    window.dash_clientside.set_props("job-asked", { data: asked });
  });
})();
