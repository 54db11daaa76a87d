
"use strict";
// What the parts of the page share: its data, its theme, how values are written, decoded and coloured.
const page = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);

  // Light and dark: the system's choice until the reader makes one.
  let printing = false;
  const dark = () => printing ? false : root.dataset.theme ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  const onTheme = [];
  for (const [name, value] of [["beforeprint", true], ["afterprint", false]]) {
    addEventListener(name, () => { printing = value; onTheme.forEach((draw) => draw()); });
  }
  byId("theme").addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    onTheme.forEach((draw) => draw());
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => onTheme.forEach((draw) => draw()));

  const units = ["", " k", " M", " G", " T", " P"];
  const show = (value) => {
    if (value < 10000 && Number.isInteger(value)) return String(value);
    let unit = 0;
    while (value >= 999.5 && unit < units.length - 1) { value /= 1000; unit++; }
    return value.toPrecision(3) + units[unit];
  };

  const bytes = (value) => {
    const names = [" B", " KiB", " MiB", " GiB", " TiB", " PiB"];
    let unit = 0;
    while (value >= 1023.5 && unit < names.length - 1) { value /= 1024; unit++; }
    return (unit === 0 ? String(Math.round(value)) : value.toPrecision(3)) + names[unit];
  };
  // Cells, decoded when first shown.
  const decode = (coded, count) => {
    if (coded.values) return coded.values;
    const raw = atob(coded.cells);
    const bytes = Uint8Array.from(raw, (c) => c.charCodeAt(0));
    const look = new DataView(bytes.buffer);
    const values = new Float64Array(count);
    const span = Math.log(coded.max / coded.min);
    const value = (code) => code === 0 ? 0
      : Math.round(span > 0 ? coded.min * Math.exp((code - 1) / 65534 * span) : coded.max);
    if (coded.dense) {
      for (let at = 0; at < count; at++) values[at] = value(look.getUint16(at * 2, true));
    } else {
      for (let at = 0; at < bytes.length; at += 6) values[look.getUint32(at, true)] = value(look.getUint16(at + 4, true));
    }
    return coded.values = values;
  };

  const scales = {
    light: [[246, 246, 243], [217, 234, 224], [140, 199, 181], [58, 151, 160], [31, 95, 134], [27, 42, 90]],
    dark: [[24, 30, 39], [26, 52, 68], [29, 94, 110], [52, 146, 132], [156, 194, 110], [253, 236, 150]],
  };
  const shade = (along) => {
    const stops = dark() ? scales.dark : scales.light;
    const at = Math.max(0, Math.min(1, along)) * (stops.length - 1);
    const low = Math.min(Math.floor(at), stops.length - 2);
    return stops[low].map((c, i) => Math.round(c + (stops[low + 1][i] - c) * (at - low)));
  };

  return { data, root, byId, dark, onTheme, show, bytes, decode, shade };
})();
