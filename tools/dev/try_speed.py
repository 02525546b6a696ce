#!/usr/bin/env python3
"""Measures `slipstream serve` beside `generate`, and how soon a client that leaves makes room:

pairs   time to the first token and tokens per second of both, on prompts that the server has not seen, in turn
leave   clients that leave while their prompt streams layer by layer: time until the slot is free, beside that of a layer

usage: try_speed.py PROGRAM [-m MODEL] [--only NAME,...] [--pairs N] [--leave N] [--layers N] [--tokens N]
       [--max-tokens N] [-- OPTIONS OF both]
Times of the client against those of `generate --stats`, by their medians; the ratios of single pairs are printed, too.
Exit code 1 if a bound is not kept. Needs Python's library alone.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

from try_kept import Server, said, text_of_tokens

LAYER_BUDGET_SECONDS = 0.050  # beside a layer


def served(server, messages, max_tokens):
    """Returns (seconds to the first text, tokens per second after it)."""
    body = {"messages": messages, "max_tokens": max_tokens, "temperature": 0, "stream": True,
            "stream_options": {"include_usage": True}}
    began, first, usage = time.monotonic(), None, None
    with server.send("POST", "/v1/chat/completions", body) as connection:
        for line in connection.makefile("rb"):
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if any(choice["delta"].get("content") for choice in event["choices"]):
                last = time.monotonic()
                first = first or last
            usage = event.get("usage") or usage
    return first - began, (usage["completion_tokens"] - 1) / (last - first)


def generated(options, folder, messages, max_tokens):
    """The same of `generate`."""
    paths = [os.path.join(folder, name) for name in ("messages.json", "stats.json")]
    with open(paths[0], "w", encoding="utf-8") as file:
        json.dump(messages, file)
    subprocess.run([options.program, "generate", *options.model_options, "--messages", paths[0], "--temperature", "0",
                    "--max-tokens", str(max_tokens), "--tables", "off", "-q", "--stats", paths[1], *options.rest],
                   check=True, stdout=subprocess.DEVNULL)
    with open(paths[1], encoding="utf-8") as file:
        stats = json.load(file)
    return stats["prefill_seconds"], (stats["generated_tokens"] - 1) / stats["decode_seconds"]


def try_pairs(server, options, rng, folder):
    figures = {"served": [], "generated": []}
    for pair in range(options.pairs):
        messages = [said(f"{pair}. Tell me more. " + text_of_tokens(server, rng, options.tokens))]
        runs = [("served", lambda: served(server, messages, options.max_tokens)),
                ("generated", lambda: generated(options, folder, messages, options.max_tokens))]
        for name, run in runs if pair % 2 == 0 else reversed(runs):
            figures[name].append(run())
    ok = True
    for at, what in enumerate(["seconds to the first token", "tokens per second"]):
        columns = {name: [run[at] for run in runs] for name, runs in figures.items()}
        here, there = statistics.median(columns["served"]), statistics.median(columns["generated"])
        ok = ok and (here <= 1.03 * there if at == 0 else here >= there / 1.03)
        pairs = list(zip(columns["served"], columns["generated"]))
        ratios = [a / b for a, b in pairs]
        print(f"pairs: {what}, median: served {here:.4g}, generate {there:.4g}: {here / there:.3f}; median of ratios "
              f"{statistics.median(ratios):.3f}, worst {max(ratios) if at == 0 else min(ratios):.3f}; "
              + ", ".join(f"{a:.4g} and {b:.4g}" for a, b in pairs))
    return ok


def try_leave(server, options, rng, _folder):
    prompt = [said(text_of_tokens(server, rng, options.tokens))]
    body = {"messages": prompt, "max_tokens": 4, "temperature": 0, "stream": True}
    began = time.monotonic()
    with server.send("POST", "/v1/chat/completions", body) as connection:
        for line in connection.makefile("rb"):
            if b'"content"' in line and b'""' not in line:
                break
    prompt_seconds = time.monotonic() - began
    layer = prompt_seconds / options.layers
    times = []
    for i in range(options.leave):
        body["messages"] = [said(f"{i} " + prompt[0]["content"])]  # none of it is kept
        connection = server.send("POST", "/v1/chat/completions", body)
        time.sleep(0.02 + rng.random() * prompt_seconds * 0.8)
        if json.loads(server.ask("GET", "/slots"))[0]["is_processing"]:
            connection.close()
            left = time.monotonic()
            while json.loads(server.ask("GET", "/slots"))[0]["is_processing"]:
                time.sleep(0.001)
            times.append(time.monotonic() - left)
        connection.close()
    times.sort()
    p99 = times[min(len(times) - 1, len(times) * 99 // 100)]
    print(f"leave: {len(times)} times, median {statistics.median(times) * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms; a prompt"
          f" takes {prompt_seconds:.2f} s, a layer {layer * 1000:.0f} ms")
    return len(times) * 2 > options.leave and p99 <= layer + LAYER_BUDGET_SECONDS


def main():
    tests = {"pairs": try_pairs, "leave": try_leave}
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("-m", dest="model")
    parser.add_argument("--only", default=",".join(tests))
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--leave", type=int, default=100)
    parser.add_argument("--layers", type=int, default=30, help="of the model (SmolLM2 135M: 30)")
    parser.add_argument("--tokens", type=int, default=600, help="of a prompt")
    parser.add_argument("--max-tokens", type=int, default=64)
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options = parser.parse_args(sys.argv[1:end])
    options.rest = sys.argv[end + 1 :]
    options.model_options = ["-m", options.model] if options.model else []
    rng = random.Random(1)
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only.split(","):
            with Server(options.program, [*options.model_options, "--kept-memory", "0", *options.rest]) as server:
                if not tests[name](server, options, rng, folder):
                    failed.append(name)
    print("failed: " + ", ".join(failed) if failed else "all bounds are kept")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
