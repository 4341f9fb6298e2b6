// The numbers of a window at the pointer, out of the table that every plot over time has.
// The page is complete without this.
(() => {
  "use strict";
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  document.body.append(tip);
  const line = (className, text) => {
    const row = document.createElement("div");
    const name = row.appendChild(document.createElement("span"));
    if (className) name.append(Object.assign(document.createElement("i"), { className }));
    name.append(text);
    return row;
  };
  for (const figure of document.querySelectorAll("figure.over-time")) {
    const heads = [...figure.querySelectorAll("thead th")];
    const rows = [...figure.querySelectorAll("tbody tr")];
    for (const plot of figure.querySelectorAll("svg.plot")) {
      // A title would be shown at the pointer as well.
      plot.setAttribute("aria-label", plot.querySelector("title").textContent);
      plot.removeAttribute("aria-labelledby");
      plot.querySelector("title").remove();
      const { left, right } = plot.dataset;
      const [, , , height] = plot.getAttribute("viewBox").split(" ");
      const mark = document.createElementNS(plot.namespaceURI, "line");
      mark.setAttribute("class", "pointer");
      mark.setAttribute("y1", 10);
      mark.setAttribute("y2", height - 34);
      const leave = () => { tip.hidden = true; mark.remove(); };
      plot.addEventListener("pointerleave", leave);
      plot.addEventListener("pointermove", (event) => {
        const box = plot.getBoundingClientRect();
        const scale = plot.viewBox.baseVal.width / box.width;
        const part = ((event.clientX - box.left) * scale - left) / (right - left);
        const number = Math.floor(part * rows.length);
        if (number < 0 || number >= rows.length) { leave(); return; }
        const x = Number(left) + (right - left) * (number + 0.5) / rows.length;
        mark.setAttribute("x1", x);
        mark.setAttribute("x2", x);
        plot.append(mark);
        const cells = [...rows[number].children].map((cell) => cell.textContent);
        tip.replaceChildren(line("", `${cells[0]} UTC`));
        heads.slice(1).forEach((head, n) => {
          const row = line(head.className.replace("n ", ""), head.textContent);
          row.append(cells[n + 1]);
          tip.append(row);
        });
        tip.hidden = false;
        const beyond = event.clientX + tip.offsetWidth + 24 > document.documentElement.clientWidth;
        tip.style.left = `${event.clientX + (beyond ? -tip.offsetWidth - 14 : 14)}px`;
        tip.style.top = `${Math.max(4, event.clientY - tip.offsetHeight - 10)}px`;
      });
    }
  }
})();
