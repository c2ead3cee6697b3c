"use strict";
(() => {
  for (const select of document.querySelectorAll("figure.chart select")) {
    const views = select.closest("figure").querySelectorAll(".view");
    const show = () => views.forEach((view, at) => { view.hidden = at !== select.selectedIndex; });
    select.addEventListener("change", show);
    show(); // a browser keeps the choice when the page is loaded again
  }

  function compare(a, b) {
    const x = Number(a), y = Number(b);
    if (!Number.isNaN(x) && !Number.isNaN(y)) return x - y;
    return a.localeCompare(b, "en", { numeric: true });
  }

  function sort(head) {
    const direction = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    const heads = [...head.parentElement.children];
    const column = heads.indexOf(head);
    for (const each of heads) each.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", direction === 1 ? "ascending" : "descending");
    const body = head.closest("table").tBodies[0];
    const key = (row) => row.cells[column].dataset.key;
    const rows = [...body.rows].sort((one, other) => {
      const a = key(one), b = key(other);
      if (a === "" || b === "") return (a === "") - (b === "");
      return direction * compare(a, b);
    });
    body.append(...rows);
  }
  for (const button of document.querySelectorAll("th button")) {
    button.addEventListener("click", () => sort(button.closest("th")));
  }
})();
