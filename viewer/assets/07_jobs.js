"use strict";
/* The buttons of jobs. Their list is drawn anew as a job goes on, so what is pressed may be gone when it is let go: the
   browser makes no click of that, and Dash forgets what was asked of components that are gone. */
(function () {
  let pressed = "";

  const buttonOf = (event) => event.target.closest && event.target.closest("[data-job-action]");
  const nameOf = (button) => (button ? `${button.dataset.jobAction} ${button.dataset.job}` : "");

  function ask(button) {
    const asked = { action: button.dataset.jobAction, job: Number(button.dataset.job), at: Date.now() };
    window.dash_clientside.set_props("job-asked", { data: asked });
  }

  document.addEventListener("pointerdown", (event) => { pressed = nameOf(buttonOf(event)); });
  document.addEventListener("pointerup", (event) => {
    const button = buttonOf(event);
    if (button && nameOf(button) === pressed) { ask(button); }
    pressed = "";
  });
  /* Without a pointer: from the keyboard. */
  document.addEventListener("click", (event) => {
    const button = buttonOf(event);
    if (button && event.detail === 0) { ask(button); }
  });
})();
