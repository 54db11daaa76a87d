
"use strict";
(() => {
  const { byId } = page;

  // Values of bars, dots and cells, at once where the browser's own tips take a second.
  const tip = byId("tip");
  const tipped = new Map();
  document.querySelectorAll("figure svg title").forEach((title) => {
    tipped.set(title.parentNode, title.textContent);
    title.parentNode.setAttribute("aria-label", title.textContent);
    title.remove();
  });
  document.addEventListener("pointermove", (event) => {
    const text = tipped.get(event.target);
    tip.hidden = text === undefined;
    if (tip.hidden) return;
    tip.textContent = text;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(8, Math.min(event.clientX + 14, innerWidth - box.width - 8)) + "px";
    tip.style.top = (event.clientY + 20 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 18) + "px";
  });
})();
