"""Bar charts as SVG files: groups of bars around zero or above it."""
from html import escape

COLOURS = ["#2f6db5", "#e07b39", "#2f9e77", "#c2476b", "#7a5cc0", "#b8961f", "#3aa6c4", "#8c6d52"]
LEFT, TOP, HEIGHT, BELOW = 56, 44, 220, 76


def step_of(span):
    """A round distance of grid lines for that span of values: 1, 2 or 5 times a power of ten."""
    step = 1e-6
    while True:
        for factor in (1, 2, 5):
            if span <= 5 * step * factor:
                return step * factor
        step *= 10


def bars(title, unit, groups, series):
    """SVG of a bar for each series in each group; `series`: [(name, [value or None, by group])]."""
    values = [value for _, row in series for value in row if value is not None]
    low, high = min([0, *values]), max([0, *values])
    if low == high:
        high = 1
    step = step_of(high - low)
    low, high = -step * -(low // step), step * -(-high // step)
    width = max(46, 7 * len(series) + 12)
    whole = LEFT + width * len(groups) + 12
    place = lambda value: TOP + HEIGHT * (high - value) / (high - low)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole} {TOP + HEIGHT + BELOW}" width="{whole}" '
           f'height="{TOP + HEIGHT + BELOW}" role="img" aria-label="{escape(title)}" font-family="sans-serif" font-size="10">',
           f'<rect width="100%" height="100%" fill="#ffffff"/><text x="{LEFT}" y="14" font-size="12">{escape(title)}'
           f' ({escape(unit)})</text>']
    at = LEFT
    for index, (name, _) in enumerate(series):
        out.append(f'<rect x="{at}" y="22" width="9" height="9" fill="{COLOURS[index % len(COLOURS)]}"/>'
                   f'<text x="{at + 13}" y="30">{escape(name)}</text>')
        at += 24 + 6 * len(name)
    value = low
    while value <= high + step / 2:
        y = place(value)
        out.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{whole - 8}" y2="{y:.1f}" stroke="#d9dce1"/>'
                   f'<text x="{LEFT - 6}" y="{y + 3:.1f}" text-anchor="end" fill="#5c6675">{value:g}</text>')
        value = round(value + step, 9)
    for group, name in enumerate(groups):
        x = LEFT + width * group + 6
        for index, (_, row) in enumerate(series):
            if row[group] is None:
                continue
            y, zero = place(row[group]), place(0)
            out.append(f'<rect x="{x + 7 * index}" y="{min(y, zero):.1f}" width="6" height="{max(abs(zero - y), 0.5):.1f}" '
                       f'fill="{COLOURS[index % len(COLOURS)]}"><title>{escape(name)}, {escape(series[index][0])}: '
                       f'{row[group]:.4g}</title></rect>')
        middle = x + 3.5 * len(series)
        y = TOP + HEIGHT + 12
        out.append(f'<text x="{middle:.1f}" y="{y}" text-anchor="end" transform="rotate(-40 {middle:.1f} {y})">'
                   f'{escape(name)}</text>')
    return "\n".join(out) + "\n</svg>\n"
