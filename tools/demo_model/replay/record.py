#!/usr/bin/env python3
"""Writes prompts.jsonl and answers.jsonl, the bundled model's answers to those prompts, for `slipstream-lab replay`.

    tools/demo_model/replay/record.py build/release/slipstream

Each prompt is answered twice, greedily and by sampling at temperature 0.8; these are two categories. Drafting does not
change an answer, so answers are recorded without it.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

MAX_TOKENS = 200
KINDS = {"greedy": ["--temperature", "0"], "drawn": ["--temperature", "0.8", "--top-p", "0.95", "--seed", "7"]}


def answer(program, prompt, options):
    with tempfile.TemporaryDirectory() as folder:
        stats = pathlib.Path(folder) / "stats.json"
        command = [program, "generate", "--no-config", "-q", "--draft", "none", "--prompt", prompt,
                   "--max-tokens", str(MAX_TOKENS), "--stats", str(stats), *options]
        text = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.decode()
        return text, json.loads(stats.read_text())["generated_tokens"]


def main():
    program = sys.argv[1]
    here = pathlib.Path(__file__).resolve().parent
    prompts, answers = [], []
    for kind, options in KINDS.items():
        for file in sorted((here.parent / "prompts").glob("*.txt")):
            prompt = file.read_text()
            question = {"question_id": len(prompts) + 1, "category": kind}
            text, new_tokens = answer(program, prompt, options)
            prompts.append({**question, "turns": [prompt]})
            answers.append({**question, "choices": [{"turns": [text], "new_tokens": [new_tokens]}]})
    for name, lines in (("prompts.jsonl", prompts), ("answers.jsonl", answers)):
        (here / name).write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


if __name__ == "__main__":
    main()
