#!/usr/bin/env python3
"""Runs two builds of the program over a matrix of cases and compares their results, byte for byte.

    compare_programs.py OLD NEW --model NAME=PATH[,draft=PATH][,tokens=N] ... [options]

OLD and NEW are `slipstream` executables. The results are texts, token ids, the logits of `perplexity --logits`, and from
the statistics prompt_tokens, generated_tokens, text_bytes, stop_reason, passes, budget_mean and, for every source, the
offered and accepted tokens. Tables are off, and ring, expected tokens and budgets are fixed, so that no result depends
on the speed of the machine. --may-differ names the results that a change is meant to alter.

Placements: `resident` computes in place. `weights`, `kv` and `both` get a budget between the least that OLD accepts and
what everything needs, with which both programs stream what they should; a case counts only if the statistics confirm
this.

Cases: --cases full is the product of placement, sources, temperature, verification, and resumed or not. --cases N takes
N cases that cover as many pairs of values of the factors as possible (the number of covered pairs is printed). In
addition, logits are compared in every placement. With --handover NEW also continues a session that OLD began, and reads
tables that OLD saved.

Exit code: 0 if all are equal, 1 if something differs, 2 for a usage error or a case that did not run as it should.
"""

import argparse
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FIELDS = ("prompt_tokens", "generated_tokens", "text_bytes", "stop_reason", "passes", "budget_mean", "sources")
WHOLE = ("exit", "text", "ids", "logits")
SINGLES = ("context", "suffix", "lookup", "cacheback", "recycling", "bigram", "unigram", "lookahead")
MERGED = "context,suffix,recycling"
LARGE_CONTEXT = 8192  # whose KV is worth streaming
LONG_PROMPT = 620  # tokens: longer than a prefill chunk, which has 512

# Factors of the pairwise cases. The full matrix takes the first value of each factor that it does not vary.
FACTORS = {
    "placement": ("resident", "weights", "kv", "both"),
    "draft": ("none", "context", "suffix", "lookup", "cacheback", "recycling", "bigram", "lookahead", "merged",
              "model", "model,context"),
    "temperature": ("0", "0.8"),
    "verify": ("exact", "rejection"),
    "resumed": ("no", "yes"),
    "budget": ("16", "3", "40"),
    "prompt": ("short", "long", "empty"),
    "kv_type": ("auto", "f32"),
    "threads": ("1", "2"),
    "filters": ("none", "top-k", "top-p", "penalty"),
}
FULL = ("placement", "draft", "temperature", "verify", "resumed")


# Whether weights and KV stream, by placement.
STREAMS = {"resident": (False, False), "weights": (True, False), "kv": (False, True), "both": (True, True)}


def streamed(statistics):
    plan = statistics["plan"]
    return plan.get("streamed_weights_bytes", 0) > 0, plan.get("streamed_kv_bytes", 0) > 0


class Misrun(Exception):
    """The case has no result: the program refused it, or it did not stream what it should."""


class Model:
    def __init__(self, spec):
        name, _, rest = spec.partition("=")
        path, *options = rest.split(",")
        if not path:
            raise argparse.ArgumentTypeError(f"{spec}: NAME=PATH[,draft=PATH][,tokens=N] is wanted")
        self.name, self.path = name, path
        settings = dict(option.partition("=")[::2] for option in options)
        self.draft = settings.pop("draft", None)
        self.tokens = int(settings.pop("tokens", 40))
        if settings:
            raise argparse.ArgumentTypeError(f"{spec}: {', '.join(settings)} is not known")


def is_possible(case, model):
    if case["draft"].startswith("model") and model.draft is None:
        return False
    if case["verify"] == "rejection" and (case["draft"] in ("none", "lookahead") or case["resumed"] == "yes"):
        return False  # there is nothing to verify; sessions are resumed with `exact` only
    if case["temperature"] == "0" and case["filters"] in ("top-k", "top-p"):
        return False
    return True


def full_cases(model, singles):
    drafts = ("none", *singles, "merged", *(("model", "model,context") if model.draft else ()))
    values = [drafts if name == "draft" else FACTORS[name] for name in FULL]
    for chosen in itertools.product(*values):
        case = {name: options[0] for name, options in FACTORS.items()} | dict(zip(FULL, chosen))
        if is_possible(case, model):
            yield case


def pairs_of(case):
    return set(itertools.combinations(sorted(case.items()), 2))


def pairwise_cases(model, n, seed, without):
    """Chooses greedily: each case is the one of 300 random cases that covers the most new pairs."""
    choice = random.Random(f"{seed} {model.name}")

    def drawn():
        while True:
            case = {name: choice.choice(options) for name, options in FACTORS.items()}
            if is_possible(case, model) and case["draft"] not in without:
                return case

    possible = set()
    for _ in range(20000):
        possible |= pairs_of(drawn())
    covered, cases = set(), []
    for _ in range(n):
        best = max((drawn() for _ in range(300)), key=lambda case: len(pairs_of(case) - covered))
        cases.append(best)
        covered |= pairs_of(best)
    print(f"{model.name}: {n} cases hold {len(covered & possible)} of {len(possible)} pairs", file=sys.stderr)
    return cases


class Comparison:
    def __init__(self, arguments, folder):
        self.programs = {"old": arguments.old, "new": arguments.new}
        self.may_differ = arguments.may_differ
        self.limit = arguments.limit
        self.folder = folder
        self.asked = {}
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("SLIPSTREAM_")}
        for name in ("CACHE", "CONFIG"):
            self.environment[f"XDG_{name}_HOME"] = str(folder / name.lower())
        self.openings = [path.read_text() for path in sorted((ROOT / "tools/demo_model/prompts").glob("*.txt"))]
        self.prompts = {}

    def run(self, which, arguments):
        try:
            done = subprocess.run([self.programs[which], *arguments], env=self.environment, stdin=subprocess.DEVNULL,
                                  capture_output=True, timeout=self.limit, check=False)
        except subprocess.TimeoutExpired:
            raise Misrun(f"{which} took more than {self.limit} s (--limit)") from None
        return done.returncode, done.stdout, done.stderr.decode(errors="replace").strip()

    def ids(self, model, text):
        path = self.folder / "text.txt"
        path.write_text(text)
        code, out, error = self.run("old", ["tokenize", "-m", model.path, "--ids", "--file", str(path), "--no-config"])
        if code != 0:
            raise Misrun(error)
        return out.split()

    def prompt(self, model, length):
        """Returns the text of the prompt and its number of tokens."""
        key = (model.name, length)
        if key not in self.prompts:
            text = {"empty": "", "short": self.openings[0], "long": " ".join(self.openings * 9)}[length]
            if length == "long":
                words = text.split(" ")
                text = " ".join(words[: len(words) * LONG_PROMPT // len(self.ids(model, text))])
            self.prompts[key] = (text, len(self.ids(model, text)) if text else 1)
        return self.prompts[key]

    def context(self, case, n_tokens):
        """Returns a context length: LARGE_CONTEXT if KV streams, else the shortest one that fits."""
        return LARGE_CONTEXT if case["placement"] in ("kv", "both") else 256 * (1 + (n_tokens + 64) // 256)

    def placement(self, model, case, arguments, context):
        """Returns the options that place the model, with budgets in bytes from OLD, the same for both programs."""
        options = ["-c", str(context)]
        if case["placement"] == "resident":
            return options
        everything, kv_bytes = self.everything(arguments, options)
        ring = self.least_ring(arguments, options, everything)
        options += ["--ring", str(ring + ring // 2), "--expect-tokens", "16"]
        least = self.least_memory(arguments, options, everything)
        room = everything - least
        tries = {"weights": [least + room * part // 100 for part in (40, 60, 75, 85, 95, 105)],
                 "kv": [everything - kv_bytes * part // 100 + int(options[3]) for part in (50, 30, 70, 85)],
                 "both": [least + room * part // 100 for part in (2, 0, 8, 15, 25)]}[case["placement"]]
        for budget in tries:
            placed = [*options, "--device-memory", str(budget)]
            if all(self.streams(which, [*arguments, *placed]) == STREAMS[case["placement"]] for which in self.programs):
                return placed
        raise Misrun(f"no budget makes both programs stream {case['placement']}")

    def streams(self, which, arguments):
        """Returns whether weights and KV stream in that program; None if it refuses the options."""
        key = ("streams", which, *arguments)
        if key not in self.asked:
            stats = self.folder / "probe.json"
            code, _, _ = self.run(which, [*arguments, "--stats", str(stats)])
            self.asked[key] = streamed(json.loads(stats.read_text())) if code == 0 else None
        return self.asked[key]

    def everything(self, arguments, options):
        """Returns the bytes of a device that holds everything, and those of its KV cache."""
        key = (*arguments, *options)
        if key not in self.asked:
            stats = self.folder / "probe.json"
            code, _, error = self.run("old", [*arguments, *options, "--stats", str(stats), "--device-memory", "1T"])
            if code != 0:
                raise Misrun(f"cannot be asked what all takes: {error}")
            plan = json.loads(stats.read_text())["plan"]
            self.asked[key] = (plan["device_bytes"], plan["kv_bytes"])
        return self.asked[key]

    def least_ring(self, arguments, options, everything):
        """Returns the least value of --ring, which OLD names when it refuses less memory for plain decoding. (With
        drafting it may refuse for another reason first; with far too little memory it fails before it plans.)"""
        plain = without_guesses(arguments)
        key = ("ring", *plain, *options)
        low, high = 0, everything
        while key not in self.asked:
            middle = (low + high) // 2
            code, _, error = self.run("old", [*plain, *options, "--ring", "1K", "--device-memory", str(middle)])
            found = re.search(r"(?:give|use) --ring ([0-9.]+[KMG]?) or more", error)
            if found:
                self.asked[key] = size_of(found.group(1))
            elif high - low < 1024:
                raise Misrun(f"no least --ring in: {error}")
            elif code == 0:
                high = middle
            else:
                low = middle
        return self.asked[key]

    def least_memory(self, arguments, options, everything):
        """Returns the least --device-memory with which OLD runs, as OLD names it or to within 16 KiB."""
        key = ("device-memory", *arguments, *options)
        low, high = 0, everything
        while key not in self.asked:
            middle = (low + high) // 2
            code, _, error = self.run("old", [*arguments, *options, "--device-memory", str(middle)])
            found = re.search(r"(?:give|use) --device-memory ([0-9.]+[KMG]?) or more", error)
            if found:
                self.asked[key] = size_of(found.group(1))
            elif code == 0:
                high = middle
            else:
                low = middle
            if high - low < 1 << 14:
                self.asked.setdefault(key, high)
        return self.asked[key]

    def text_arguments(self, model, case):
        arguments = ["generate", "-m", model.path, "--devices", "cpu", "-t", case["threads"], "--no-config", "-q",
                     "--kv-type", case["kv_type"], "--no-template", "--temperature", case["temperature"], "--seed", "7",
                     "-p", self.prompt(model, case["prompt"])[0]]
        arguments += {"none": ["--top-k", "0", "--top-p", "1"], "top-k": ["--top-k", "40", "--top-p", "1"],
                      "top-p": ["--top-k", "0", "--top-p", "0.9"],
                      "penalty": ["--top-k", "0", "--top-p", "1", "--repeat-penalty", "1.2"]}[case["filters"]]
        draft = MERGED if case["draft"] == "merged" else case["draft"]
        arguments += ["--draft", draft]
        if draft != "none":
            tables = self.model_tables(model) if draft in ("bigram", "unigram") else "off"
            arguments += ["--tables", tables, "--budget", case["budget"], "--verify", case["verify"]]
        if draft.startswith("model"):
            arguments += ["--draft-model", model.draft]
        return arguments

    def model_tables(self, model):
        """Returns a folder with tables built from the model, since a run with a budget does not build its own. Nothing
        is learnt into them."""
        folder = self.folder / f"tables-of-{model.name}"
        if not folder.exists():
            code, _, error = self.run("old", ["tables", "build", "--kind", "bigram", "-m", model.path, "--tables",
                                              str(folder), "--no-config", "-q"])
            if code != 0:
                raise Misrun(f"no tables: {error}")
        return str(folder)

    def generate(self, which, arguments, n_tokens, session=None):
        """Runs once. Returns the results {"exit", "text", "ids", *FIELDS} and the statistics."""
        ids, stats = self.folder / f"{which}.ids", self.folder / f"{which}.json"
        for path in (ids, stats):
            path.unlink(missing_ok=True)
        extra = ["--session", str(session)] if session else []
        code, text, error = self.run(which, [*arguments, *extra, "-n", str(n_tokens), "--token-ids", str(ids),
                                             "--stats", str(stats)])
        if code != 0:
            return {"exit": (code, error)}, None
        statistics = json.loads(stats.read_text())
        made = {"exit": code, "text": text, "ids": ids.read_text()} | {name: statistics[name] for name in FIELDS}
        made["sources"] = {name: (figures["offered"], figures["accepted"])
                           for name, figures in statistics["sources"].items()}
        return made, statistics

    def check_streams(self, case, statistics):
        if streamed(statistics) != STREAMS[case["placement"]]:
            raise Misrun(f"streams (weights, KV): {streamed(statistics)}, where {case['placement']} is wanted")

    def text_case(self, model, case):
        arguments = self.text_arguments(model, case)
        context = self.context(case, self.prompt(model, case["prompt"])[1] + model.tokens)
        arguments += self.placement(model, case, [*arguments, "-n", "1"], context)
        made = {}
        for which in self.programs:
            if case["resumed"] == "yes":
                session = self.folder / f"{which}.session"
                session.unlink(missing_ok=True)
                begun, _ = self.generate(which, arguments, model.tokens // 2, session)
                if begun["exit"] != 0:
                    raise Misrun(f"{which}: {begun['exit']}")
                made[which], statistics = self.generate(which, arguments, model.tokens, session)
            else:
                made[which], statistics = self.generate(which, arguments, model.tokens)
            if statistics is None:
                raise Misrun(f"{which}: {made[which]['exit']}")
            self.check_streams(case, statistics)
        return self.differences(case, made["old"], made["new"])

    def logits_case(self, model, case):
        ids = self.folder / "prompt.ids"
        tokens = self.ids(model, self.prompt(model, "long")[0])[: int(case["n"])]
        ids.write_bytes(b" ".join(tokens))
        arguments = ["perplexity", "-m", model.path, "--devices", "cpu", "-t", "1", "--no-config", "-q", "--kv-type",
                     case["kv_type"], "--tokens", str(ids), "--pass", case["pass"]]
        made = {}
        probe = [*arguments, "--logits", str(self.folder / "probe.f32")]
        budget = self.placement(model, case, probe, self.context(case, len(tokens)))
        for which in self.programs:
            out = self.folder / f"{which}.f32"
            out.unlink(missing_ok=True)
            stats = self.folder / f"{which}.json"
            code, _, error = self.run(which, [*arguments, *budget, "--logits", str(out), "--stats", str(stats)])
            if code != 0:
                raise Misrun(f"{which}: {error}")
            self.check_streams(case, json.loads(stats.read_text()))
            made[which] = {"logits": out.read_bytes()}
        if len(made["old"]["logits"]) == 0:
            raise Misrun("no logits")
        return self.differences(case, made["old"], made["new"])

    def handover_case(self, model, case):
        """Compares how OLD and NEW continue a session that OLD began."""
        arguments = self.text_arguments(model, case)
        begun = self.folder / "begun.session"
        begun.unlink(missing_ok=True)
        first, _ = self.generate("old", arguments, model.tokens // 2, begun)
        if first["exit"] != 0:
            raise Misrun(str(first["exit"]))
        made = {}
        for which in self.programs:
            session = self.folder / f"{which}.session"
            shutil.copy(begun, session)
            made[which], _ = self.generate(which, arguments, model.tokens, session)
        return self.differences(case, made["old"], made["new"])

    def tables_case(self, model, case):
        """Checks that NEW reads tables that OLD saved, or ignores them, with the same text."""
        tables = self.folder / "tables"
        shutil.rmtree(tables, ignore_errors=True)
        arguments = self.text_arguments(model, case)
        arguments[arguments.index("--tables") + 1] = str(tables)
        made = {}
        for which in ("old", "new"):
            made[which], _ = self.generate(which, arguments, model.tokens)
        if not any(tables.iterdir()):
            raise Misrun("no tables were kept")
        for name in ("passes", "budget_mean", "sources"):  # the second run has learnt more
            for result in made.values():
                result.pop(name, None)
        return self.differences(case, made["old"], made["new"])

    def differences(self, case, old, new):
        found = []
        for name in (*WHOLE, *FIELDS):
            if old.get(name) == new.get(name):
                continue
            if name in self.may_differ or f"{case.get('draft', 'none')}:{name}" in self.may_differ:
                self.allowed[name] = self.allowed.get(name, 0) + 1
                continue
            shown = [short(value.get(name)) for value in (old, new)]
            found.append(f"{name}: {shown[0]} became {shown[1]}")
        return found

    allowed = {}


def without_guesses(arguments):
    """Returns the arguments of text_case() for plain decoding."""
    if "--draft" not in arguments:
        return arguments
    rest = [option for option in ("-n", "1") if "-n" in arguments]
    return [*arguments[: arguments.index("--draft")], "--draft", "none", *rest]


def size_of(text):
    """Returns the bytes of a size as the program prints it: 294912, 288K, 1.5G."""
    units = {"K": 10, "M": 20, "G": 30}
    return int(text) if text.isdigit() else int(float(text[:-1]) * (1 << units[text[-1]]))


def short(value):
    if isinstance(value, (bytes, str)) and len(value) > 90:
        return f"{value[:90]!r}... ({len(value)} long)"
    return repr(value)


def logits_cases():
    for placement, (n_pass, kv_type) in itertools.product(("resident", "weights", "kv", "both"),
                                                          (("1", "auto"), ("7", "auto"), ("64", "f32"))):
        yield {"placement": placement, "pass": n_pass, "kv_type": kv_type, "n": "24" if n_pass == "1" else "300"}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--model", action="append", type=Model, required=True, metavar="NAME=PATH[,draft=PATH]")
    parser.add_argument("--cases", default="full", help="'full', or how many pairwise cases a model")
    parser.add_argument("--singles", default=",".join(SINGLES), help="the sources that the full matrix has alone")
    parser.add_argument("--without", default="", help="sources that pairwise cases leave out: `bigram` is built for "
                        "minutes out of a model of a GB")
    parser.add_argument("--may-differ", default="", metavar="[DRAFT:]FIELD;...",
                        help="what a change means to alter, of one value of `draft` or of all")
    parser.add_argument("--no-logits", action="store_true")
    parser.add_argument("--handover", action="store_true", help="sessions and tables of OLD under NEW, too")
    parser.add_argument("--only", default="", metavar="FACTOR=VALUE;...", help="leave out cases with other values")
    parser.add_argument("--limit", default=3600, type=int, metavar="SECONDS", help="of one run of a program; longer "
                        "ones are told as not run (default 3600: a model of a GB on a busy machine)")
    parser.add_argument("--part", default="1/1", metavar="K/N", help="only the Kth, K + Nth, ... case: a long "
                        "comparison in pieces")
    parser.add_argument("--seed", default=1, type=int, help="of pairwise cases")
    arguments = parser.parse_args()
    arguments.may_differ = set(filter(None, arguments.may_differ.split(";")))
    unknown = [name for name in arguments.may_differ if name.split(":")[-1] not in (*WHOLE, *FIELDS)]
    if unknown:
        parser.error(f"--may-differ: {', '.join(unknown)}: fields are {', '.join((*WHOLE, *FIELDS))}")
    part, _, parts = arguments.part.partition("/")
    if not (part.isdigit() and parts.isdigit() and 1 <= int(part) <= int(parts)):
        parser.error(f"--part: {arguments.part} is not K/N with K in 1 ... N")
    arguments.part = (int(part), int(parts))
    arguments.only = dict(part.split("=") for part in filter(None, arguments.only.split(";")))
    return arguments


def main():
    arguments = parse_arguments()
    bad, misrun, n = 0, 0, 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        comparison = Comparison(arguments, pathlib.Path(folder))
        for model in arguments.model:
            cases = full_cases(model, arguments.singles.split(",")) if arguments.cases == "full" else \
                pairwise_cases(model, int(arguments.cases), arguments.seed, arguments.without.split(","))
            work = [(comparison.text_case, case) for case in cases]
            if not arguments.no_logits:
                work += [(comparison.logits_case, case) for case in logits_cases()]
            if arguments.handover:
                base = {name: options[0] for name, options in FACTORS.items()}
                work += [(comparison.handover_case, base | {"draft": draft, "temperature": "0.8"})
                         for draft in ("none", "recycling")]
                work += [(comparison.tables_case, base | {"draft": draft}) for draft in ("cacheback", "recycling")]
            chosen = [(compare, case) for compare, case in work
                      if all(case.get(name) == value for name, value in arguments.only.items())]
            for compare, case in chosen[arguments.part[0] - 1 :: arguments.part[1]]:
                n += 1
                print(f"{time.monotonic() - began:.0f} s: case {n}", file=sys.stderr)
                told = f"{model.name} {compare.__name__}: " + " ".join(f"{k}={v}" for k, v in case.items())
                try:
                    found = compare(model, case)
                except Misrun as why:
                    misrun += 1
                    print(f"MISRUN {told}\n    {why}", flush=True)
                    continue
                if found:
                    bad += 1
                    print(f"DIFFERS {told}\n    " + "\n    ".join(found), flush=True)
    allowed = ", ".join(f"{name} in {count}" for name, count in comparison.allowed.items())
    print(f"{n} cases in {time.monotonic() - began:.0f} s: {n - bad - misrun} equal, {bad} differ, {misrun} did not run"
          + (f"; as allowed: {allowed}" if allowed else ""))
    return 1 if bad else 2 if misrun else 0


if __name__ == "__main__":
    sys.exit(main())
