#!/usr/bin/env python3
"""Checks that `plan`, `bench` and `generate` report the same bytes for the same options, in random cases with a budget.

    compare_memory.py PROGRAM --model PATH[,draft=PATH] ... [--cases 100] [--seed 1] [--beside COMMAND]

Each case draws a model, context, KV type, threads, draft sources, nodes of a pass, expected tokens, a link (as it is, or
0.05 to 4 GiB/s) and a budget between the least that `plan` accepts and what everything needs; many options are left at
their defaults. The three programs are processes of their own that run in a random order. They share a file of rates:
in four of five cases one that an earlier case has filled, else a new one, which the first program measures. The compared
bytes are those on the device, of the ring, and of weights and KV that are resident and that stream. In the last two
fifths of the cases COMMAND runs beside them, over and over, to keep the processors busy. Exit code: 0 if all are equal,
1 otherwise.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading

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
    options = ["-m", path, "--devices", "cpu"]
    if choice.random() < 0.5:
        options += ["-t", choice.choice(("1", "2"))]
    link = choice.choice(("none", "none", "0.05", "0.25", "1", "4"))
    if link != "none":
        options += ["--link-gib-s", link]
    if choice.random() < 0.6:
        options += ["-c", str(choice.choice((300, 512, 1000, 2048, 4096, 8192)))]
    if choice.random() < 0.4:
        options += ["--kv-type", choice.choice(("f32", "f16", "q8"))]
    sources = choice.choice(("auto", "auto", "none", "context", "suffix,recycling", *(("model",) * 2 if draft else ())))
    options += ["--draft", sources]
    options += ["--tables", "off"]
    if sources != "none":
        if choice.random() < 0.5:
            options += ["--budget", str(choice.choice((2, 7, 16, 33, 64, 100)))]
    if sources == "model":
        options += ["--draft-model", draft]
    if choice.random() < 0.3:
        options += ["--expect-tokens", str(choice.choice((1, 4, 16, 64)))]
    return options


def budgeted(program, options, choice):
    """Returns the options with a budget that `plan` accepts."""
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
    return [*options, "--device-memory", str(budget)]


def reported(program, who, options, stats):
    """Returns the plan that `who` (plan, generate, bench) reports as JSON, or None and the program's error."""
    if who == "plan":
        return plan(program, options)
    if who == "generate":
        code, _, error = run(program, ["generate", *options, "--no-template", "-p", "Once", "-n", "1", "--temperature", "0",
                                       "--stats", stats])
        if code:
            return None, error
        with open(stats, encoding="utf-8") as file:
            return json.load(file)["plan"], ""
    code, out, error = run(program, ["bench", *options, "--json", "--prompt-tokens", "4", "-n", "2", "--repeat", "1",
                                     "--temperature", "0"])
    return (None, error) if code else (json.loads(out)["runs"][0]["plan"], "")


def keep_busy(command, stop):
    while not stop.is_set():
        subprocess.run(command, shell=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--model", action="append", required=True, metavar="PATH[,draft=PATH]")
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--beside", metavar="COMMAND")
    arguments = parser.parse_args()
    choice = random.Random(arguments.seed)
    bad, streams, stop = 0, 0, threading.Event()
    with tempfile.TemporaryDirectory() as folder:
        for case in range(arguments.cases):
            if arguments.beside and case == arguments.cases * 3 // 5:
                threading.Thread(target=keep_busy, args=(arguments.beside, stop), daemon=True).start()
            rates = os.path.join(folder, f"rates{case if case % 5 == 0 else ''}")
            options = budgeted(arguments.program, [*draw(choice, arguments.model), "--rates", rates], choice)
            if case % 5 == 0:
                os.remove(rates)
            programs = choice.sample(("plan", "generate", "bench"), 3)
            bytes_of, errors = {}, []
            for who in programs:
                what, error = reported(arguments.program, who, options, os.path.join(folder, "stats.json"))
                bytes_of[who] = what and {name: what[name] for name in NAMES}
                errors += [error] if error else []
            if None in bytes_of.values() or len({json.dumps(value) for value in bytes_of.values()}) != 1:
                bad += 1
                print("DIFFERS", *options, *(f"\n    {error}" for error in errors))
                for who, what in bytes_of.items():
                    print(f"    {who}: {what}", flush=True)
            else:
                streams += bytes_of["plan"]["ring_bytes"] > 0
    stop.set()
    print(f"{arguments.cases} cases: {arguments.cases - bad} equal ({streams} of them stream), {bad} not")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
