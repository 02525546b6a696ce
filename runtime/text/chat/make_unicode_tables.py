#!/usr/bin/env python3
"""Writes unicode_tables.cpp beside itself: what Python's str methods know of Unicode, as runs of code points.

    python3 make_unicode_tables.py        (Python 3.11: Unicode 14)

A run is {first, last, step}: every step-th code point from first to last. A case run adds what is added to each. Mappings to
several characters (SpecialCasing.txt) stand in a list of their own, lower-casing of the final sigma is code.
"""
import sys
import textwrap
import unicodedata
from pathlib import Path

LAST = 0x110000


def runs(points):
    """Greedy runs of step 1 or 2 over a sorted list."""
    result, i = [], 0
    while i < len(points):
        best = (points[i], points[i], 1)
        for step in (1, 2):
            j = i
            while j + 1 < len(points) and points[j + 1] == points[j] + step:
                j += 1
            if points[j] - points[i] > best[1] - best[0] and (step == 1 or j - i > 1):
                best = (points[i], points[j], step)
        result.append(best)
        i += (best[1] - best[0]) // best[2] + 1
    return result


def chars(test):
    return [c for c in range(LAST) if not 0xD800 <= c < 0xE000 and test(chr(c))]


def case_runs(convert):
    """Single-character mappings by what they add, and the mappings to several characters."""
    moved, special = {}, []
    for c in range(LAST):
        if 0xD800 <= c < 0xE000:
            continue
        text = convert(chr(c))
        if len(text) > 1:
            special.append((c, text))
        elif text != chr(c):
            moved.setdefault(ord(text) - c, []).append(c)
    result = [(first, last, step, delta) for delta, points in moved.items() for first, last, step in runs(points)]
    return sorted(result), special


def flat(run_list):
    return ", ".join("{" + ",".join(hex(x) if i < 2 else str(x) for i, x in enumerate(r)) + "}" for r in run_list)


def wrapped(items):
    return textwrap.fill(items, width=118, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)


def overlaps(run_list):
    return any(a[1] >= b[0] for a, b in zip(run_list, run_list[1:]))


def single(run_list):
    """Interleaved runs taken apart into single code points where they overlap, so that a search by first finds all."""
    while overlaps(run_list):
        for i, (a, b) in enumerate(zip(run_list, run_list[1:])):
            if a[1] >= b[0]:
                extra = a[3:]
                head = [(a[0], a[0], 1) + extra]
                rest = [(a[0] + a[2], a[1], a[2]) + extra] if a[0] < a[1] else []
                run_list = sorted(run_list[:i] + head + rest + run_list[i + 1:])
                break
    return run_list


def spelled(char):
    return char if char.isascii() else f"\\U{ord(char):08x}"


def main():
    # A character is cased, and ignorable, as the final-sigma rule of str.lower() sees it: find out by asking it.
    final = [c for c in range(LAST) if not 0xD800 <= c < 0xE000]
    cased = [c for c in final if (chr(c) + "\u03a3").lower().endswith("\u03c2")]
    known = set(cased)
    ignorable = [c for c in final if c not in known and ("a" + chr(c) + "\u03a3").lower().endswith("\u03c2")]
    tables = {
        "kUnprintable": runs(chars(lambda c: not c.isprintable())),
        "kAlpha": runs(chars(str.isalpha)),
        "kDecimal": runs(chars(str.isdecimal)),
        "kDigit": runs(chars(lambda c: c.isdigit() and not c.isdecimal())),
        "kNumeric": runs(chars(lambda c: c.isnumeric() and not c.isdigit())),
        "kLower": runs(chars(str.islower)),
        "kUpper": runs(chars(str.isupper)),
        "kTitle": runs(chars(lambda c: unicodedata.category(c) == "Lt")),
        # Letters may begin and continue identifiers, but for some; and some others may.
        "kStartLetterNot": runs(chars(lambda c: c.isalpha() and not c.isidentifier())),
        "kStartOther": runs(chars(lambda c: c.isidentifier() and not c.isalpha())),
        "kPartLetterNot": runs(chars(lambda c: c.isalpha() and not ("a" + c).isidentifier())),
        "kPartOther": runs(chars(lambda c: ("a" + c).isidentifier() and not c.isalpha())),
        "kCased": runs(cased),
        "kCaseIgnorable": runs(ignorable),
    }
    out = [
        "// Written by make_unicode_tables.py: do not edit.",
        f"// Unicode {unicodedata.unidata_version}, as Python {sys.version_info[0]}.{sys.version_info[1]} has it.",
        '#include "runtime/text/chat/unicode_tables.h"',
        "",
        "// clang-format off",
        "",
        "namespace slipstream::jinja::tables {",
        "",
    ]

    def array(kind, name, items):
        out.append(f"constexpr std::array<{kind}, {len(items)}> {name}Data = {{{{\n{wrapped(flat(items))}}}}};")
        out.append(f"const std::span<const {kind}> {name} = {name}Data;")

    for name, run_list in tables.items():
        array("Run", name, run_list)
    for name, convert in (("kToUpper", str.upper), ("kToLower", str.lower), ("kToTitle", str.title)):
        moved, special = case_runs(convert)
        array("CaseRun", name, single(moved))
        items = ", ".join("{%s,U\"%s\"}" % (hex(c), "".join(spelled(x) for x in text)) for c, text in special)
        out.append(f"constexpr std::array<SpecialCase, {len(special)}> {name}SpecialData = {{{{\n{wrapped(items)}}}}};")
        out.append(f"const std::span<const SpecialCase> {name}Special = {name}SpecialData;")
    out += ["", "}  // namespace slipstream::jinja::tables", ""]
    Path(__file__).with_name("unicode_tables.cpp").write_text("\n".join(out))


main()
