#!/usr/bin/env python3
"""Draws tools/pass.svg, the README's picture of one forward pass. Uses the standard library only.

    draw_pass.py OUT.svg

Top: where the layers of a model are, and the tree of draft tokens that one pass verifies. Bottom: link and compute over
time, for a pass of 1 token and a pass of 64. The timeline is computed from the three durations below by the rules of
the prefetcher: one copy at a time, a copy waits until the ring has a free slot, a layer waits for its copy. The
durations are chosen for readability; they are not measurements.
"""
import sys

COPY = 96.0  # copying a layer over the link, in pixels of the timeline
COMPUTE = {1: 7.0, 64: 26.0}  # computing a layer, in pixels, by tokens in the pass
RING_SLOTS = 2
RESIDENT = (True, False) * 4  # for each layer of the model; resident layers are spread evenly
N_PASSES = 2

WIDTH, HEIGHT = 960, 566
INK, FAINT, PAPER = "#25292e", "#6b7280", "#ffffff"
BLUE, ORANGE, GREEN, GREY = "#2f6db3", "#d9730d", "#2e8b57", "#c3c8cf"


def box(x, y, width, height, fill, stroke=INK, dashed=False, radius=3):
    dash = ' stroke-dasharray="4 3"' if dashed else ""
    return (f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{radius}" fill="{fill}" '
            f'stroke="{stroke}"{dash}/>')


def text(x, y, words, anchor="start", size=13, fill=INK, weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{fill}" '
            f'font-weight="{weight}">{words}</text>')


def arrow(x1, y1, x2, y2, stroke=INK, width=1.5):
    return (f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{stroke}" stroke-width="{width}" '
            f'marker-end="url(#head)"/>')


def layers(x, y, shown, fill, outline_others):
    """Returns a row of boxes, one per layer. Layers for which `shown` is false are dashed outlines, or left out."""
    out = []
    for i in range(len(RESIDENT)):
        left = x + 34 * i
        if shown(i):
            out += [box(left, y, 28, 44, fill, "none"), text(left + 14, y + 27, str(i), "middle", fill="#ffffff")]
        elif outline_others:
            out += [box(left, y, 28, 44, "none", ORANGE, dashed=True), text(left + 14, y + 27, str(i), "middle", fill=ORANGE)]
    return out


def memory():
    """Returns host memory, link and GPU memory."""
    out = [box(20, 44, 200, 150, "#f6f2ec", "none", radius=6), text(32, 66, "Host memory (pinned)", weight="bold")]
    streamed = [i for i, resident in enumerate(RESIDENT) if not resident]
    for j, i in enumerate(streamed):
        out += [box(40 + 40 * j, 84, 34, 44, ORANGE, "none"), text(57 + 40 * j, 111, str(i), "middle", fill="#ffffff")]
    out += [text(32, 156, "weights of the layers (and KV)", fill=FAINT, size=12),
            text(32, 174, "that exceed the GPU memory", fill=FAINT, size=12)]
    out += [arrow(222, 106, 302, 106, ORANGE, 4), text(262, 88, "PCIe link", "middle", size=12),
            text(264, 130, "once per", "middle", size=12, fill=FAINT), text(264, 146, "pass", "middle", size=12, fill=FAINT)]
    out += [box(310, 44, 312, 150, "#eef3f9", "none", radius=6), text(322, 66, "GPU memory", weight="bold")]
    out += layers(330, 84, lambda i: RESIDENT[i], BLUE, True)
    out += [text(322, 156, "blue: resident layers", fill=BLUE, size=12),
            text(322, 174, "dashed: pass through a ring of a few slots", fill=ORANGE, size=12)]
    return out


def tree():
    """Returns the tokens of one pass: the last committed token, draft tokens, and those that verification accepts."""
    out = [box(650, 44, 290, 150, "#eff6f1", "none", radius=6), text(662, 66, "Tokens of one pass", weight="bold")]
    nodes = {"a": (682, 112), "b": (742, 92), "c": (742, 134), "d": (802, 82), "e": (802, 108), "f": (802, 134),
             "g": (862, 96), "h": (862, 122), "i": (918, 96)}
    edges = ["ab", "ac", "bd", "be", "cf", "eg", "eh", "gi"]
    accepted = "abeg"
    for one, other in edges:
        (x1, y1), (x2, y2) = nodes[one], nodes[other]
        good = one in accepted and other in accepted
        out.append(f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{GREEN if good else GREY}" stroke-width="2"/>')
    for name, (x, y) in nodes.items():
        out.append(f'<circle cx="{x}" cy="{y}" r="8" fill="{INK if name == "a" else GREEN if name in accepted else GREY}"/>')
    out += [text(662, 166, "black: the last token", size=12), text(662, 184, "green: draft tokens accepted", size=12, fill=GREEN),
            text(850, 184, "grey: rejected", size=12, fill=FAINT)]
    return out


def schedule(n_tokens):
    """Returns copies and computing of N_PASSES passes, each as [(layer, start, end)], and the ends of the passes."""
    copies, computing, ends = [], [], []
    link_free = device_free = 0.0
    released = []  # times at which the slots of earlier copies became free
    for _ in range(N_PASSES):
        for i, resident in enumerate(RESIDENT):
            ready = 0.0
            if not resident:
                slot_free = released[len(copies) - RING_SLOTS] if len(copies) >= RING_SLOTS else 0.0
                start = max(link_free, slot_free)
                link_free = ready = start + COPY
                copies.append((i, start, link_free))
            start = max(device_free, ready)
            device_free = start + COMPUTE[n_tokens]
            computing.append((i, start, device_free))
            if not resident:
                released.append(device_free)
        ends.append(device_free)
    return copies, computing, ends


def timeline(n_tokens, y, words):
    copies, computing, ends = schedule(n_tokens)
    left = 128
    out = [text(20, y - 8, words, weight="bold"), text(left - 12, y + 21, "link", "end", 12, FAINT),
           text(left - 12, y + 55, "compute", "end", 12, FAINT)]
    for i, start, end in copies:
        out += [box(left + start, y + 4, end - start - 2, 26, ORANGE, "none"),
                text(left + (start + end) / 2, y + 22, f"copy {i}", "middle", 12, "#ffffff")]
    for i, start, end in computing:
        out.append(box(left + start, y + 38, end - start - 1, 26, BLUE if RESIDENT[i] else ORANGE, "none", radius=1))
    for k, end in enumerate(ends):
        out.append(f'<line x1="{left + end:.1f}" x2="{left + end:.1f}" y1="{y}" y2="{y + 84}" stroke="{INK}" stroke-dasharray="2 3"/>')
        out.append(text(left + end - 6, y + 82, f"end of pass {k + 1}", "end", 12))
    return out


def picture():
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
           'font-family="Helvetica, Arial, sans-serif">',
           '<title>A forward pass of a model that does not fit into GPU memory</title>',
           f'<defs><marker id="head" markerWidth="4" markerHeight="4" refX="2" refY="2" orient="auto">'
           f'<path d="M0,0 L4,2 L0,4 z" fill="{ORANGE}"/></marker></defs>',
           box(0, 0, WIDTH, HEIGHT, PAPER, "none", radius=0),
           text(20, 28, "A forward pass of a model that does not fit into GPU memory", size=16, weight="bold")]
    out += memory() + tree()
    out += timeline(1, 248, "Plain decoding: a pass of 1 token waits for the link")
    out += timeline(64, 386, "Speculative decoding: 1 token and 63 draft tokens in the same time; all that are accepted are committed at once")
    out += [text(20, 506, "Time runs to the right. The copies of pass 2 begin while pass 1 still computes, so the link is never idle. Layers computed from", size=12, fill=FAINT),
            text(20, 524, "resident weights are blue, from streamed weights orange. Durations are chosen to be readable; measured ones are in the table of", size=12, fill=FAINT),
            text(20, 542, "README. Beyond some number of tokens computing takes longer than the link; the plan and the measured passes limit the tree there.", size=12, fill=FAINT)]
    return "\n".join(out + ["</svg>"]) + "\n"


def main(arguments):
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    with open(arguments[0], "w", encoding="utf-8") as file:
        file.write(picture())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
