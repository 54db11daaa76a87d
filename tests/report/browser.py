#!/usr/bin/env python3
"""Opens a report in headless Chromium: no console message, figures drawn, nothing fetched; tables sort and search, figures and
tables are saved.

usage: browser.py REPORT.html [SCREENSHOT.png]
"""

import html
import json
import re
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

WIDTH, HEIGHT = 1280, 2200

# Uses the first tables and figures as a reader would, and leaves what came of it in the document.
READER = """<script>(async () => {
  const table = document.querySelector("table[data-name=memory-by-object]"), seen = {}, saved = [];
  const tools = table.closest(".scroll").previousElementSibling;
  const column = (at) => [...table.tBodies[0].rows].map((row) => Number(row.cells[at].dataset.v));
  const make = URL.createObjectURL;
  URL.createObjectURL = (blob) => { saved.push(blob); return make(blob); };
  const button = (within, text) => [...within.querySelectorAll("button")].find((b) => b.textContent.startsWith(text));
  table.tHead.querySelectorAll("button.sort")[2].click();
  seen.down = column(2);
  table.tHead.querySelectorAll("button.sort")[2].click();
  seen.up = column(2);
  button(tools, "CSV").click();
  const search = document.querySelector("input[type=search]");
  search.value = "no such row";
  search.dispatchEvent(new Event("input"));
  seen.found = document.querySelector(".found:not(:empty)").textContent;
  const lanes = document.getElementById("lane-canvas"), key = (name) => lanes.dispatchEvent(new KeyboardEvent("keydown", { key: name }));
  seen.lanes = [];
  for (const kind of document.getElementById("lane-kind").options) {
    document.getElementById("lane-kind").value = kind.value;
    document.getElementById("lane-kind").dispatchEvent(new Event("change"));
    for (const name of ["ArrowRight", "ArrowDown", "+", "+"]) key(name);
    seen.lanes.push([kind.text, document.getElementById("lane-cell").textContent]);
  }
  seen.cells = ["=1+1", "-x,y", "-1.5", "'=", "heap"].map(csvCell);
  const figure = document.querySelector("figure[id]");
  button(figure, "SVG").click();
  button(document.getElementById("pages-per-node"), "CSV").click();
  button(figure, "PNG").click();
  // While a timer is set, the page's clock does not run to its end.
  const until = async (ready) => {
    for (let wait = 0; wait < 2500 && !ready(); wait++) await new Promise((done) => setTimeout(done, 20));
  };
  await until(() => saved.length === 4);
  Promise.all(saved.map(async (blob) => [blob.type, blob.size, (await blob.text()).slice(0, 60)])).then((all) => { seen.saved = all; });
  await until(() => seen.saved);
  const left = document.createElement("pre");
  left.id = "seen";
  left.textContent = JSON.stringify(seen);
  document.body.append(left);
})();</script>"""


def chromium(profile, *flags, milliseconds=20_000):
    """Runs Chromium on the page; returns (stdout, what the console and the network log said). The page's clock, which has
    this many milliseconds, does not wait for what other threads do, such as the compression of a picture."""
    result = subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--disable-extensions", "--hide-scrollbars", "--enable-logging=stderr", "--v=0",
         f"--user-data-dir={profile}", f"--window-size={WIDTH},{HEIGHT}", f"--virtual-time-budget={milliseconds}", *flags],
        capture_output=True, text=True, timeout=100, check=False)
    console = [line for line in result.stderr.splitlines() if "CONSOLE" in line]
    return result.stdout, console


def pixels(path):
    """Rows of (r, g, b) of an 8-bit PNG that is not interlaced."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n", "not a PNG"
    at, packed = 8, b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + size]
        if kind == b"IHDR":
            width, height, depth, colour, _, _, interlace = struct.unpack(">IIBBBBB", body)
            assert depth == 8 and colour in (2, 6) and interlace == 0
            bpp = 3 if colour == 2 else 4
        elif kind == b"IDAT":
            packed += body
        at += 12 + size
    raw, stride = zlib.decompress(packed), width * bpp
    last, rows = bytearray(stride), []
    for y in range(height):
        start = y * (stride + 1)
        how, line = raw[start], bytearray(raw[start + 1:start + 1 + stride])
        for x in range(stride):
            left = line[x - bpp] if x >= bpp else 0
            up = last[x]
            corner = last[x - bpp] if x >= bpp else 0
            if how == 1:
                add = left
            elif how == 2:
                add = up
            elif how == 3:
                add = (left + up) // 2
            elif how == 4:
                p = left + up - corner
                add = min((abs(p - left), 0, left), (abs(p - up), 1, up), (abs(p - corner), 2, corner))[2]
            else:
                add = 0
            line[x] = (line[x] + add) & 255
        rows.append([tuple(line[x:x + 3]) for x in range(0, stride, bpp)])
        last = line
    return rows


def main():
    page = Path(sys.argv[1]).resolve()
    text = page.read_text(encoding="utf-8")
    assert len(text) < 5_000_000, f"the report has {len(text)} characters"
    for needle in ('src="http', "src='http", 'href="http', "url(http", "@import"):
        assert needle not in text, f"the report refers to the network: {needle}"
    assert "default-src 'none'" in text

    with tempfile.TemporaryDirectory() as folder:
        dom, console = chromium(folder + "/dom", "--dump-dom", page.as_uri())
        assert not console, "console messages:\n" + "\n".join(console)
        # The script ran to its end: it filled the choices and the scale.
        views = re.search(r'<select id="view"[^>]*>(.*?)</select>', dom, re.S).group(1).count("<option")
        high = re.search(r'<span id="high">([^<]+) events</span>', dom)
        assert views >= 2, f"{views} views to choose from"
        assert high, "the scale has no upper end: the matrix was not drawn"
        figures = re.findall(r'<figure class="card[^"]*" id="([^"]+)"', dom)
        for name in ("timeline", "behaviour", "phase-matrices", "load", "exclusivity", "exclusivity-by-page-size",
                     "pages-per-node", "accesses-per-node", "balance", "accuracy", "migrations", "page-behaviour"):
            assert name in figures, f"figure {name} is missing"

        # The answer comes first, with commands to copy; the script took over the tips.
        assert dom.index('class="verdicts"') < dom.index("Run next") < dom.index('id="heat"')
        assert "numaloc run --plan" in dom and dom.count("<title>") == 1, "tips of the figures are not at once"

        # A reader sorts, searches and saves.
        used = Path(folder, "used.html")
        used.write_text(text.replace("</body>", READER + "</body>"), encoding="utf-8")
        # Once in some dozens of runs Chromium ends before the script does, without a message.
        for attempt in range(3):
            dom, console = chromium(f"{folder}/used-{attempt}", "--dump-dom", used.as_uri(), milliseconds=120_000)
            assert not console, "console messages:\n" + "\n".join(console)
            left = re.search(r'<pre id="seen">(.*?)</pre>', dom, re.S)
            if left:
                break
        assert left, f"the reader's script left nothing: {len(dom)} characters, at the end {dom[-300:]}"
        seen = json.loads(html.unescape(left.group(1)))
        assert len(seen["down"]) > 1 and seen["down"] == sorted(seen["down"], reverse=True), seen["down"]
        assert seen["up"] == sorted(seen["up"]), seen["up"]
        assert seen["cells"] == ["'=1+1", "\"'-x,y\"", "-1.5", "''=", "heap"], seen["cells"]
        assert seen["found"].startswith("0 of "), seen["found"]
        assert len(seen["lanes"]) == 3 and all(re.search(r", slices? \d+.*: \S+ ?\w* \w+$", told) for _, told in seen["lanes"]), \
            seen["lanes"]
        kinds = [kind for kind, _, _ in seen["saved"]]
        assert kinds == ["text/csv", "image/svg+xml", "text/csv", "image/png"], kinds
        assert seen["saved"][0][2].startswith("object,accesses,pages"), seen["saved"][0]
        assert re.match(r'item,value\n"?node 0, first touch"?,', seen["saved"][2][2]), seen["saved"][2]
        assert seen["saved"][3][1] > 5000, "the picture of a figure is empty"

        shot = Path(sys.argv[2] if len(sys.argv) > 2 else folder + "/shot.png").resolve()
        _, console = chromium(folder + "/shot", f"--screenshot={shot}", page.as_uri())
        assert not console, "console messages:\n" + "\n".join(console)
        rows = pixels(shot)
        # The darkest and the lightest end of the matrix's scale are both on the screen, in area.
        seen = {}
        for row in rows[::2]:
            for pixel in row[::2]:
                seen[pixel] = seen.get(pixel, 0) + 1
        near = lambda colour: sum(
            count for pixel, count in seen.items() if max(abs(a - b) for a, b in zip(pixel, colour)) <= 3)
        assert near((27, 42, 90)) > 200, "no full cell of the matrix is drawn"
        assert near((246, 246, 243)) > 200, "no empty cell of the matrix is drawn"
    print(f"browser: {len(figures)} figures, {views} views, no console message, {len(text)} characters")
    print("1 passed, 0 failed")


if __name__ == "__main__":
    main()
