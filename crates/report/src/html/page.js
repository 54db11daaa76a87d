
"use strict";
(() => {
  const { data, root, byId, dark, onTheme, show, bytes, decode, shade } = page;

  document.querySelectorAll(".copy").forEach((button) => button.addEventListener("click", () => {
    const code = button.previousElementSibling;
    const range = document.createRange(), chosen = getSelection();
    range.selectNodeContents(code);
    chosen.removeAllRanges();
    chosen.addRange(range);
    // Files opened from disk may lack the newer clipboard interface.
    const done = document.execCommand("copy");
    button.textContent = done ? "copied" : "selected";
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  }));

  const canvas = byId("heat");
  if (!canvas || data.layers.length === 0) return;

  const amount = (value) => view().unit === "bytes" ? bytes(value) : show(value) + " events";

  const n = data.bins;

  const state = { layer: 0, view: 0, order: 0, scale: "log", x: 0, y: 0, span: n, cursor: null };
  const orders = [{ name: "by thread", order: Array.from({ length: n }, (_, i) => i), starts: [] }, ...data.orders];
  const fill = (id, names) => {
    const select = byId(id);
    select.replaceChildren(...names.map((name, at) => new Option(name, at)));
    select.disabled = names.length < 2;
  };
  fill("layer", data.layers.map((l) => l.name));
  fill("order", orders.map((o) => o.name));
  const fillViews = () => {
    fill("view", data.layers[state.layer].views.map((v) => v.name));
    state.view = 0;
  };
  fillViews();

  const view = () => data.layers[state.layer].views[state.view];
  const matrix = () => view().matrix;
  const along = (value, m) => {
    if (value <= 0) return 0;
    if (state.scale === "linear") return value / m.max;
    if (state.scale === "sqrt") return Math.sqrt(value / m.max);
    return m.max > 1 ? 0.12 + 0.88 * Math.log(Math.max(1, value)) / Math.log(m.max) : 1;
  };

  const image = document.createElement("canvas");
  image.width = image.height = n;
  const paint = () => {
    const m = matrix(), values = decode(m, n * n), order = orders[state.order].order;
    const ramp = Array.from({ length: 256 }, (_, i) => shade(i / 255));
    const pixels = new ImageData(n, n);
    for (let row = 0; row < n; row++) for (let col = 0; col < n; col++) {
      const value = values[order[row] * n + order[col]];
      const [r, g, b] = ramp[Math.round(255 * Math.min(1, along(value, m)))];
      pixels.data.set([r, g, b, 255], (row * n + col) * 4);
    }
    image.getContext("2d").putImageData(pixels, 0, 0);
    const strip = byId("ramp"), pen = strip.getContext("2d");
    for (let x = 0; x < strip.width; x++) {
      pen.fillStyle = `rgb(${shade(x / (strip.width - 1))})`;
      pen.fillRect(x, 0, 1, strip.height);
    }
    byId("high").textContent = amount(m.max);
    document.querySelectorAll(".chip").forEach((chip) =>
      chip.setAttribute("aria-pressed", String(state.layer === 0 && chip.dataset.view === view().name)));
    draw();
  };

  // The matrix sits right of and below its labels; sizes are in canvas pixels.
  const margin = 64;
  const side = canvas.width - margin;
  const cell = () => side / state.span;
  const draw = () => {
    const pen = canvas.getContext("2d"), css = getComputedStyle(root);
    const ink = (name) => css.getPropertyValue(name).trim();
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(image, state.x, state.y, state.span, state.span, margin, margin, side, side);
    const size = cell(), order = orders[state.order].order;
    pen.save();
    pen.beginPath();
    pen.rect(margin, margin, side, side);
    pen.clip();
    if (size >= 14) {
      pen.strokeStyle = ink("--card");
      pen.lineWidth = 2;
      for (let at = Math.ceil(state.x); at <= state.x + state.span; at++) line(pen, margin + (at - state.x) * size, true);
      for (let at = Math.ceil(state.y); at <= state.y + state.span; at++) line(pen, margin + (at - state.y) * size, false);
    }
    pen.strokeStyle = ink("--ink");
    pen.lineWidth = 2;
    for (const start of orders[state.order].starts) {
      line(pen, margin + (start - state.x) * size, true);
      line(pen, margin + (start - state.y) * size, false);
    }
    if (state.cursor) {
      pen.strokeStyle = dark() ? "#fff" : "#d8452e";
      pen.lineWidth = 4;
      pen.strokeRect(margin + (state.cursor.col - state.x) * size, margin + (state.cursor.row - state.y) * size,
        Math.max(size, 4), Math.max(size, 4));
    }
    pen.restore();
    pen.fillStyle = ink("--muted");
    pen.font = "22px system-ui, sans-serif";
    const room = Math.max(40, 16 + 14 * name(n - 1).length);
    const step = [1, 2, 4, 8, 16, 32, 64, 128].find((s) => s * size >= room) || 256;
    for (let at = Math.ceil(state.x / step) * step; at < Math.min(n, state.x + state.span); at += step) {
      pen.textAlign = "center";
      pen.fillText(name(order[at]), margin + (at - state.x + .5) * size, margin - 14);
    }
    for (let at = Math.ceil(state.y / step) * step; at < Math.min(n, state.y + state.span); at += step) {
      pen.textAlign = "right";
      pen.fillText(name(order[at]), margin - 12, margin + (at - state.y + .5) * size + 8);
    }
  };
  const line = (pen, at, vertical) => {
    pen.beginPath();
    vertical ? pen.moveTo(at, margin) : pen.moveTo(margin, at);
    vertical ? pen.lineTo(at, margin + side) : pen.lineTo(margin + side, at);
    pen.stroke();
  };
  const name = (bin) => n === data.threads ? String(bin) : String(Math.ceil(bin * data.threads / n));
  const label = (bin) => {
    if (n === data.threads) return `thread ${bin} (${data.labels[bin]})`;
    return `threads ${Math.ceil(bin * data.threads / n)} to ${Math.ceil((bin + 1) * data.threads / n) - 1}`;
  };

  const tell = () => {
    const box = byId("cell");
    if (!state.cursor) return;
    const m = matrix(), values = decode(m, n * n), order = orders[state.order].order;
    const src = order[state.cursor.row], dst = order[state.cursor.col];
    const value = values[src * n + dst], back = values[dst * n + src];
    const item = (term, text, big) => {
      const dt = document.createElement("dt"), dd = document.createElement("dd");
      dt.textContent = term;
      dd.textContent = text;
      if (big) dd.className = "big";
      return [dt, dd];
    };
    box.replaceChildren(
      ...item(`${label(src)} to ${label(dst)}`, amount(value), true),
      ...item("share of this matrix", m.total > 0 ? (value / m.total * 100).toPrecision(3) + " %" : "-"),
      ...item("the other way", amount(back)));
  };
  const point = (row, col) => {
    state.cursor = { row: Math.max(0, Math.min(n - 1, row)), col: Math.max(0, Math.min(n - 1, col)) };
    draw();
    tell();
  };
  const clamp = () => {
    state.span = Math.max(Math.min(4, n), Math.min(n, state.span));
    state.x = Math.max(0, Math.min(n - state.span, state.x));
    state.y = Math.max(0, Math.min(n - state.span, state.y));
  };
  const zoom = (factor, cx, cy) => {
    const before = state.span;
    state.span *= factor;
    clamp();
    state.x += (cx - state.x) * (1 - state.span / before);
    state.y += (cy - state.y) * (1 - state.span / before);
    clamp();
    draw();
  };
  const everything = () => { state.x = state.y = 0; state.span = n; draw(); };
  const at = (event) => {
    const box = canvas.getBoundingClientRect(), ratio = canvas.width / box.width;
    return {
      col: state.x + ((event.clientX - box.left) * ratio - margin) / cell(),
      row: state.y + ((event.clientY - box.top) * ratio - margin) / cell(),
    };
  };

  let drag = null;
  canvas.addEventListener("pointerdown", (event) => { drag = { ...at(event), x: state.x, y: state.y, px: event.clientX, py: event.clientY }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointerup", () => { drag = null; });
  canvas.addEventListener("pointermove", (event) => {
    if (drag && state.span < n) {
      const ratio = canvas.width / canvas.getBoundingClientRect().width;
      state.x = drag.x - (event.clientX - drag.px) * ratio / cell();
      state.y = drag.y - (event.clientY - drag.py) * ratio / cell();
      clamp();
      draw();
      return;
    }
    const { row, col } = at(event);
    if (row >= state.y && col >= state.x && row < n && col < n) point(Math.floor(row), Math.floor(col));
  });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const { row, col } = at(event);
    zoom(event.deltaY > 0 ? 1.2 : 1 / 1.2, col, row);
  }, { passive: false });
  canvas.addEventListener("dblclick", everything);
  canvas.addEventListener("keydown", (event) => {
    const c = state.cursor || { row: 0, col: 0 };
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (steps[event.key]) {
      point(c.row + (state.cursor ? steps[event.key][0] : 0), c.col + (state.cursor ? steps[event.key][1] : 0));
      const inside = state.cursor;
      if (inside.col < state.x) state.x = inside.col;
      if (inside.row < state.y) state.y = inside.row;
      if (inside.col >= state.x + state.span) state.x = inside.col - state.span + 1;
      if (inside.row >= state.y + state.span) state.y = inside.row - state.span + 1;
      clamp();
      draw();
    } else if (event.key === "+" || event.key === "=") zoom(1 / 1.4, c.col, c.row);
    else if (event.key === "-") zoom(1.4, c.col, c.row);
    else if (event.key === "0") everything();
    else return;
    event.preventDefault();
  });

  const choose = (id, act) => byId(id).addEventListener("change", (event) => { act(event.target.value); paint(); tell(); });
  choose("layer", (value) => { state.layer = Number(value); fillViews(); });
  choose("view", (value) => { state.view = Number(value); });
  choose("order", (value) => { state.order = Number(value); });
  choose("scale", (value) => { state.scale = value; });
  document.querySelectorAll(".chip").forEach((chip) => chip.addEventListener("click", () => {
    const view = data.layers[0].views.findIndex((v) => v.name === chip.dataset.view);
    if (view < 0) return;
    state.layer = 0;
    byId("layer").value = "0";
    fillViews();
    state.view = view;
    byId("view").value = String(view);
    paint();
    tell();
    canvas.scrollIntoView({ block: "nearest" });
  }));
  if (orders.length > 1) { state.order = 0; }
  onTheme.push(paint);
  paint();
})();
