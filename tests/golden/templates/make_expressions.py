#!/usr/bin/env python3
"""Random expressions and what Jinja makes of them, set up as transformers does: writes expressions.json.

    python3 make_expressions.py [COUNT [SEED]]

Left out is what has no fixed answer (addresses in the text of functions and generators) and what needs integers beyond 64
bits, which the runtime does not have.
"""
import copy
import json
import random
import re
import resource
import sys
import warnings
from pathlib import Path

import oracle

VARIABLES = {
    "n": 5, "f": 2.5, "s": "Hello, World", "w": "  a b\tc\n", "e": "", "u8": "Größe ǆ ß ΑΣ 你好🙂", "t": True, "nil": None,
    "xs": [3, 1, 2, 2], "ws": ["b", "A", "c", "a"], "mix": [1, "1", 1.0, None, True, [1], {"a": 1}],
    "d": {"b": 2, "a": 1, "items": [1, 2], "c d": "x"}, "ds": [{"k": "x", "v": 2}, {"k": "Y", "v": 1}, {"k": "x", "v": 3}],
    "html": "<b class='x'>&\"</b>", "neg": -7, "big": 1e20, "deep": {"a": {"b": [{"c": "z"}]}},
}
NAMES = list(VARIABLES) + ["nope"]
STRINGS = ["", "a", "b", "x", " ", ",", "ab", "A", "l", "o, W", "\\n", "é", "ß", "你", "%s", "%d|%s", "{}", "{0}-{1:>4}", "1",
           "2.5", "-3", "0x1F", " 7 ", "k", "v", "k,v", "a.b.0.c", "it's", 'q\\"q', "<b>", "upper", "odd", "title Case-x (y"]
# What is served of methods and filters, with how many arguments at the most.
METHODS = [("upper", 0), ("lower", 0), ("title", 0), ("capitalize", 0), ("strip", 1), ("lstrip", 1), ("rstrip", 1),
           ("split", 2), ("startswith", 2), ("endswith", 2), ("replace", 3), ("join", 1), ("get", 2), ("items", 0),
           ("keys", 0), ("values", 0), ("append", 1), ("update", 1), ("nosuch", 0)]
FILTERS = [("upper", 0), ("lower", 0), ("title", 0), ("capitalize", 0), ("trim", 1), ("length", 0), ("count", 0), ("list", 0),
           ("first", 0), ("last", 0), ("join", 2), ("sort", 3), ("unique", 2), ("min", 2), ("max", 2),
           ("default", 2), ("d", 1), ("replace", 3), ("string", 0), ("int", 1), ("tojson", 0),
           ("items", 0), ("dictsort", 3), ("indent", 3), ("float", 1), ("abs", 0), ("round", 1), ("sum", 2), ("truncate", 2),
           ("center", 1), ("groupby", 1), ("batch", 2), ("slice", 2), ("attr", 1)]
LAZY = ["map('upper')", "map('string')", "map('int')", "map(attribute='k')", "map(attribute='v', default=0)", "map('default', 1)",
        "map('replace', 'a', 'z')", "select", "select('string')", "select('equalto', 1)", "select('iterable')",
        "reject('none')", "reject", "selectattr('k')", "selectattr('v', 'equalto', 1)", "selectattr('k', 'equalto', 'x')",
        "rejectattr('nope')", "map('length')", "map('first')", "map", "select('nosuch')", "map('float')", "map('abs')",
        "map('round', 1)", "select('>', 1)", "select('in', xs)", "select('integer')", "selectattr('v', 'ge', 2)",
        "groupby('k')", "groupby('v')|map(attribute='list')", "groupby('k')|map(attribute='grouper')", "batch(2)", "slice(2, 0)"]
GENERATORS = ("items", "unique", "batch", "slice")  # their own text is an address
NAMED = {"sort": ["reverse=true", "case_sensitive=true", "attribute='k'", "attribute='v,k'"], "tojson": ["indent=2", "sort_keys=true",
         "ensure_ascii=true", "separators=(',', ':')", "indent=none"], "join": ["attribute='k'", "d='-'"],
         "unique": ["attribute='k'", "case_sensitive=true"], "min": ["attribute='v'"], "max": ["attribute='v'"],
         "dictsort": ["by='value'", "reverse=true", "case_sensitive=true"], "default": ["boolean=true", "default_value=3"],
         "indent": ["first=true", "blank=true", "width=1"],
         "int": ["default=9"],
         "trim": ["chars='a'"], "float": ["default=none"], "sum": ["attribute='v'", "start=2.5", "start=[]"],
         "round": ["method='ceil'", "1, 'floor'", "-1", "precision=2", "1, method='ceil'"],
         "truncate": ["5", "7, true", "9, end='-'", "3, leeway=0", "length=4, killwords=true, end=''"],
         "groupby": ["'k'", "'v'", "attribute='k', case_sensitive=true", "'z', default=7", "0"],
         "batch": ["2", "3, 'x'", "linecount=2, fill_with=none"], "slice": ["2", "3, 'x'", "slices=5"], "center": ["width=11"]}
TESTS = ["defined", "undefined", "none", "string", "number", "boolean", "true", "false", "mapping", "iterable",
         "sequence", "equalto 1", "equalto 'a'", "equalto s", "equalto(xs)", "equalto none", "eq 1", "ne 'a'", "gt 1", "ge n",
         "lt 2.5", "le s", "greaterthan(1)", "lessthan 3", "in xs", "in s", "in d", "in (1, 2)", "odd", "even", "divisibleby 2",
         "divisibleby(0)", "integer", "float", "lower", "upper", "callable", "sameas true", "sameas none"]


class Generator:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def pick(self, items):
        return self.random.choice(items)

    def text(self):
        return "'" + self.pick(STRINGS).replace("'", "\\'") + "'"

    def number(self):
        return self.pick(["0", "1", "2", "3", "-1", "-2", "7", "10", "1.0", "2.5", "-0.5", "1e3", "0.1", "100"])

    def atom(self):
        kind = self.random.randrange(10)
        if kind < 4:
            return self.pick(NAMES)
        if kind < 6:
            return self.number()
        return self.text() if kind < 9 else self.pick(["true", "false", "none"])

    def arguments(self, depth, count, named=()):
        parts = [self.expression(depth - 2) for _ in range(self.random.randint(0, count))]
        if named and self.random.random() < 0.5:
            parts = [self.pick(named)] if self.random.random() < 0.7 else parts[:1] + [self.pick(named)]
        return ", ".join(parts)

    def expression(self, depth):
        if depth <= 0 or self.random.random() < 0.1:
            return self.atom()
        sub = lambda: self.expression(depth - 1)
        kind = self.random.randrange(24)
        if kind < 3:
            return f"({sub()} {self.pick(['+', '-', '*', '/', '//', '~'])} {sub()})"
        if kind == 3:
            return f"{sub()} {self.pick(['+', '-', '*', '/', '//', '~'])} {sub()} {self.pick(['+', '~', '*', '-'])} {sub()}"
        if kind == 4:
            return f"({self.number()} % {self.pick(['1', '2', '-3', '2.5'])})"
        if kind == 5:
            return f"{sub()} {self.pick(['==', '!=', '<', '<=', '>', '>=', 'in', 'not in'])} {sub()}"
        if kind == 6:
            return f"{sub()} {self.pick(['<', '<=', '=='])} {sub()} {self.pick(['<', '>', '!=', 'in'])} {sub()}"
        if kind == 7:
            return f"{sub()} {self.pick(['and', 'or'])} {self.pick(['', 'not '])}{sub()}"
        if kind == 8:
            return f"({self.pick(['not ', '-', '+', '-'])}{sub()})"
        if kind == 9:
            other = f" else {sub()}" if self.random.random() < 0.8 else ""
            return f"({sub()} if {sub()}{other})"
        if kind == 10:
            return self.pick([f"[{sub()}, {sub()}]", f"({sub()}, {sub()})", f"[{sub()}]", f"({sub()},)", "[]", "{}",
                              f"{{{self.atom()}: {sub()}, {self.text()}: {sub()}}}"])
        if kind == 11:
            return f"{self.postfix(sub())}[{self.pick([sub(), self.number(), self.text()])}]"
        if kind == 12:
            bound = lambda: self.pick(["", "", "0", "1", "-1", "2", "-3", "5", sub()])
            # With a variable in it: constants are folded by other rules.
            return f"({sub()} if t)[{bound()}:{bound()}{self.pick(['', '', ':' + self.pick(['', '-1', '2', '-2'])])}]"
        if kind == 13:
            return f"{self.postfix(sub())}.{self.pick(['a', 'b', 'k', 'c', 'nope', '0'])}"
        if kind < 18:
            name, count = self.pick(METHODS)
            return f"{self.postfix(sub())}.{name}({self.arguments(depth, count)})"
        if kind < 21:
            name, count = self.pick(FILTERS)
            arguments = self.arguments(depth, count, NAMED.get(name, ()))
            call = f"({arguments})" if arguments or self.random.random() < 0.2 else ""
            return f"{self.postfix(sub())}|{name}{call}" + ("|list" if name in GENERATORS else "")
        if kind == 21:
            return f"{self.postfix(sub())}|{self.pick(LAZY)}|{self.pick(['list', 'first', 'join', 'list', 'length', 'sort'])}"
        if kind == 22:
            return f"({self.postfix(sub())} is {self.pick(['', 'not '])}{self.pick(TESTS)})"
        return self.pick([f"({self.number()} % {self.number()})", f"range({self.arguments(depth, 3)})|list", f"namespace(a={sub()}).a",
                          f"'{self.pick(['{}', '{0}{0}', '{a}', '{{}}'])}'.format({sub()}, a={sub()})"])

    @staticmethod
    def postfix(expression):
        return expression if re.fullmatch(r"\w+|'[^']*'|\[.*\]|\(.*\)", expression) and not expression.isdigit() \
            else f"({expression})"


def has_fixed_answer(result):
    text = result.get("text", "")
    unfixed = re.search(r" at 0x| AT 0X|built-in|<bound|<function|dict_(keys|values|items)iterator|reverseiterator|\d{18,}", text)
    beyond = re.search(r"too large|overflow|Overflow|Exceeds the limit|out of range|complex|decimal point", result.get("error", ""))
    surrogate = any("\ud800" <= c < "\ue000" for c in text)
    return not (unfixed or beyond or surrogate or result.get("kind") == "MemoryError")


def cases(count, seed):
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))  # some expressions multiply texts
    generator, seen = Generator(seed), set()
    while count > 0:
        source = "{{ " + generator.expression(generator.random.randint(1, 4)) + " }}"
        if source in seen or len(source) > 160:
            continue
        seen.add(source)
        result = oracle.render(source, **copy.deepcopy(VARIABLES))
        # Most of what is put together at random is an error: a quarter of the cases, not more.
        if has_fixed_answer(result) and ("text" in result or generator.random.random() < 0.1):
            count -= 1
            yield source, result


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    rows = [json.dumps([source, result.get("text"), result.get("error")], ensure_ascii=False, separators=(",", ":"))
            for source, result in cases(count, seed)]
    variables = json.dumps(VARIABLES, ensure_ascii=False, separators=(",", ":"))
    Path(__file__).with_name("expressions.json").write_text(
        '{"variables":' + variables + ',\n"cases":[\n' + ",\n".join(rows) + "\n]}\n")


if __name__ == "__main__":
    main()
