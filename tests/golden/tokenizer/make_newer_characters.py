#!/usr/bin/env python3
"""Writes the table of runtime/text/tokenizer/text_pattern.cpp to stdout: characters that Unicode added after version 14.

    python3 make_newer_characters.py      needs: tokenizers; Python 3.11 (whose unicodedata is Unicode 14)

The categories are asked of the tokenizers package (Oniguruma's tables), the ones to agree with.
"""
import sys
import unicodedata

from tokenizers import Regex, pre_tokenizers

CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp".split()
# An old character of the same category and UTF-8 length: (3 bytes, 4 bytes).
STAND_INS = {
    "Lu": (0x1E00, 0x10400), "Ll": (0x1E01, 0x10428), "Lm": (0x1D2C, 0x16B40), "Lo": (0xA000, 0x10000),
    "Mn": (0x0900, 0x10A01), "Mc": (0x0903, 0x11000), "Nd": (0x0966, 0x104A0), "No": (0x2070, 0x10107),
    "Pd": (0x2010, 0x10EAD), "Po": (0x2E43, 0x11FFF), "Sm": (0x2044, 0x1D6C1), "So": (0x2100, 0x10137),
}
HAN = 0x20000  # for new ideographs: patterns ask for the script as well
ALL = [point for point in range(1, 0x110000) if not 0xD800 <= point < 0xE000]


def members(name):
    splitter = pre_tokenizers.Split(Regex(f"\\p{{{name}}}"), "removed", invert=True)
    found = set()
    for begin in range(0, len(ALL), 5000):
        for text, _ in splitter.pre_tokenize_str("".join(map(chr, ALL[begin:begin + 5000]))):
            found.update(map(ord, text))
    return found


def main():
    assert unicodedata.unidata_version == "14.0.0", unicodedata.unidata_version
    rows = []
    han = members("Han")
    for category in CATEGORIES:
        for point in sorted(point for point in members(category) if unicodedata.category(chr(point)) == "Cn"):
            stand_in = HAN if point in han and category == "Lo" else STAND_INS[category][len(chr(point).encode()) - 3]
            assert unicodedata.category(chr(stand_in)) == category, (category, hex(stand_in))
            assert len(chr(stand_in).encode()) == len(chr(point).encode())
            if rows and rows[-1][1] == point - 1 and rows[-1][2] == stand_in:
                rows[-1][1] = point
            else:
                rows.append([point, point, stand_in])
    rows.sort()
    entries = [f"{{0x{first:x}, 0x{last:x}, 0x{stand_in:x}}}," for first, last, stand_in in rows]
    line = "   "
    for entry in entries:
        if len(line) + len(entry) > 118:
            print(line)
            line = "   "
        line += " " + entry
    print(line)
    print(len(entries), "ranges", file=sys.stderr)


main()
