#!/usr/bin/env python3
"""Cacheback's dual table and its drafting in plain Python (Ma, Gim, Zhong 2025, sections 3.1 to 3.3), step by step over a
recorded text: what the C++ must agree with. Writes frozen.txt (the frozen table of the corpus) and NAME.txt for each
configuration below: a line a pass, "COMMITTED token:parent ..." with the nodes below node 0.

    python3 make.py             needs nothing; reads recorded.txt
    python3 make.py PROGRAM     first records recorded.txt anew with the slipstream program and its bundled model:
                                lines "corpus IDS", "prompt IDS", "answer IDS"
"""
import subprocess
import sys
import tempfile
from collections import Counter, OrderedDict
from pathlib import Path

HERE = Path(__file__).parent
RUNS = [  # kind, prompt, options: greedy texts repeat themselves, sampled ones do not
    ("corpus", "Once upon a time there was a king who had three sons", ["--temperature", "0.8", "--max-tokens", "400"]),
    ("answer", "Once upon a time there was a poor fisherman", ["--temperature", "0", "--max-tokens", "160"]),
    ("answer", "The wolf came to the door and said", ["--temperature", "0.7", "--max-tokens", "120"]),
]
CONFIGS = {  # LL, FL, LC, FC, TDL, CRT, with the frozen table, budget of a pass
    "paper": (1, 3, 1 << 20, 128, 96, 16, False, 96),
    "dual": (1, 3, 1 << 20, 128, 96, 16, True, 40),
    "evicting": (1, 2, 24, 3, 24, 6, False, 24),
    "pairs": (2, 3, 40, 2, 30, 8, True, 30),
}


class Lru:
    """Leader -> OrderedDict of followers; the oldest first in both."""

    def __init__(self, max_leaders, max_followers):
        self.leaders, self.max_leaders, self.max_followers = OrderedDict(), max_leaders, max_followers

    def insert(self, leader, follower):
        followers = self.leaders.setdefault(leader, OrderedDict())
        self.leaders.move_to_end(leader)
        if len(self.leaders) > self.max_leaders:
            self.leaders.popitem(last=False)
        followers[follower] = None
        followers.move_to_end(follower)
        if len(followers) > self.max_followers:
            followers.popitem(last=False)

    def query(self, leader):
        if leader not in self.leaders:
            return []
        self.leaders.move_to_end(leader)
        return list(reversed(self.leaders[leader]))


class Frozen:
    """The most frequent leaders, each with its most frequent followers; ties to the lower ids."""

    def __init__(self, ids, ll, fl, max_leaders, max_followers):
        counts = {}
        for i in range(len(ids) - ll - fl + 1):
            leader, follower = tuple(ids[i:i + ll]), tuple(ids[i + ll:i + ll + fl])
            counts.setdefault(leader, Counter())[follower] += 1
        best = sorted(counts, key=lambda leader: (-sum(counts[leader].values()), leader))[:max_leaders]
        self.table = {leader: sorted(counts[leader], key=lambda f, c=counts[leader]: (-c[f], f))[:max_followers]
                      for leader in best}

    def query(self, leader):
        return self.table.get(leader, [])


class Tree:
    def __init__(self, root):
        self.tokens, self.parents, self.children = [root], [-1], [{}]

    def add(self, parent, token):
        self.tokens.append(token)
        self.parents.append(parent)
        self.children.append({})
        self.children[parent][token] = len(self.tokens) - 1
        return len(self.tokens) - 1

    def path(self, node):
        tokens = []
        while node > 0:
            tokens.append(self.tokens[node])
            node = self.parents[node]
        return tokens[::-1]


def extend(tree, text, node, table, ll, limit, ends):
    context = tuple((text + tree.path(node))[-ll:])
    if len(tree.tokens) >= limit or len(context) < ll:
        return
    for follower in table.query(context):
        at, before = node, len(tree.tokens)
        for token in follower:
            if token in tree.children[at]:
                at = tree.children[at][token]
            elif len(tree.tokens) < limit:
                at = tree.add(at, token)
            else:
                break
        if at >= before:
            ends.append(at)


def draft(text, dynamic, frozen, ll, tdl, crt, budget):
    tree, limit = Tree(text[-1]), min(tdl, budget)
    first_limit = limit - crt * limit // tdl
    ends = []
    extend(tree, text, 0, dynamic, ll, first_limit, ends)
    n_first = len(tree.tokens)
    for end in ends:  # grows meanwhile
        extend(tree, text, end, dynamic, ll, limit, ends)
    if frozen:
        extend(tree, text, 0, frozen, ll, min(limit, len(tree.tokens) + first_limit - n_first), [])
        ends = [node for node in range(1, len(tree.tokens)) if not tree.children[node]]
        for end in ends:
            extend(tree, text, end, frozen, ll, limit, ends)
    return tree


def replay(conversations, corpus, ll, fl, lc, fc, tdl, crt, dual, budget):
    dynamic = Lru(lc, fc)
    frozen = Frozen(corpus, ll, fl, lc, fc) if dual else None
    lines = []
    for prompt, answer in conversations:
        text = []

        def commit(tokens):
            for token in tokens:
                text.append(token)
                if len(text) >= ll + fl:
                    dynamic.insert(tuple(text[-ll - fl:-fl]), tuple(text[-fl:]))

        commit(prompt)
        done = 0
        while done < len(answer):
            tree = draft(text, dynamic, frozen, ll, tdl, crt, budget)
            node, n = 0, 0
            while done + n < len(answer) and answer[done + n] in tree.children[node]:
                node = tree.children[node][answer[done + n]]
                n += 1
            n = min(n + 1, len(answer) - done)
            commit(answer[done:done + n])
            done += n
            nodes = " ".join(f"{t}:{p}" for t, p in list(zip(tree.tokens, tree.parents))[1:])
            lines.append(f"{n} {nodes}".rstrip())
    return lines


def record(program):
    lines = []
    for kind, prompt, options in RUNS:
        with tempfile.TemporaryDirectory() as folder:
            ids = Path(folder) / "ids"
            command = [program, "generate", "-q", "--prompt", prompt, "--seed", "5", "--token-ids", str(ids)] + options
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            made = ids.read_text().split()
        asked = subprocess.run([program, "tokenize", "--ids"], input=prompt, check=True, capture_output=True, text=True)
        if kind == "answer":
            lines.append("prompt " + " ".join(asked.stdout.split()))
        lines.append(f"{kind} " + " ".join(made))
    (HERE / "recorded.txt").write_text("\n".join(lines) + "\n")


def main():
    if len(sys.argv) > 1:
        record(sys.argv[1])
    corpus, conversations = [], []
    for line in (HERE / "recorded.txt").read_text().splitlines():
        kind, *ids = line.split()
        ids = [int(i) for i in ids]
        if kind == "corpus":
            corpus = ids
        elif kind == "prompt":
            conversations.append((ids, []))
        else:
            conversations[-1][1].extend(ids)
    small = Frozen(corpus, 2, 2, 60, 2)
    (HERE / "frozen.txt").write_text("".join(
        " ".join(map(str, leader)) + " > " + " | ".join(" ".join(map(str, f)) for f in followers) + "\n"
        for leader, followers in sorted(small.table.items())))
    for name, config in CONFIGS.items():
        lines = replay(conversations, corpus, *config)
        (HERE / f"{name}.txt").write_text("\n".join(lines) + "\n")
        print(name, "passes", len(lines), "tokens a pass", sum(int(line.split()[0]) for line in lines) / len(lines))


main()
