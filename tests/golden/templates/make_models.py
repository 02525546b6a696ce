#!/usr/bin/env python3
"""Renders the chat templates of models with the conversations of conversations.py as transformers does.

    python3 make_models.py FOLDER_WITH_TEMPLATES      writes models/cases.json and models/NAME.json for each NAME.jinja
"""
import sys
from pathlib import Path

import golden
from conversations import CASES

HERE = Path(__file__).parent


def main():
    out = HERE / "models"
    out.mkdir(exist_ok=True)
    cases = golden.complete(CASES)
    (out / "cases.json").write_text("[\n" + ",\n".join(map(golden.dumped, cases)) + "\n]\n")
    for path in sorted(Path(sys.argv[1]).glob("*.jinja")):
        (out / (path.stem + ".json")).write_text(golden.renderings(path.read_text(), cases))


main()
