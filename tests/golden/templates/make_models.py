#!/usr/bin/env python3
"""Renders chat templates with every conversation, set of tools and set of options of conversations.py, and writes hashes of
what the reference engine makes of them: models.txt, and the inputs as models.json.

    python3 make_models.py FOLDER_WITH_TEMPLATES...      all *.jinja in them

models.txt: a line "= TEMPLATE", then for each conversation (in order) a line of 12 hashes: tools by options, options
fastest. A hash is FNV-1a of 64 bits, folded to 32 and in hex, over "text:" and the rendering, or "error:LINE:" and the message of
what raise_exception refused, or "refused:" and the line where anything else went wrong.
"""
import json
import re
import sys
from pathlib import Path

import oracle
from conversations import OPTIONS, TALKS, TOKENS, TOOLS

HERE = Path(__file__).parent


def outcome(result):
    if "text" in result:
        return "text:" + result["text"]
    if result["kind"] == "TemplateError":
        return f"error:{result['line']}:{result['error']}"
    return "refused:" + str(result["line"])


def hashed(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value >> 32 ^ value & 0xFFFFFFFF:08x}"


def with_reasoning_names(source, message):
    """As chat_template.cpp prepares it: reasoning stands under the name that the template reads."""
    reads = {name for name in ("reasoning_content", "thinking") if re.search(rf"\.{name}\b|['\"]{name}['\"]", source)}
    if "reasoning_content" not in message or "reasoning_content" in reads:
        return message
    return {**message, **{name: message["reasoning_content"] for name in reads}}


def families():
    """Those of choose_template.cpp, which are ours."""
    code = (HERE / "../../../runtime/text/chat/choose_template.cpp").read_text()
    sources = dict(re.findall(r'(k\w+) = R"jinja\((.*?)\)jinja"', code, re.DOTALL))
    return {"family." + name: sources[constant] for name, constant in re.findall(r'\{"([\w-]+)", (k\w+), "', code)}


def renderings(source, talk):
    talk = [with_reasoning_names(source, message) for message in talk]
    for tools in TOOLS.values():
        for options in OPTIONS.values():
            yield outcome(oracle.render(source, talk, tools, **{**TOKENS, **options}))


def main():
    inputs = {"tokens": TOKENS, "talks": TALKS, "tools": TOOLS, "options": OPTIONS}
    (HERE / "models.json").write_text(json.dumps(inputs, ensure_ascii=False, indent=0) + "\n")
    lines = []
    found = sorted(path for folder in sys.argv[1:] for path in Path(folder).glob("*.jinja"))
    for name, source in {**families(), **{path.stem: path.read_text() for path in found}}.items():
        lines.append("= " + name)
        lines += [" ".join(map(hashed, renderings(source, talk))) for talk in TALKS.values()]
    (HERE / "models.txt").write_text("\n".join(lines) + "\n")


main()
