#!/usr/bin/env python3
"""Draws results of `slipstream bench --json` and `slipstream-lab views --json` as SVG. Uses the standard library only.

    plot_views.py acceptance OUT.svg TITLE=FILE.json...   acceptance against the budget of a view, a line per view
    plot_views.py speed OUT.svg TITLE=FILE.json,FILE...   tokens/s against the tokens of the prompt, a line per source

Each TITLE becomes a panel.
"""
import json
import math
import sys

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 320, 260, 48, 18, 28, 40
COLOURS = ["#0b6e99", "#d9730d", "#448361", "#9f6b53", "#6940a5", "#ad1a72", "#787774"]


def nice_step(span):
    """Returns a step of 1, 2 or 5 times a power of ten that divides `span` into four to nine parts."""
    power = 10 ** math.floor(math.log10(span / 4))
    return next(power * step for step in (1, 2, 5, 10) if span / (power * step) <= 8)


def text(x, y, words, anchor="middle", size=11):
    words = words.replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{words}</text>'


def panel(at, title, lines, x_label, y_label, y_range, colours):
    """Returns one chart of `lines`, {name: [(x, y)]}, `at` pixels from the left."""
    points = [point for line in lines.values() for point in line]
    xs = sorted({x for x, _ in points})
    x_low, x_high = math.log(xs[0]), math.log(xs[-1])
    low, high = y_range

    def place(x, y):
        share = (math.log(x) - x_low) / (x_high - x_low) if x_high > x_low else 0.5
        return (at + LEFT + share * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - (y - low) / (high - low) * (HEIGHT - TOP - BOTTOM))

    out = [text(at + WIDTH / 2, 16, title, size=12)]
    step = nice_step(high - low)
    y = math.ceil(low / step - 1e-9) * step
    while y <= high + 1e-9:
        _, row = place(xs[0], y)
        out.append(f'<line x1="{at + LEFT}" x2="{at + WIDTH - RIGHT}" y1="{row:.1f}" y2="{row:.1f}" stroke="#e3e2e0"/>')
        out.append(text(at + LEFT - 6, row + 4, f"{y:g}", "end"))
        y = round(y + step, 10)
    for x in xs:
        out.append(text(place(x, low)[0], HEIGHT - BOTTOM + 16, f"{x:g}"))
    out.append(text(at + LEFT + (WIDTH - LEFT - RIGHT) / 2, HEIGHT - 6, x_label))
    out.append(f'<g transform="rotate(-90 {at + 12} {HEIGHT / 2})">{text(at + 12, HEIGHT / 2, y_label)}</g>')
    for name, line in lines.items():
        dots = [place(x, y) for x, y in sorted(line)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in dots)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colours[name]}" stroke-width="2"/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colours[name]}"/>' for x, y in dots]
    return "\n".join(out)


def picture(panels, x_label, y_label, from_zero):
    """Returns an SVG with the panels [(title, lines)], which share a scale and a legend."""
    values = [y for _, lines in panels for line in lines.values() for _, y in line]
    low = 0.0 if from_zero else math.floor(min(values) * 20) / 20
    high = math.ceil(max(values) * 20) / 20 if not from_zero else max(values) * 1.05
    names = list(dict.fromkeys(name for _, lines in panels for name in lines))
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}
    width = WIDTH * len(panels)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{HEIGHT + 42}" font-family="sans-serif">',
           f'<rect width="{width}" height="{HEIGHT + 42}" fill="white"/>']
    out += [panel(i * WIDTH, title, lines, x_label, y_label, (low, high), colours)
            for i, (title, lines) in enumerate(panels)]
    at, row = LEFT, HEIGHT + 6
    for name in names:
        if at > LEFT and at + 16 + 7 * len(name) > width:
            at, row = LEFT, row + 18
        out.append(f'<rect x="{at}" y="{row}" width="12" height="12" fill="{colours[name]}"/>')
        out.append(text(at + 16, row + 10, name, "start"))
        at += 32 + 7 * len(name)
    return "\n".join(out) + "\n</svg>\n"


def acceptance(runs):
    lines = {}
    for run in runs:
        for view in run["views"]:
            name = view["view"] if view.get("type", "f16") == "f16" else f'{view["view"]}, {view["type"]}'
            lines.setdefault(name, []).append((view["budget"], view["acceptance"]))
    return lines


def speed(runs):
    """Returns the lines of a panel. If a source occurs in several runs, the fastest counts: plain decoding without the
    memory of a view."""
    fastest = {}
    for run in runs:
        for column in run["drafts"]:
            line = fastest.setdefault(column["draft"], {})
            line[run["prompt_tokens"]] = max(line.get(run["prompt_tokens"], 0.0), column["tokens_per_second"])
    return {name: list(line.items()) for name, line in fastest.items()}


def main():
    if len(sys.argv) < 4 or sys.argv[1] not in ("acceptance", "speed"):
        sys.exit(__doc__)
    kind, out = sys.argv[1:3]
    panels = []
    for argument in sys.argv[3:]:
        title, _, files = argument.rpartition("=")
        runs = [run for file in files.split(",") for run in json.load(open(file, encoding="utf-8"))["runs"]]
        panels.append((title, acceptance(runs) if kind == "acceptance" else speed(runs)))
    labels = ("tokens of a view", "acceptance") if kind == "acceptance" else ("tokens of the prompt", "tokens/s")
    with open(out, "w", encoding="utf-8") as file:
        file.write(picture(panels, *labels, from_zero=kind == "speed"))


if __name__ == "__main__":
    main()
