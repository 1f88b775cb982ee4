"use strict";
/* The buttons of jobs. Their list is drawn anew when a job begins or ends, so what is pressed may be gone when it is let go: the
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
  /* The button that had the focus has it again when the list was drawn anew. */
  let focused = "";
  document.addEventListener("focusin", (event) => { focused = nameOf(buttonOf(event)); });
  document.addEventListener("keydown", (event) => { if (event.key === "Tab") { focused = ""; } });
  new MutationObserver(() => {
    if (!focused || document.activeElement !== document.body) { return; }
    const again = [...document.querySelectorAll("#job-list [data-job-action]")].find((button) => nameOf(button) === focused);
    if (again) { again.focus({ preventScroll: true }); }
  }).observe(document.documentElement, { childList: true, subtree: true });

  /* Without a pointer: from the keyboard. */
  document.addEventListener("click", (event) => {
    const button = buttonOf(event);
    if (button && event.detail === 0) { ask(button); }
  });
})();
