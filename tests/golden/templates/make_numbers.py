#!/usr/bin/env python3
"""How Python spells, rounds and formats floats, and its character classes and case mappings. Writes numbers.json, unicode.json.

    python3 make_numbers.py       (Python 3.11: Unicode 14)
"""
import json
import random
import struct
from pathlib import Path

HERE = Path(__file__).parent
DIGITS = [-3, -1, 0, 1, 2, 5]
SPECS = [".0f", ".3f", "+.2e", ".4g", ",.1f", "012.3f", ">14", ".3", "%", "#.0f", "G", "^14.2f", ".0%", "_.2f"]
CONVERSIONS = ["%d", "%.2f", "%8.3e|", "%-10g|", "%+05.1f", "%s"]


def bits(number):
    return struct.pack(">d", number).hex()


def numbers():
    rng = random.Random(7)
    values = [0.0, -0.0, 0.5, 1.5, 2.5, -2.5, 0.1, 1e15, 1e16, 123456789.125, 1e-4, 1e-5, 5e-324, 1.7976931348623157e308, 1e22, 1e23,
              2.675, 1250.0, 12345.0, 99999.5, 9.995, 0.05, 1000.0, 4503599627370497.5]
    values += [round(rng.uniform(-1000, 1000), rng.randrange(6)) for _ in range(60)]
    values += [rng.uniform(-1, 1) * 10 ** rng.randrange(-12, 18) for _ in range(60)]
    while len(values) < 180:
        value = struct.unpack(">d", rng.randbytes(8))[0]
        if value == value and abs(value) != float("inf"):
            values.append(value)
    rows = []
    for value in values:
        # Of the largest numbers, which print with hundreds of digits, only what is short.
        small = abs(value) < 1e18
        rows.append([bits(value), repr(value), [bits(round(value, n)) for n in DIGITS],
                     [format(value, s) for s in SPECS] if small else [], [c % value for c in CONVERSIONS] if small else []])
    return {"digits": DIGITS, "specs": SPECS, "conversions": CONVERSIONS, "rows": rows}


def fnv(text):
    result = 0xCBF29CE484222325
    for byte in text.encode():
        result = (result ^ byte) * 0x100000001B3 % 2**64
    return f"{result:016x}"


def unicode_tables():
    """A hash for each function over all code points but surrogates, and how many answer true or change."""
    code_points = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    tests = ["isspace", "isprintable", "isalpha", "isdecimal", "isdigit", "isnumeric", "islower", "isupper", "isidentifier"]
    result = {}
    for name in tests:
        answers = "".join("1" if getattr(c, name)() else "0" for c in code_points)
        result[name] = [answers.count("1"), fnv(answers)]
    answers = "".join("1" if ("a" + c).isidentifier() else "0" for c in code_points)
    result["isidentifier behind a letter"] = [answers.count("1"), fnv(answers)]
    for name in ["upper", "lower", "title", "capitalize", "swapcase"]:
        texts = [getattr(c, name)() for c in code_points]
        result[name] = [sum(a != b for a, b in zip(texts, code_points)), fnv("\n".join(texts))]
        # In the middle of words, where title and lower case depend on what stands around.
        texts = [getattr("a" + c + "\u03a3 " + c + "b\u03a3", name)() for c in code_points if c < "\U00011000"]
        result[name + " in words"] = [len(texts), fnv("\n".join(texts))]
    return result


(HERE / "numbers.json").write_text(
    json.dumps(numbers(), separators=(",", ":")).replace("]],[", "]],\n[") + "\n")
(HERE / "unicode.json").write_text(json.dumps(unicode_tables(), indent=1) + "\n")
