#!/usr/bin/env python3
"""Checks that `plan`, `bench` and `generate` report the same bytes for the same options, in random cases with a budget.

    compare_memory.py PROGRAM --model PATH[,draft=PATH] ... [--cases 50] [--seed 1]

Each case draws a model, context, KV type, threads, draft sources, nodes of a pass, ring, expected tokens and link, and
a budget between the least that `plan` accepts and what everything needs; if a ring is given, it is the one that `plan`
chose. The compared bytes are those on the device, of the ring, and of weights and KV that are resident and that stream.
Links are slow: if computing were the limit, the choice of what streams would depend on rates that each process measures
for itself. Exit code: 0 if all are equal, 1 otherwise.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

NAMES = ("device_bytes", "ring_bytes", "resident_weights_bytes", "resident_kv_bytes", "streamed_weights_bytes",
         "streamed_kv_bytes")


def run(program, arguments):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SLIPSTREAM_")}
    done = subprocess.run([program, *arguments, "--no-config", "-q"], env=environment, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, errors="replace", timeout=600, check=False)
    return done.returncode, done.stdout, done.stderr.strip()


def plan(program, options):
    code, out, error = run(program, ["plan", *options, "--json"])
    return (json.loads(out)["plan"], "") if code == 0 else (None, error)


def draw(choice, models):
    path, _, draft = choice.choice(models).partition(",draft=")
    options = ["-m", path, "--devices", "cpu", "-t", choice.choice(("1", "2")), "--link-gib-s", choice.choice(("0.05", "0.1"))]
    if choice.random() < 0.8:
        options += ["-c", str(choice.choice((300, 512, 1000, 2048, 4096, 8192)))]
    options += ["--kv-type", choice.choice(("auto", "f32", "f16"))]
    sources = choice.choice(("none", "context", "suffix,recycling", "context,recycling", *(("model",) * 2 if draft else ())))
    options += ["--draft", sources]
    if sources != "none":
        options += ["--tables", "off"]
        if choice.random() < 0.7:
            options += ["--budget", str(choice.choice((2, 7, 16, 33, 64, 100)))]
    if sources == "model":
        options += ["--draft-model", draft]
    if choice.random() < 0.5:
        options += ["--expect-tokens", str(choice.choice((1, 4, 16, 64)))]
    return options


def budgeted(program, options, choice):
    """Returns the options with a budget that `plan` accepts, and in some cases a ring; None if none is found."""
    everything, error = plan(program, [*options, "--device-memory", "1T"])
    if everything is None:
        raise RuntimeError(error)
    low, high = 0, everything["device_bytes"]
    while high - low > 1 << 14:
        middle = (low + high) // 2
        if plan(program, [*options, "--device-memory", str(middle)])[0] is None:
            low = middle
        else:
            high = middle
    found = None
    while found is None:  # with more memory, plan may choose a placement that leaves less for drafting
        budget = choice.randint(high, max(high, everything["device_bytes"] + (1 << 20)))
        found, error = plan(program, [*options, "--device-memory", str(budget)])
    options = [*options, "--device-memory", str(budget)]
    return [*options, *(("--ring", str(found["ring_bytes"])) if found["ring_bytes"] else ())]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--model", action="append", required=True, metavar="PATH[,draft=PATH]")
    parser.add_argument("--cases", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    choice = random.Random(arguments.seed)
    bad, streams = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        stats = os.path.join(folder, "stats.json")
        for _ in range(arguments.cases):
            options = budgeted(arguments.program, draw(choice, arguments.model), choice)
            named, error = plan(arguments.program, options)
            named = {"plan": named, "generate": None, "bench": None}
            code, _, why = run(arguments.program, ["generate", *options, "--no-template", "-p", "Once", "-n", "1",
                                                   "--temperature", "0", "--stats", stats])
            error = error or (why if code else "")
            if code == 0:
                with open(stats, encoding="utf-8") as file:
                    named["generate"] = json.load(file)["plan"]
            code, out, why = run(arguments.program, ["bench", *options, "--json", "--prompt-tokens", "4", "-n", "2",
                                                     "--repeat", "1", "--temperature", "0"])
            error = error or (why if code else "")
            if code == 0:
                named["bench"] = json.loads(out)["runs"][0]["plan"]
            bytes_of = {who: what and {name: what[name] for name in NAMES} for who, what in named.items()}
            if None in bytes_of.values() or len({json.dumps(value) for value in bytes_of.values()}) != 1:
                bad += 1
                print("DIFFERS", *options, f"\n    {error}" if error else "")
                for who, what in bytes_of.items():
                    print(f"    {who}: {what}", flush=True)
            else:
                streams += bytes_of["plan"]["ring_bytes"] > 0
    print(f"{arguments.cases} cases: {arguments.cases - bad} equal ({streams} of them stream), {bad} not")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
