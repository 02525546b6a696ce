#!/usr/bin/env python3
"""Renders the templates of runtime/text/chat/template_families.cpp: writes fallbacks.json, {family: renderings}."""
import json
import re
from pathlib import Path

import golden
from conversations import CASES

HERE = Path(__file__).parent
NAMES = ["one user turn", "one user turn, no generation prompt", "several turns", "several turns with system",
         "ends with the assistant", "odd text", "empty texts", "system alone"]


def main():
    code = (HERE / "../../../runtime/text/chat/template_families.cpp").read_text()
    sources = dict(re.findall(r'(k\w+) = R"jinja\((.*?)\)jinja"', code, re.DOTALL))
    families = re.findall(r'\{"([\w-]+)", (k\w+), "', code)
    cases = golden.complete([case for case in CASES if case["name"] in NAMES])
    entries = [f'"{name}":{golden.renderings(sources[constant], cases)}' for name, constant in families]
    text = "{\n" + ",\n".join(entries) + "}\n"
    json.loads(text)
    (HERE / "fallbacks.json").write_text(text)


main()
