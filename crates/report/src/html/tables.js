
"use strict";
// Tables: sorted by a click on a column's head, searched, all rows shown on demand, saved as CSV.
(() => {
  const collator = new Intl.Collator("en", { numeric: true });
  const element = (name, properties, ...children) => {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  };
  const save = (name, text) => {
    const link = element("a", { download: name, href: URL.createObjectURL(new Blob([text], { type: "text/csv" })) });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  // A number keeps its exact value in data-v; what is shown is rounded.
  const value = (cell) => cell.dataset.v === undefined ? cell.textContent.trim().replace(/\s+/g, " ") : Number(cell.dataset.v);
  const order = (one, two) => typeof one === "number" && typeof two === "number" ? one - two
    : collator.compare(String(one), String(two));

  document.querySelectorAll("table[data-name]").forEach((table) => {
    const heads = [...table.tHead.rows[0].cells];
    const bodies = [...table.tBodies];
    const rows = bodies.flatMap((body) => [...body.rows]).filter((row) => !row.classList.contains("group"));
    const state = { column: -1, down: true, all: false, words: "" };
    const more = rows.filter((row) => row.classList.contains("more"));

    const show = () => {
      const words = state.words.toLowerCase().split(/\s+/).filter(Boolean);
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = words.length > 0 ? !words.every((word) => text.includes(word))
          : !state.all && row.classList.contains("more");
      }
      table.querySelectorAll("tr.group").forEach((group) => {
        group.hidden = [...group.parentNode.rows].every((row) => row === group || row.hidden);
      });
      const left = rows.filter((row) => !row.hidden).length;
      found.textContent = words.length > 0 ? `${left} of ${rows.length} rows` : "";
      all.textContent = state.all ? "fewer rows" : `all ${rows.length} rows`;
    };
    const sort = (column) => {
      const down = state.column === column ? !state.down : rows.some((row) => typeof value(row.cells[column]) === "number");
      Object.assign(state, { column, down });
      const keyed = rows.map((row, at) => [value(row.cells[column]), at, row]);
      keyed.sort((a, b) => (down ? order(b[0], a[0]) : order(a[0], b[0])) || a[1] - b[1]);
      bodies[0].append(...keyed.map((key) => key[2]));
      // What is cut off are the last rows of the order that is shown.
      keyed.forEach(([, , row], at) => row.classList.toggle("more", at >= rows.length - more.length));
      heads.forEach((head, at) => at === column ? head.setAttribute("aria-sort", down ? "descending" : "ascending")
        : head.removeAttribute("aria-sort"));
      show();
    };

    if (bodies.length === 1 && rows.length > 1) {
      heads.forEach((head, column) => {
        if (head.textContent.trim() === "") return;
        const button = element("button", { type: "button", className: "sort", title: "sort by this column" },
          ...head.childNodes);
        button.addEventListener("click", () => sort(column));
        head.append(button);
      });
    }
    const search = element("input", { type: "search", placeholder: "search", ariaLabel: `search ${table.dataset.name}` });
    search.addEventListener("input", () => { state.words = search.value; show(); });
    const all = element("button", { type: "button", className: "quiet" });
    all.addEventListener("click", () => { state.all = !state.all; show(); });
    const csv = element("button", { type: "button", className: "quiet", textContent: "CSV",
      title: "save all rows with exact values" });
    csv.addEventListener("click", () => {
      const lines = [heads.map((head) => head.textContent.trim()), ...rows.map((row) => [...row.cells].map(value))];
      save(`${table.dataset.name}.csv`, lines.map((line) => line.map((field) => csvCell(String(field))).join(",")).join("\n") + "\n");
    });
    const found = element("span", { className: "found", ariaLive: "polite" });
    const tools = element("div", { className: "tools" });
    if (rows.length > 8) tools.append(search);
    if (more.length > 0) tools.append(all);
    tools.append(csv, found);
    (table.closest(".scroll") || table).before(tools);
    show();
  });
})();
