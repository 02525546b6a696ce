"""The form of the golden renderings: {"lines": [...], "cases": {name: [line numbers] or {"error", "kind", "line"}}}.

The lines that the renderings of a template are made of stand there once each: they are mostly the same ones.
"""
import json

import oracle


def complete(cases):
    """Cases with their defaults written out."""
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    return [{"add_generation_prompt": True, **case, "variables": {**tokens, **case.get("variables", {})}} for case in cases]


def dumped(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def renderings(source, cases):
    lines, results = {}, {}
    for case in cases:
        result = oracle.render(source, case["messages"], case.get("tools"), case.get("documents"),
                               case["add_generation_prompt"], **case["variables"])
        if "text" in result:
            result = [lines.setdefault(line, len(lines)) for line in result["text"].split("\n")]
        results[case["name"]] = result
    # A line of the file for each line of text and each case, for diffs that can be read.
    entries = ",\n".join(f"{dumped(name)}:{dumped(result)}" for name, result in results.items())
    return '{"lines":[\n' + ",\n".join(map(dumped, lines)) + '\n],\n"cases":{\n' + entries + "\n}}\n"
