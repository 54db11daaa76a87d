
"use strict";
// Figures saved as they are seen: PNG of twice the size, SVG with the page's colours written out, or CSV of their values.
(() => {
  const style = () => getComputedStyle(document.documentElement);
  const save = (name, url) => {
    const link = document.createElement("a");
    link.download = name;
    link.href = url;
    link.click();
  };
  const saveBlob = (name, blob) => {
    const url = URL.createObjectURL(blob);
    save(name, url);
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  };
  const standalone = (svg) => {
    const copy = svg.cloneNode(true), css = style();
    const ground = document.createElementNS(svg.namespaceURI, "rect");
    for (const [name, value] of [["width", "100%"], ["height", "100%"], ["fill", "var(--card)"]]) ground.setAttribute(name, value);
    copy.prepend(ground);
    return new XMLSerializer().serializeToString(copy)
      .replace(/var\((--[\w-]+)\)/g, (_, name) => css.getPropertyValue(name).trim());
  };
  const picture = (svg, name) => {
    const image = new Image();
    image.onload = () => {
      const canvas = document.createElement("canvas");
      canvas.width = 2 * svg.viewBox.baseVal.width;
      canvas.height = 2 * svg.viewBox.baseVal.height;
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      canvas.toBlob((blob) => saveBlob(name, blob));
    };
    image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(standalone(svg));
  };
  // What the tips of a figure say, a row each: "node 0, first touch: 1024 pages".
  const rows = (svg) => [...svg.querySelectorAll("[aria-label]")].map((shape) => {
    const text = shape.getAttribute("aria-label"), at = text.lastIndexOf(": ");
    return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 2)];
  });
  const csv = (svg) => [["item", "value"], ...rows(svg)].map((row) => row.map(csvCell).join(",")).join("\n") + "\n";
  const button = (text, title, act) => {
    const made = Object.assign(document.createElement("button"), { type: "button", className: "quiet", textContent: text, title });
    made.addEventListener("click", act);
    return made;
  };
  document.querySelectorAll("figure[id] > svg").forEach((svg) => {
    const name = svg.parentNode.id, tools = document.createElement("div");
    tools.className = "tools save";
    tools.append(
      button("PNG", "save this figure as PNG", () => picture(svg, `${name}.png`)),
      button("SVG", "save this figure as SVG", () =>
        saveBlob(`${name}.svg`, new Blob([standalone(svg)], { type: "image/svg+xml" }))));
    if (rows(svg).length > 0) {
      tools.append(button("CSV", "save the values that the figure shows", () =>
        saveBlob(`${name}.csv`, new Blob([csv(svg)], { type: "text/csv" }))));
    }
    svg.after(tools);
  });
  const heat = document.getElementById("heat");
  const keys = document.querySelector(".heat .keys");
  if (heat && keys) {
    const tools = document.createElement("div");
    tools.className = "tools save";
    tools.append(button("PNG", "save the matrix as shown", () => heat.toBlob((blob) => saveBlob("matrix.png", blob))));
    keys.after(tools);
  }
})();
