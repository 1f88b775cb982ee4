"use strict";
/* The page Query: Ctrl+Enter runs what is written, and an answer to another query looks like one. */
(function () {
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || event.target.id !== "query-sql") { return; }
    event.preventDefault();
    document.getElementById("query-go").click();
  });

  window.dash_clientside = window.dash_clientside || {};
  window.dash_clientside.chakrascope = Object.assign(window.dash_clientside.chakrascope || {}, {
    staleAnswer: (sql, answered) => (answered && answered !== sql ? "stale" : ""),
  });
})();
