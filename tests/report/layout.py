#!/usr/bin/env python3
"""Opens reports in headless Chromium at the widths of a phone, a tablet and a desktop, light and dark, and compares what is seen
with what was seen when somebody last looked at it.

usage: layout.py EXPECTED.json REPORT.html...  [--write] [--keep FOLDER]

For each report, width and theme: nothing is wider than the window unless it scrolls by itself, no text of a figure is cut off or
lies on another text, and a coarse picture of the page (mean brightness of a grid of cells) is that of EXPECTED.json. --write stores
what is seen; --keep leaves the screenshots in FOLDER, to be looked at before.
"""

import argparse
import html
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

WIDTHS = (360, 800, 1400)
THEMES = ("light", "dark")
# The picture is taken of the page down to this height, in pixels.
HEIGHT = 3000
# Cells of the coarse picture: across, down.
GRID = (8, 30)
# Difference of a cell's brightness (0 to 255) that fonts of another version make, and share of the cells that may differ more.
NEAR, FEW = 24, 0.04

MEASURE = """<script>addEventListener("load", () => setTimeout(() => {
  const dark = document.documentElement.dataset.theme === "dark" || matchMedia("(prefers-color-scheme: dark)").matches;
  if (dark !== ("THEME" === "dark")) document.getElementById("theme").click();
  const seen = { wide: [], cut: [], overlap: [] };
  const name = (e) => `${e.tagName.toLowerCase()}${e.id ? "#" + e.id : ""}${typeof e.className === "string" && e.className ? "." + e.className.split(" ").join(".") : ""} ` +
    JSON.stringify((e.textContent || "").trim().slice(0, 40));
  const scrolls = (e) => { for (let at = e.parentElement; at && at !== document.body; at = at.parentElement) {
    const how = getComputedStyle(at).overflowX; if (how === "auto" || how === "scroll" || how === "hidden") return true; } return false; };
  for (const e of document.body.querySelectorAll("*")) {
    const box = e.getBoundingClientRect();
    if (box.width && box.right > innerWidth + 1 && !scrolls(e) && !e.closest("svg")) seen.wide.push(name(e));
  }
  for (const svg of document.querySelectorAll("svg")) {
    const outer = svg.getBoundingClientRect(), id = (svg.parentNode.id || "") + ": ";
    const texts = [...svg.querySelectorAll("text")].map((e) => [e, e.getBoundingClientRect()]).filter(([, b]) => b.width);
    for (const [e, b] of texts)
      if (b.left < outer.left - 2 || b.right > outer.right + 2 || b.top < outer.top - 2 || b.bottom > outer.bottom + 2) seen.cut.push(id + e.textContent);
    for (let i = 0; i < texts.length; i++) for (let j = i + 1; j < texts.length && j < i + 60; j++) {
      const [a, b] = [texts[i][1], texts[j][1]];
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left), down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > 2 && down > 0.4 * Math.min(a.height, b.height)) seen.overlap.push(id + texts[i][0].textContent + " | " + texts[j][0].textContent);
    }
  }
  const left = document.createElement("pre");
  left.id = "measured"; left.hidden = true;
  left.textContent = JSON.stringify(seen);
  document.body.append(left);
}, 200));</script>"""


def chromium(profile, width, *flags):
    """Runs Chromium; its standard output."""
    return subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update", "--disable-extensions", "--hide-scrollbars",
         "--force-device-scale-factor=1", "--font-render-hinting=none", f"--user-data-dir={profile}",
         f"--window-size={width},{HEIGHT}", "--virtual-time-budget=20000", *flags],
        capture_output=True, text=True, timeout=300, check=True).stdout


def coarse(shot):
    """Mean brightness of the picture's cells, a row of two hexadecimal digits for each cell per line."""
    with Image.open(shot) as picture:
        small = picture.convert("L").resize(GRID, Image.Resampling.BOX)
    return [small.crop((0, row, GRID[0], row + 1)).tobytes().hex() for row in range(GRID[1])]


def differing(a, b):
    """Share of the cells whose brightness differs by more than NEAR."""
    cells = list(zip(bytes.fromhex("".join(a)), bytes.fromhex("".join(b)), strict=True))
    return sum(abs(x - y) > NEAR for x, y in cells) / len(cells)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("expected", type=Path)
    parser.add_argument("reports", type=Path, nargs="+")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--keep", type=Path)
    args = parser.parse_args()
    expected = {} if args.write else json.loads(args.expected.read_text(encoding="utf-8"))
    found, faults = {}, []
    with tempfile.TemporaryDirectory() as folder:
        shots = args.keep or Path(folder)
        shots.mkdir(exist_ok=True)
        for report in args.reports:
            text = report.read_text(encoding="utf-8")
            for width in WIDTHS:
                for theme in THEMES:
                    case = f"{report.stem}-{width}-{theme}"
                    page, shot = Path(folder, case + ".html"), shots / (case + ".png")
                    page.write_text(text.replace("</body>", MEASURE.replace("THEME", theme) + "</body>"), encoding="utf-8")
                    dom = chromium(folder + "/profile", width, "--dump-dom", page.as_uri())
                    seen = json.loads(html.unescape(re.search(r'<pre id="measured"[^>]*>(.*?)</pre>', dom, re.S).group(1)))
                    faults += [f"{case}: {kind}: {what}" for kind, names in seen.items() for what in names]
                    chromium(folder + "/profile", width, f"--screenshot={shot.resolve()}", page.as_uri())
                    found[case] = coarse(shot)
                    if not args.write and (share := differing(found[case], expected[case])) > FEW:
                        faults.append(f"{case}: {share:.0%} of the page looks different; look at it (--keep FOLDER), then --write")
    assert not faults, "\n".join(faults)
    if args.write:
        args.expected.write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")
    print(f"layout: {len(found)} pictures as expected")
    print(f"{len(found)} passed, 0 failed")


if __name__ == "__main__":
    main()
