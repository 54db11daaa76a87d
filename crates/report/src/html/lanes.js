
"use strict";
// The timeline of threads and objects: lanes on a canvas, time to the right.
(() => {
  const { data, root, byId, dark, onTheme, show, bytes, decode, shade } = page;
  const card = byId("lanes"), run = data.timelines;
  if (!card || !run || run.lanes.length === 0) return;
  card.hidden = false;

  const canvas = byId("lane-canvas"), kind = byId("lane-kind"), told = byId("lane-cell");
  kind.replaceChildren(...run.lanes.map((lane, at) => new Option(lane.name, at)));
  kind.disabled = run.lanes.length < 2;

  // Sizes are in canvas pixels, two for one of the page.
  const foot = 44;
  let width = 2000, left = 300;
  const state = { at: 0, x: 0, span: 1, cursor: null };
  const lane = () => run.lanes[state.at];
  const rows = () => lane().labels.length;
  const height = () => Math.max(4, Math.min(44, Math.floor(1500 / rows())));
  const column = () => (width - left) / state.span;
  const amount = (value) => lane().unit === "bytes" ? bytes(value) : `${show(value)} ${lane().unit}`;
  // Time at the start of a column.
  const time = (at) => run.from + (run.to - run.from) * Math.min(1, at * lane().per / run.slices);

  const everything = () => { state.x = 0; state.span = lane().columns; draw(); };
  const clamp = () => {
    state.span = Math.max(Math.min(8, lane().columns), Math.min(lane().columns, state.span));
    state.x = Math.max(0, Math.min(lane().columns - state.span, state.x));
  };
  const zoom = (factor, around) => {
    const before = state.span;
    state.span *= factor;
    clamp();
    state.x += (around - state.x) * (1 - state.span / before);
    clamp();
    draw();
  };

  const short = (text, room, pen) => {
    if (pen.measureText(text).width <= room) return text;
    while (text.length > 1 && pen.measureText(text + "\u2026").width > room) text = text.slice(0, -1);
    return text + "\u2026";
  };
  const axis = (pen, ink, bottom) => {
    const from = time(state.x), to = time(state.x + state.span);
    const least = (to - from) / Math.min(5, (width - left) / 260), power = 10 ** Math.floor(Math.log10(least));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= least * .999);
    pen.fillStyle = ink("--muted");
    pen.textAlign = "center";
    for (let value = Math.ceil(from / step) * step; value <= to; value += step) {
      const x = left + (value - from) / (to - from) * (width - left);
      const label = `${show(Math.round(value))} ${run.clock}`, half = pen.measureText(label).width / 2;
      pen.fillText(label, Math.max(left + half, Math.min(width - half, x)), bottom + 32);
      pen.fillRect(x, bottom, 1, 8);
    }
  };
  const draw = () => {
    const values = decode(lane().cells, rows() * lane().columns), max = lane().cells.max;
    const pen = canvas.getContext("2d"), css = getComputedStyle(root), ink = (name) => css.getPropertyValue(name).trim();
    const tall = height(), bottom = rows() * tall;
    width = Math.max(400, 2 * (canvas.clientWidth || 1000));
    left = Math.min(300, Math.round(.3 * width));
    canvas.width = width;
    canvas.height = bottom + foot;
    pen.font = "22px system-ui, sans-serif";
    const ramp = Array.from({ length: 256 }, (_, i) => `rgb(${shade(i / 255)})`);
    const first = Math.floor(state.x), last = Math.min(lane().columns, Math.ceil(state.x + state.span)), step = column();
    const gap = tall > 8 ? 2 : 0;
    for (let row = 0; row < rows(); row++) {
      pen.fillStyle = ramp[0];
      pen.fillRect(left, row * tall, width - left, tall - gap);
      for (let at = first; at < last; at++) {
        const value = values[row * lane().columns + at];
        if (value <= 0) continue;
        pen.fillStyle = ramp[Math.round(255 * (max > 1 ? .12 + .88 * Math.log(Math.max(1, value)) / Math.log(max) : 1))];
        const x = Math.max(left, Math.floor(left + (at - state.x) * step));
        pen.fillRect(x, row * tall, Math.max(1, Math.ceil(left + (at + 1 - state.x) * step) - x), tall - gap);
      }
    }
    const every = Math.ceil(26 / tall);
    pen.fillStyle = ink("--muted");
    pen.textAlign = "right";
    for (let row = 0; row < rows(); row += every) {
      pen.fillText(short(lane().labels[row], left - 20, pen), left - 12, Math.max(18, row * tall + Math.min(tall, 26) / 2 + 8));
    }
    axis(pen, ink, bottom);
    if (state.cursor) {
      pen.strokeStyle = dark() ? "#fff" : "#d8452e";
      pen.lineWidth = 3;
      pen.strokeRect(left + (state.cursor.at - state.x) * step, state.cursor.row * tall, Math.max(4, step), tall - gap);
    }
  };

  const tell = () => {
    if (!state.cursor) { told.textContent = ""; return; }
    const { row, at } = state.cursor, from = at * lane().per, to = Math.min(run.slices, from + lane().per) - 1;
    const value = decode(lane().cells, rows() * lane().columns)[row * lane().columns + at];
    told.textContent = `${lane().labels[row]}, ${from === to ? `slice ${from}` : `slices ${from} to ${to}`} `
      + `(from ${show(Math.round(time(at)))} ${run.clock}): ${amount(value)}`;
  };
  const point = (row, at) => {
    state.cursor = { row: Math.max(0, Math.min(rows() - 1, row)), at: Math.max(0, Math.min(lane().columns - 1, at)) };
    draw();
    tell();
  };
  const under = (event) => {
    const box = canvas.getBoundingClientRect(), ratio = canvas.width / box.width;
    return {
      at: state.x + ((event.clientX - box.left) * ratio - left) / column(),
      row: (event.clientY - box.top) * ratio / height(),
    };
  };

  let drag = null;
  canvas.addEventListener("pointerdown", (event) => { drag = { x: state.x, from: event.clientX }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointerup", () => { drag = null; });
  canvas.addEventListener("pointermove", (event) => {
    if (drag && state.span < lane().columns) {
      state.x = drag.x - (event.clientX - drag.from) * canvas.width / canvas.getBoundingClientRect().width / column();
      clamp();
      draw();
      return;
    }
    const { row, at } = under(event);
    if (at >= state.x && row < rows()) point(Math.floor(row), Math.floor(at));
  });
  canvas.addEventListener("wheel", (event) => {
    // Without zoom the wheel scrolls the page past a tall timeline.
    if (!event.ctrlKey && document.activeElement !== canvas) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : .8, under(event).at);
  }, { passive: false });
  canvas.addEventListener("dblclick", everything);
  canvas.addEventListener("keydown", (event) => {
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const { row, at } = state.cursor || { row: 0, at: Math.floor(state.x) };
    if (steps[event.key]) {
      point(row + (state.cursor ? steps[event.key][0] : 0), at + (state.cursor ? steps[event.key][1] : 0));
      if (state.cursor.at < state.x) state.x = state.cursor.at;
      if (state.cursor.at >= state.x + state.span) state.x = state.cursor.at - state.span + 1;
      clamp();
      draw();
    } else if (event.key === "+" || event.key === "=") zoom(1 / 1.4, at);
    else if (event.key === "-") zoom(1.4, at);
    else if (event.key === "0") everything();
    else return;
    event.preventDefault();
  });
  kind.addEventListener("change", () => {
    state.at = Number(kind.value);
    state.cursor = null;
    everything();
    tell();
  });
  onTheme.push(draw);
  addEventListener("resize", draw);
  everything();
})();
