#!/usr/bin/env python3
"""Kills a program within a long prompt at many points and compares the text that it goes on to with that of one run.

    tools/dev/kill_prompts.py --model M --prompt F [--points 20] [--place '--device-memory 200M'] ... [--json OUT]

For each point: a run with --session is killed (SIGKILL; every fourth: SIGINT), and the same command goes on with it to
the end; every third point by `--session F` alone. Kinds of points:
    random   at a random time of the prompt
    early    before the first checkpoint
    naming   between writing the hidden states of a checkpoint and naming them: the write of a slot's head is not made
    last     within the last prefill chunks
    twice    at two random times, the second one in the run that goes on
Prints a table of: kind, place, time of the kill, prompt tokens that were read (`resumed_tokens`), and the computing that
was lost, in two measures: processor seconds of all runs together less those of one run in one go, which a busy machine
changes little and which include loading the model once more for each start; and seconds of prefill by the clock, all runs
together less one run, which vary by as much as the load does. The time of a kill is a share of the processor time that the
prompt takes in one go.

A run that comes to its end before the kill is marked. `naming` needs a C compiler, and a prompt that goes layer by layer: a preloaded library ends the program before that write."""
import argparse
import json
import os
import random
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import time

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* Kills the process before the KILL_COUNT-th write of KILL_BYTES bytes to a file that ends in ".prompt". */
ssize_t pwrite64(int fd, const void* data, size_t n, off64_t at) {
    static ssize_t (*next)(int, const void*, size_t, off64_t);
    static int seen;
    if (!next) next = (ssize_t(*)(int, const void*, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
    char link[64], name[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(link, name, sizeof name - 1);
    if (length > 7 && memcmp(name + length - 7, ".prompt", 7) == 0 && n == (size_t)atol(getenv("KILL_BYTES")) &&
        ++seen == atoi(getenv("KILL_COUNT")))
        kill(getpid(), SIGKILL);
    return next(fd, data, n, at);
}
ssize_t pwrite(int fd, const void* data, size_t n, off_t at) { return pwrite64(fd, data, n, at); }
"""


def build_shim(folder):
    source = os.path.join(folder, "shim.c")
    library = os.path.join(folder, "shim.so")
    with open(source, "w", encoding="utf-8") as file:
        file.write(SHIM)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


def children_seconds():
    """Processor seconds of all processes that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def process_seconds(pid):
    """Processor seconds of a running process; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Runs:
    def __init__(self, args, folder):
        self.args = args
        self.folder = folder
        self.command = [args.program, "generate", "--no-config", "-m", args.model, "--no-template", "-f", args.prompt, "--seed", "7", "-n",
                        str(args.new_tokens), "--tables", "off", "--draft", "none"] + shlex.split(args.extra)

    def file(self, name):
        return os.path.join(self.folder, name)

    def whole(self, place):
        """One run in one go: text, seconds of its prompt, prompt tokens, processor seconds, those of its prompt."""
        stats = self.file("whole.json")
        before = children_seconds()
        began = time.monotonic()
        done = subprocess.run(self.command + shlex.split(place) + ["--stats", stats], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)
        if done.returncode != 0:
            sys.exit(f"the run that is left alone ended with {done.returncode}: {done.stderr.decode()}")
        with open(stats, encoding="utf-8") as file:
            figures = json.load(file)
        used = children_seconds() - before
        of_prompt = used * figures["prefill_seconds"] / (time.monotonic() - began)
        return done.stdout, figures["prefill_seconds"], figures["prompt_tokens"], used, of_prompt

    def start(self, options, environment=None):
        """Starts a run; returns it, when its prompt began, as a line on stderr or the session file says, and its processor
        seconds until then."""
        session = self.file("s")
        is_old = os.path.exists(session)
        err = open(self.file("err"), "wb+")
        process = subprocess.Popen(options, stdout=subprocess.DEVNULL, stderr=err, env=environment)
        while process.poll() is None:
            if not is_old and os.path.exists(session):
                break
            with open(self.file("err"), "rb") as file:
                if is_old and b"going on with" in file.read():
                    break
            time.sleep(0.005)
        return process, time.monotonic(), process_seconds(process.pid), err

    def kill(self, options, after, how, environment=None):
        """Runs until the prompt has taken `after` processor seconds; returns the seconds of the prompt by the clock, the
        exit code, and stderr."""
        process, began, used, err = self.start(options, environment)
        while process.poll() is None and (after is None or process_seconds(process.pid) - used < after):
            time.sleep(0.01)
        seconds = time.monotonic() - began
        if process.poll() is None:
            process.send_signal(how)
        process.wait()
        err.seek(0)
        text = err.read().decode()
        err.close()
        return seconds, process.returncode, text

    def finish(self, options):
        stats = self.file("stats.json")
        done = subprocess.run(options + ["--stats", stats], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode != 0:
            return done.stdout, None, done.stderr.decode()
        with open(stats, encoding="utf-8") as file:
            return done.stdout, json.load(file), done.stderr.decode()


def run_point(runs, point, place, expected, whole_seconds, n_prompt, whole_used, used_by_prompt, draw, shim):
    for name in ("s", "s.prompt"):
        if os.path.exists(runs.file(name)):
            os.remove(runs.file(name))
    options = runs.command + shlex.split(place) + ["--session", runs.file("s")]
    how = signal.SIGINT if point["number"] % 4 == 3 else signal.SIGKILL
    spent = 0.0
    used = children_seconds()
    kills = []
    times = {"random": [draw.uniform(0.1, 0.95)], "early": [draw.uniform(0.005, 0.03)], "last": [draw.uniform(0.97, 0.99)],
             "twice": [draw.uniform(0.1, 0.5), draw.uniform(0.1, 0.4)], "naming": [None]}[point["kind"]]
    for at in times:
        environment = None
        if at is None:
            n_chunks = (n_prompt - 1) // 512 + 1
            environment = dict(os.environ, LD_PRELOAD=shim, KILL_BYTES=str(16 * (1 + n_chunks)),
                               KILL_COUNT=str(draw.randint(2, 3)))
        seconds, code, err = runs.kill(options, None if at is None else at * used_by_prompt, how, environment)
        spent += seconds
        kills.append({"seconds": round(seconds, 1), "code": code,
                      "says": [line for line in err.splitlines() if "keeps" in line or "anew" in line or "are read" in line]})
    side = os.path.exists(runs.file("s.prompt"))
    is_alone = point["number"] % 3 == 2
    last = [runs.args.program, "generate", "--no-config", "--session", runs.file("s"), "--tables", "off", "--draft", "none"] if is_alone else options
    text, figures, err = runs.finish(last)
    same = text == expected
    resumed = figures["prompt"]["resumed_tokens"] if figures else None
    lost = spent + figures["prefill_seconds"] - whole_seconds if figures else None
    lost_used = round(children_seconds() - used - whole_used, 1) if figures else None
    left = [name for name in os.listdir(runs.folder) if name.startswith("s.")]
    return {**point, "place": place, "signal": how.name, "alone": is_alone, "kills": kills, "side_file": side, "resumed_tokens": resumed,
            "prompt_tokens": n_prompt, "lost_seconds": None if lost is None else round(lost, 1),
            "lost_processor_seconds": lost_used, "same": same, "left": [name for name in left if name != "stats.json"],
            "says": [line for line in err.splitlines() if "anew" in line or "going on" in line]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/release/slipstream")
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompt", required=True)
    parser.add_argument("--points", type=int, default=20)
    parser.add_argument("--place", action="append", help="options of a placement; repeat it: taken in turn")
    parser.add_argument("--extra", default="", help="options that all runs have")
    parser.add_argument("--new-tokens", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default="random,early,naming,random,last,twice,random")
    parser.add_argument("--json")
    args = parser.parse_args()
    places = args.place or [""]
    draw = random.Random(args.seed)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(args, folder)
        shim = build_shim(folder)
        whole = {}
        kinds = args.kinds.split(",")
        print("| point | place | killed at, s | resumed_tokens | lost, processor s | lost, s | same text |\n|---|---|---|---|---|---|---|", flush=True)
        for number in range(args.points):
            place = places[number % len(places)]
            if place not in whole:
                whole[place] = runs.whole(place)
            text, seconds, n_prompt, used, of_prompt = whole[place]
            kind = kinds[(number // len(places)) % len(kinds)]
            done = run_point(runs, {"number": number, "kind": kind}, place, text, seconds, n_prompt, used, of_prompt, draw, shim)
            results.append(done)
            at = " + ".join(str(kill["seconds"]) + (" (its end)" if kill["code"] == 0 else "") for kill in done["kills"])
            print(f"| {kind}, {done['signal']}{', --session alone' if done['alone'] else ''} | {place or 'resident'} | {at} of {seconds:.1f} | "
                  f"{done['resumed_tokens']} of {n_prompt} | {done['lost_processor_seconds']} of {used:.1f} | {done['lost_seconds']} | {'yes' if done['same'] else 'NO'} |", flush=True)
            if args.json:
                with open(args.json, "w", encoding="utf-8") as file:
                    json.dump(results, file, indent=1)
    sys.exit(0 if all(done["same"] and not done["left"] for done in results) else 1)


main()
