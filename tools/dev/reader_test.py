#!/usr/bin/env python3
"""Draws comments for a reader's test: is a comment clear to a reader who sees only the comment and its declaration?

    reader_test.py ROOT --seed N --sheet FILE --key FILE
    reader_test.py --self-test

Writes a sheet for the reader (comments, declarations, questions; no file, no path, no body) and a key for the checker
(the place of each comment). Sixty comments are drawn from the C++ and CUDA sources below kernels, offload, runtime,
draft, tools and tests/support: 20 doc comments of several lines, 20 of one line, 10 of constants, 10 inside function
bodies. Seed and tree determine the draw. A comment can be drawn if

- it directly precedes a declaration, or follows code on its line, or is inside a function body;
- it has at least four words, if it follows code on its line.

A comment of a constant (kName) counts as such wherever it is. File heads are not drawn, since they have no declaration.
"""

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tempfile

FOLDERS = ("kernels", "offload", "runtime", "draft", "tools", "tests/support")
SUFFIXES = (".h", ".cpp", ".cu", ".cuh")
STRATA = {"several lines": 20, "one line": 20, "constant": 10, "inside a body": 10}
MIN_TRAILING_WORDS = 4

INSTRUCTIONS = """\
Reader's test, {n} comments.

Read each comment and its declaration once, in order, and answer its three questions in a few words each. Look at no
source file, no page and no other comment. "Nothing said" is a right answer where comment and declaration say nothing.
Write "?" where you do not understand what is said.

Answer a) in your own words: an answer that only repeats the comment's words does not count. Where the comment says "it",
"they", "that", "so", "there", or leaves a noun out, the answer names the thing that is meant. A number in b) has its
unit (bytes, tokens, seconds, ...). A comment counts as understood if all three answers are right.
"""
QUESTIONS = {
    "function": ("What does it do, and what does it return?",
                 "Unit, shape, or owner (who keeps it alive, until when) of {operand}?",
                 "What must the caller not do, or make sure of first?"),
    "thing": ("What is it, or what does it hold?",
              "Unit, shape, or owner (who keeps it alive, until when) of {operand}?",
              "What must code that uses it not do, or make sure of first?"),
    "constant": ("What does it limit or set?",
                 "Its unit, or what it is a fraction or a number of?",
                 "Why this value, or what must somebody who changes it not do?"),
    "body": ("What happens here, or why does it happen?",
             "Unit, shape, or owner (who keeps it alive, until when) of {operand}?",
             "What must code here not do, or which order or condition has it to keep?"),
}


class Comment:
    def __init__(self, line, column, text, trailing):
        self.line = line  # first line, from 0
        self.last_line = line
        self.column = column
        self.texts = [text]  # one per line, with the slashes
        self.trailing = trailing

    def words(self):
        return re.findall(r"\w[\w'.-]*", " ".join(text.lstrip("/") for text in self.texts))


def split_comments(source):
    """Returns the source without its comments (strings become "...", line numbers stay), and its // comments in order."""
    code = []
    comments = []
    line_start = 0
    line = 0
    i = 0
    while i < len(source):
        two = source[i:i + 2]
        if two == "//":
            end = source.find("\n", i)
            end = len(source) if end < 0 else end
            before = source[line_start:i]
            add_comment(comments, Comment(line, i - line_start, source[i:end].rstrip(), bool(before.strip())))
            i = end
        elif two == "/*":
            end = source.index("*/", i + 2)
            code.append(source[i + 2:end])  # the name of an unused parameter
            line += source.count("\n", i, end)
            i = end + 2
        elif source.startswith('R"', i) and not re.match(r"\w", source[i - 1:i] or " "):
            delimiter = ")" + source[i + 2:source.index("(", i)] + '"'
            end = source.index(delimiter, i) + len(delimiter)
            newlines = source.count("\n", i, end)
            code.append('"..."' + "\n" * newlines)
            line += newlines
            i = end
        elif source[i] == '"' or (source[i] == "'" and not re.match(r"[0-9a-fA-F]", source[i - 1:i])):
            end = i + 1
            while source[end] != source[i]:
                end += 2 if source[end] == "\\" else 1
            code.append('"..."')
            i = end + 1
        else:
            code.append(source[i])
            if source[i] == "\n":
                line += 1
                line_start = i + 1
            i += 1
    return "".join(code), comments


def add_comment(comments, found):
    """Appends a comment, or joins it to the last one if it is on the next line, alone there, in the same column."""
    last = comments[-1] if comments else None
    doc = found.texts[0].startswith("///")
    if (last is not None and not found.trailing and last.last_line + 1 == found.line and last.column == found.column
            and last.texts[0].startswith("///") == doc):
        last.texts += found.texts
        last.last_line = found.line
    else:
        comments.append(found)


def kind_of_brace(head, parent):
    """Returns what a { opens. `head`: the text since the last ; { or }."""
    head = re.sub(r"template\s*<[^{}]*?>\s*(?=class|struct|enum|union|requires|inline|\w)", "", head.strip())
    if parent == "body" or parent == "values":
        return parent
    if re.search(r"\bnamespace\b", head) or head.startswith("extern"):
        return "namespace"
    if re.match(r"(public:|private:|protected:|\s)*enum\b", head):
        return "enum"
    if re.match(r"(public:|private:|protected:|\s)*(typedef\s+)?(class|struct|union)\b", head) and not head.endswith(")"):
        return "class"
    if re.search(r"[=({,]$|\breturn$", head) or "(" not in head:
        return "values" if head and not head.startswith(",") else "body"
    return "body"


def structure(code):
    """Returns for each line the scope in which it begins: its kind, and the head of the outermost function or list."""
    stack = []  # (kind, head)
    head = ""
    scopes = []
    directive = False
    for text in code.split("\n"):
        outer = next(((kind, name) for kind, name in stack if kind in ("body", "values")), None)
        scopes.append(outer or (stack[-1] if stack else ("namespace", "")))
        directive = directive or text.lstrip().startswith("#")
        if directive:
            directive = text.rstrip().endswith("\\")
            continue
        for char in text + "\n":
            if char == "{":
                stack.append((kind_of_brace(head, stack[-1][0] if stack else "namespace"), head))
                head = ""
            elif char == "}":
                if stack:
                    stack.pop()
                head = ""
            elif char == ";":
                head = ""
            else:
                head += char
    return scopes


def declaration(lines, begin, scope):
    """Returns the declaration that begins on line `begin`: up to its ; or to the { of its body."""
    first = lines[begin].strip()
    if first.startswith("#define"):
        return re.match(r"#define\s+\w+(\([^)]*\))?", first).group(0)
    text = ""
    depth = 0  # each brace of a value counts a thousand
    for line in lines[begin:begin + 40]:
        if line.lstrip().startswith("#"):
            break
        for char in line + "\n":
            if char in "([":
                depth += 1
            elif char in ")]":
                depth -= 1
            if depth < 0:
                return tidy(text)
            if depth == 0 and char == ";":
                return tidy(text + char)
            if depth == 0 and (char in "{}" or (char == "," and scope == "enum")):
                if char == "{" and is_value(text, scope):
                    depth += 1000
                elif depth == 0:
                    return tidy(text)
            elif char in "{}" and depth >= 1000:
                depth += 1000 if char == "{" else -1000
            text += char
    return tidy(text)


def is_value(text, scope):
    """Returns whether a { after this text begins a value, not a body."""
    return kind_of_brace(text, "class" if scope == "class" else "namespace") == "values"


def tidy(text):
    """Returns a declaration in lines of at most 110 columns, without initialiser list, access specifier, long value."""
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r"^((public|private|protected): )+", "", text)
    text = re.sub(r"^\[\[nodiscard\]\] ", "", text)
    text = re.sub(r"\) :\s+\w+[({].*$", ")", text)
    text = re.sub(r"\{.{80,}\};$", "{...};", text)
    text = re.sub(r'("\.\.\." )+"\.\.\."', '"..."', text)
    wrapped = []
    while len(text) > 110:
        cut = text.rfind(" ", 0, 110)
        cut = 110 if cut <= 0 else cut
        wrapped.append(text[:cut])
        text = "        " + text[cut:].strip()
    return "\n".join([*wrapped, text])


def own_statement(lines, number):
    """Returns the statement to which a comment at the end of line `number` belongs."""
    begin = number
    while begin > 0 and number - begin < 3:
        before = lines[begin - 1].strip()
        if not before or before[0] == "#" or re.search(r"[;{},:]$", before):
            break
        begin -= 1
    return tidy(" ".join(line.strip() for line in lines[begin:number + 1]))


class Candidate:
    def __init__(self, path, comment, shown, stratum, kind):
        self.path = path
        self.comment = comment
        self.shown = shown  # the declaration, and the statement if there is one
        self.stratum = stratum
        self.kind = kind

    def order(self, seed):
        return hashlib.sha256(f"{seed}:{self.path}:{self.comment.line + 1}".encode()).hexdigest()


def candidates(path, source):
    code, comments = split_comments(source)
    lines = code.split("\n")
    scopes = structure(code)
    for comment in comments:
        first = comment.texts[0].lstrip("/").strip()
        if re.match(r"NOLINT|clang-format|namespace\b", first):
            continue
        if comment.trailing and len(comment.words()) < MIN_TRAILING_WORDS:
            continue
        after = comment.last_line + 1
        if not comment.trailing and (after >= len(lines) or not lines[after].strip()
                                     or re.match(r"\s*([})\]]|#(?!define)|(public|private|protected):)", lines[after])):
            if scopes[comment.line][0] != "body":
                continue  # a file head, or a comment at the end of a scope
        kind, head = scopes[comment.line]
        if comment.trailing:
            statement = own_statement(lines, comment.line)
        elif after < len(lines) and lines[after].strip():
            statement = declaration(lines, after, kind)
        else:
            statement = ""
        constant = re.search(r"\bk[A-Z]\w*", statement.split("=")[0]) if re.search(r"\bconst(expr)?\b", statement) else None
        if kind == "values":
            name = re.search(r"\bk[A-Z]\w*", head) if re.search(r"\bconst(expr)?\b", head) else None
            if name is None:
                continue
            yield Candidate(path, comment, tidy(head + " {...}"), "constant", "constant")
        elif constant and "(" not in statement.split("=")[0]:
            yield Candidate(path, comment, statement, "constant", "constant")
        elif kind == "body":
            shown = "in " + tidy(head)
            if comment.trailing or re.match(r"(const|auto|static|constexpr|std::|[A-Z]\w+[&*]* \w+)", statement):
                shown += "\n    " + statement.replace("\n", "\n    ")
            yield Candidate(path, comment, shown, "inside a body", "body")
        elif statement:
            function = (re.search(r"\w\s*\(", re.sub(r"<[^()]*\([^()]*\)>", "", statement.split("=")[0]))
                        or "operator" in statement)
            stratum = "several lines" if len(comment.texts) > 1 and not comment.trailing else "one line"
            if len(comment.texts) > 1 and comment.trailing:
                stratum = "several lines"
            yield Candidate(path, comment, statement, stratum, "function" if function else "thing")


def operand(candidate, seed):
    """Returns the subject of the second question: a parameter or a variable that the comment names; if there is none,
    the result, or else a parameter."""
    if candidate.kind == "constant":
        return ""
    text = " ".join(candidate.comment.texts)
    names = []
    rest = "the object that it works on"
    if candidate.kind == "function":
        names = re.findall(r"(\w+)(?:\s*=[^,()]*)?(?=\s*[,)])", candidate.shown.split("(", 1)[-1])
        names = [name for name in names if not re.match(r"(const|int\d*|float|double|bool|void|size_t|\d.*)$", name)]
        if not re.search(r"\bvoid\b|~", candidate.shown.split("(")[0]) and " " in candidate.shown.split("(")[0]:
            rest = "its result"
        elif names:
            rest = names[int(candidate.order(f"{seed}:operand")[:8], 16) % len(names)]
    elif candidate.kind == "body":
        names = re.findall(r"\w+", candidate.shown.split("\n    ", 1)[-1]) + re.findall(r"`(\w+)`|\b([a-z]+_\w+)\b", text)
        names = [name for found in names for name in ([found] if isinstance(found, str) else found) if "_" in name]
        rest = "one operand that the comment names"
    else:
        rest = "the thing itself"
    named = sorted({name for name in names if re.search(rf"\b{re.escape(name)}\b", text)})
    return named[int(candidate.order(f"{seed}:operand")[:8], 16) % len(named)] if named else rest


def list_files(root):
    if os.path.exists(os.path.join(root, ".git")):
        listed = subprocess.run(["git", "-C", root, "ls-files", "-z", *FOLDERS], capture_output=True, check=True)
        names = listed.stdout.decode().split("\0")
    else:
        names = [os.path.relpath(os.path.join(folder, name), root) for folder, _, found in os.walk(root) for name in found]
    return sorted(name for name in names if name.endswith(SUFFIXES) and name.startswith(tuple(f + "/" for f in FOLDERS))
                  and os.path.isfile(os.path.join(root, name)))


def read_tree(root):
    found = []
    for path in list_files(root):
        with open(os.path.join(root, path), encoding="utf-8") as file:
            found += candidates(path, file.read())
    return found


def draw(found, seed):
    """Returns the comments of the test, shuffled. Raises ValueError if a stratum has too few."""
    drawn = []
    for stratum, n in STRATA.items():
        members = sorted((one for one in found if one.stratum == stratum), key=lambda one: one.order(seed))
        if len(members) < n:
            raise ValueError(f"{len(members)} comments of the kind '{stratum}' found, {n} are needed")
        drawn += members[:n]
    return sorted(drawn, key=lambda one: one.order(f"{seed}:mixed"))


def sheet(drawn, seed):
    parts = [INSTRUCTIONS.format(n=len(drawn))]
    for number, one in enumerate(drawn, 1):
        comment = "\n".join("    " + text for text in one.comment.texts)
        shown = "\n".join("    " + line for line in one.shown.split("\n"))
        first, second, third = (question.format(operand=operand(one, seed)) for question in QUESTIONS[one.kind])
        both = f"{comment}\n{shown}" if not one.comment.trailing else f"{shown}\n    at its end:\n{comment}"
        parts.append(f"--- {number}\n{both}\n\n  a) {first}\n  b) {second}\n  c) {third}\n")
    return "\n".join(parts)


def key(drawn):
    return "".join(f"{number}\t{one.path}:{one.comment.line + 1}\t{one.stratum}\n" for number, one in enumerate(drawn, 1))


def self_test():
    source = '''// Head of a file, which has no declaration.
#pragma once

namespace a {

/// Several lines of a
/// doc comment about `n_bytes`.
[[nodiscard]] int twice(int n_bytes, const char* name = "// no comment");

/// One line.
class Box {
public:
    Box() : a_(1), b_{2} {}
    /// Inline; its body is not shown.
    int get() const { return 1'000; }  // three words only

    int size = 0;  // of the box, in bytes
    std::array<int, 2> pair_{};  // two of them, in metres
};

enum class Kind { One, Two };  // what kinds there are
constexpr int kLimit = 3;  // tokens, since more do not fit
constexpr std::array<int, 2> kTable{{
    // first row of the table here
    1, 2,
}};

int run(int x) {
    // Inside a body.
    if (x > 0) {
        const int y = 2;  // local note of four words
        constexpr int kInner = 4;  // constant in a body here
    }
    // NOLINTNEXTLINE(all)
    return x;
}

// private note of a function
void last();

}  // namespace a
'''
    found = {one.comment.texts[0]: one for one in candidates("kernels/a.h", source)}
    want = {
        "/// Several lines of a": ("several lines", "function", 'int twice(int n_bytes, const char* name = "...");'),
        "/// One line.": ("one line", "thing", "class Box"),
        "/// Inline; its body is not shown.": ("one line", "function", "int get() const"),
        "// of the box, in bytes": ("one line", "thing", "int size = 0;"),
        "// two of them, in metres": ("one line", "thing", "std::array<int, 2> pair_{};"),
        "// what kinds there are": ("one line", "thing", "enum class Kind { One, Two };"),
        "// tokens, since more do not fit": ("constant", "constant", "constexpr int kLimit = 3;"),
        "// first row of the table here": ("constant", "constant", "constexpr std::array<int, 2> kTable {...}"),
        "// Inside a body.": ("inside a body", "body", "in int run(int x)"),
        "// local note of four words": ("inside a body", "body", "in int run(int x)\n    const int y = 2;"),
        "// constant in a body here": ("constant", "constant", "constexpr int kInner = 4;"),
        "// private note of a function": ("one line", "function", "void last();"),
    }
    for text, (stratum, kind, shown) in want.items():
        assert text in found, f"not found: {text}"
        one = found.pop(text)
        assert (one.stratum, one.kind, one.shown) == (stratum, kind, shown), (text, one.stratum, one.kind, one.shown)
    assert not found, f"must not be drawn: {list(found)}"
    first = next(candidates("kernels/a.h", source))
    assert first.comment.last_line == first.comment.line + 1 and operand(first, 1) == "n_bytes"

    with tempfile.TemporaryDirectory() as root:
        os.makedirs(os.path.join(root, "offload"))
        os.makedirs(os.path.join(root, "tests", "draft"))
        unit = ("/// Doc {i} in\n/// two lines.\nint a{i}(int x);\n/// One line {i}.\nint b{i}(int x);\n"
                "constexpr int kC{i} = 1;  // of constant {i}, in bytes\nint d{i}() {{\n    // Inside of {i}.\n    return 1;\n}}\n")
        for name in ("offload/x.h", "tests/draft/x.h"):
            with open(os.path.join(root, name), "w", encoding="utf-8") as file:
                file.write("".join(unit.format(i=i) for i in range(40)))
        found = read_tree(root)
        assert len(found) == 160 and all(one.path == "offload/x.h" for one in found), len(found)
        one, other, again = draw(found, 1), draw(found, 2), draw(read_tree(root), 1)
        assert key(one) == key(again) and sheet(one, 1) == sheet(again, 1), "the same seed must draw the same"
        assert key(one) != key(other), "another seed must draw others"
        assert len({line.split("\t")[1] for line in key(one).splitlines()}) == 60
        assert all(key(one).count("\t" + stratum + "\n") == n for stratum, n in STRATA.items())
        assert "offload" not in sheet(one, 1) and "return 1" not in sheet(one, 1) and "\n--- 60\n" in sheet(one, 1)
        try:
            draw(found[:40], 1)
            raise AssertionError("a tree with too few comments must be refused")
        except ValueError:
            pass
    print("comments of a made-up header sorted as they should be, and drawn the same for the same seed")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", help="root folder of the source tree")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--sheet", help="file to write for the reader")
    parser.add_argument("--key", help="file to write for the checker")
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        self_test()
        return
    if options.root is None or options.seed is None or options.sheet is None or options.key is None:
        parser.error("ROOT, --seed, --sheet and --key are required")
    found = read_tree(options.root)
    try:
        drawn = draw(found, options.seed)
    except ValueError as error:
        sys.exit(f"{options.root}: {error}")
    for name, text in ((options.sheet, sheet(drawn, options.seed)), (options.key, key(drawn))):
        with open(name, "w", encoding="utf-8") as file:
            file.write(text)
    counts = ", ".join(f"{sum(one.stratum == stratum for one in found)} {stratum}" for stratum in STRATA)
    print(f"{len(drawn)} of {len(found)} comments drawn ({counts})")


if __name__ == "__main__":
    main()
