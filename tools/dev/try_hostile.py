#!/usr/bin/env python3
"""Runs the program on mutated model files and hostile options. It must report errors in one line, never crash or hang.

usage: tools/dev/try_hostile.py PROGRAM [--model PATH]... [--files 500] [--options 100] [--seed 1] [--limit 20]

Each model, a folder or a GGUF file, is mutated `--files` times; without one, the bundled model is. Of a folder one file
(config, tokenizer, weights) is mutated. Of a file, its first 4 MiB are mutated; the rest of a larger file is zeros. A
mutation changes, removes or doubles a few bytes, writes extreme numbers, or cuts the file. `inspect` reads every
mutated model, and `generate` asks it for four tokens. Options are those that --help-all of each command lists, with
invalid values.

A finding is a signal, an exit code other than 0, 1 and 2, a run that takes more than `--limit` seconds of processor
time or does not end within six times as long, or an error (code 1, 2) that one line of stderr, the last, does not
report. Each finding is printed with the command that repeats it; its model is kept in a folder that is named.
"""

import argparse
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile

BUNDLED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "demo_model", "target")
HEAD = 4 << 20
VALUES = ["", "-1", "0", "nan", "inf", "-inf", "1e999", "9" * 40, "-" + "9" * 40, "0x10", "1,2,,3", ",", "=", "a=b=c", "%s%n%n",
          "\xff\xfe", "\n", " ", "--", "-", "/", "/dev/zero", "/dev/full", "/nonexistent/x", ".", "..", "a" * 100000, "1T",
          "-5M", "1.5", "18446744073709551616", "9223372036854775807", "-9223372036854775808", "none", "auto", "off",
          "true", "\U0001f600" * 50, "{\"a\":", "[[[[", "1;2;3", "model=/x;/y", "cuda:99", "cpu,cpu", "0=-inf", "5=nan"]
NUMBERS = [b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\xff\xff\xff\x7f", b"\x00\x00\x00\x80", b"\xff" * 8,
           b"\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x00" * 8]


def mutated(data, chance):
    data = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 3, 8))):
        if not data:
            break
        at = chance.randrange(len(data)) if chance.random() < 0.5 else chance.randrange(min(len(data), 4096))
        kind = chance.randrange(5)
        if kind == 0:
            data[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            number = chance.choice(NUMBERS)
            data[at:at + len(number)] = number
        elif kind == 2:
            del data[at:at + chance.choice((1, 4, 64, 4096))]
        elif kind == 3:
            data[at:at] = data[at:at + chance.choice((1, 8, 512))]
        else:
            data = data[:at]
    return bytes(data)


def mutated_file(source, path, chance):
    """Writes `source` to `path`, with its first HEAD bytes mutated; the rest of a larger file is zeros."""
    size = os.path.getsize(source)
    with open(source, "rb") as file:
        head = file.read(HEAD)
    with open(path, "wb") as file:
        file.write(mutated(head, chance))
        if size > HEAD:
            file.truncate(max(size, file.tell()))


class Trial:
    def __init__(self, program, folder, limit):
        self.program, self.folder, self.limit, self.findings, self.runs = program, folder, limit, 0, 0
        self.codes = {}

    def summary(self):
        codes = ", ".join(f"{code}: {n}" for code, n in sorted(self.codes.items(), key=str))
        return f"{self.runs} runs, {self.findings} findings; exit codes {codes}"

    def run(self, arguments, keep=None):
        """Runs the program and reports a finding, if there is one."""
        self.runs += 1
        seconds = self.limit
        environment = {"PATH": os.environ["PATH"], "HOME": self.folder, "LC_ALL": "C.UTF-8"}
        try:
            done = subprocess.run([self.program, *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                                  timeout=6 * seconds, env=environment, cwd=self.folder,
                                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds)))
            code, err = done.returncode, done.stderr
        except subprocess.TimeoutExpired:
            code, err = f"no end within {6 * seconds} s", b"-"
        except (OSError, ValueError):
            return  # the system does not accept these arguments
        self.codes[code] = self.codes.get(code, 0) + 1
        lines = err.rstrip().split(b"\n")
        n_errors = sum(line.startswith(b"slipstream: ") for line in lines)
        if code == 0 or (code in (1, 2) and lines[-1].startswith(b"slipstream: ") and n_errors == 1):
            return
        self.findings += 1
        where = ""
        if keep:
            where = os.path.join(self.folder, f"finding_{self.findings}")
            (shutil.copytree if os.path.isdir(keep) else shutil.copy)(keep, where)
        shown = [argument if len(argument) < 80 else argument[:60] + "..." for argument in arguments]
        print(f"{code}: {' '.join(map(repr, shown))} {where} {err[-300:]!r}", flush=True)


def try_files(trial, n_files, model, chance):
    path = os.path.join(trial.folder, "model" if os.path.isdir(model) else "model.gguf")
    for _ in range(n_files):
        if os.path.isdir(model):
            shutil.rmtree(path, ignore_errors=True)
            os.mkdir(path)
            names = sorted(name for name in os.listdir(model) if os.path.isfile(os.path.join(model, name)))
            changed = chance.choice(names)
            for name in names:
                source = os.path.realpath(os.path.join(model, name))
                if name == changed:
                    mutated_file(source, os.path.join(path, name), chance)
                else:
                    os.symlink(source, os.path.join(path, name))
        else:
            mutated_file(model, path, chance)
        trial.run(["inspect", path, *chance.choice(([], ["-v"], ["--json"]))], path)
        draft = chance.choice(([], ["--draft", "none"], ["--draft", "none"], ["--draft", "none"]))
        trial.run(["generate", "-m", path, "-p", "Hi", "-n", "4", "-t", "1", "-c", "64", *draft], path)


def commands_of(program):
    """Returns {command: [(option, takes a value)]} from the help texts."""
    listed = subprocess.run([program, "help"], capture_output=True, text=True, check=True).stdout
    commands = re.findall(r"^  ([a-z]+) {2,}", listed.split("Commands\n")[1].split("\n\n")[0], re.M)
    options = {}
    for command in commands:
        if command == "help":
            continue
        text = subprocess.run([program, command, "--help-all"], capture_output=True, text=True, check=True).stdout
        options[command] = []
        for line in re.findall(r"^ {2,6}(-.*)$", text, re.M):
            flags = re.match(r"((?:-{1,2}[\w-]+(?:, )?)+) ?([A-Z][\w|=.]*)?", line)
            options[command].append((flags.group(1).split(", ")[-1], bool(flags.group(2))))
    return options


def try_options(trial, n_options, chance):
    options = commands_of(trial.program)
    base = {"generate": ["-p", "Hi", "-n", "2"], "bench": ["-r", "1", "--prompt-tokens", "8", "-n", "4"],
            "chat": ["-n", "2"]}
    for _ in range(n_options):
        command = chance.choice(sorted(options))
        arguments = [command, *base.get(command, [])]
        for option, takes in chance.sample(options[command], min(len(options[command]), chance.choice((1, 1, 2, 3)))):
            arguments.append(option)
            if takes:
                arguments.append(chance.choice(VALUES))
        trial.run(arguments)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--files", type=int, default=500)
    parser.add_argument("--options", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=int, default=20)
    given = parser.parse_args()
    trial = Trial(os.path.abspath(given.program), tempfile.mkdtemp(prefix="hostile-"), given.limit)
    chance = random.Random(given.seed)
    try_options(trial, given.options, chance)
    print(f"options: {trial.summary()}", flush=True)
    for model in given.model or [BUNDLED]:
        try_files(trial, given.files, os.path.abspath(model), chance)
        print(f"{model}: in all {trial.summary()}", flush=True)
    if trial.findings == 0:
        shutil.rmtree(trial.folder)
    return 1 if trial.findings else 0


if __name__ == "__main__":
    sys.exit(main())
