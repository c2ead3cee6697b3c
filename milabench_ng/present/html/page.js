"use strict";
(() => {
  const root = document.documentElement;
  const styles = () => getComputedStyle(root);
  const colour = (name) => styles().getPropertyValue("--" + name).trim();
  const coarse = matchMedia("(pointer: coarse)").matches || innerWidth <= 640;

  function dressed(layout) {
    const ink = colour("ink"), line = colour("line"), ground = colour("ground");
    const made = JSON.parse(JSON.stringify(layout));
    made.paper_bgcolor = made.plot_bgcolor = "rgba(0,0,0,0)";
    made.font = { color: ink, family: styles().fontFamily || "sans-serif", size: 12 };
    made.dragmode = coarse ? false : "zoom";
    made.hoverlabel = { bgcolor: ground, bordercolor: line, font: { color: ink } };
    for (const key of Object.keys(made).filter((name) => /^[xy]axis/.test(name))) {
      Object.assign(made[key], { gridcolor: line, linecolor: line, tickcolor: line });
    }
    for (const note of made.annotations || []) {
      if (note.bgcolor === "ground") note.bgcolor = ground;
      if (note.font && note.font.color === "ink") note.font.color = ink;
    }
    return made;
  }

  function inked(trace) {
    return trace.textfont ? { ...trace, textfont: { ...trace.textfont, color: colour("ink") } } : trace;
  }

  const PAPER_PX = 660; // fits on A4 and Letter, upright, with the browser's own margins
  const HALF_PX = 318; // two charts side by side
  const paper = matchMedia("print");
  let printing = false;
  const drawn = new Map();
  const waiting = new Set();

  function draw(figure) {
    waiting.delete(figure);
    if (!drawn.has(figure)) {
      drawn.set(figure, JSON.parse(figure.querySelector("script").textContent));
      const select = figure.querySelector("select");
      if (select) select.addEventListener("change", () => draw(figure));
    }
    const select = figure.querySelector("select");
    const view = drawn.get(figure)[select ? Number(select.value) : 0];
    const place = figure.querySelector(".drawing");
    const layout = dressed(view.layout);
    if (paper.matches || printing) layout.width = figure.classList.contains("wide") ? PAPER_PX : HALF_PX;
    place.style.height = layout.height + "px";
    Plotly.react(place, view.data.map(inked), layout, { displaylogo: false, displayModeBar: false, responsive: true });
    root.dataset.drawn = String(drawn.size);
  }

  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      watcher.unobserve(entry.target);
      draw(entry.target);
    }
    if (drawn.size && !performance.getEntriesByName("drawn").length) performance.measure("drawn", { start: 0 });
  }, { rootMargin: "300px" });
  for (const figure of document.querySelectorAll("figure.chart")) {
    waiting.add(figure);
    watcher.observe(figure);
  }

  const redress = () => { for (const figure of drawn.keys()) draw(figure); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redress);
  paper.addEventListener("change", redress);
  addEventListener("beforeprint", () => {
    printing = true;
    redress();
    for (const figure of [...waiting]) if (figure.checkVisibility()) draw(figure);
  });
  addEventListener("afterprint", () => { printing = false; redress(); });

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
