#!/usr/bin/env python3
"""Checks that two commits compile to the same code, for example after a change of comments.

    compare_objects.py BEFORE AFTER FOLDER_OR_SOURCE... [--build build/release] [--jobs 2] [--preprocessed]
    compare_objects.py --self-test

Compiles the named sources, and all sources below the named folders, that compile_commands.json of the build folder
lists, once for each commit, and compares all sections of the objects. The line number is fixed to 0 (only CHECK uses
it), and debug data is left out. Both commits are compiled at the same path, so that file names are the same. A source
that only one of the commits has counts as different. Headers are covered if one of these sources includes them.

With --preprocessed it compares the preprocessed sources, without comments and line numbers. The compiler sees nothing
else, and this takes seconds instead of minutes. Exit code: 0 if all are equal, 1 otherwise.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import shlex
import struct
import subprocess
import sys
import tempfile


def sections(data):
    """Returns the sections of a 64-bit little-endian ELF object: {(name, earlier sections of that name): hash}."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF object")
    table, = struct.unpack_from("<Q", data, 0x28)
    size, n, names = struct.unpack_from("<HHH", data, 0x3A)
    if n == 0:  # e_shnum is 0 if there are too many sections for 16 bits
        n, = struct.unpack_from("<Q", data, table + 0x20)
    if names == 0xFFFF:
        names, = struct.unpack_from("<I", data, table + 0x28)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * size) for i in range(n)]
    found = {}
    for name, kind, flags, _, offset, length, link, info, align, entry in headers:
        begin = headers[names][4] + name
        text = data[begin:data.index(b"\0", begin)].decode()
        content = b"" if kind in (0, 8) else data[offset:offset + length]  # no section, or zeros that take no space in the file
        whole = hashlib.sha256(repr((kind, flags, length, link, info, align, entry)).encode() + content).hexdigest()
        number = sum(1 for other, _ in found if other == text)
        found[(text, number)] = whole
    return found


def commands(build, folders):
    """Returns {source relative to the root: compiler arguments} for the sources below `folders`, and the root."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    root = os.path.abspath(subprocess.run(["git", "rev-parse", "--show-toplevel"], capture_output=True, check=True,
                                          text=True, cwd=build).stdout.strip())
    found = {}
    for entry in entries:
        path = os.path.relpath(os.path.join(entry["directory"], entry["file"]), root)
        if path in folders or path.startswith(tuple(folder.rstrip("/") + "/" for folder in folders)):
            found.setdefault(path, entry.get("arguments") or shlex.split(entry["command"]))
    return root, found


def compile_arguments(arguments, root, tree, build, out):
    """Returns the command that compiles a source of `tree` instead of `root`. Generated files stay in `build`."""
    kept = []
    skip = False
    for argument in arguments:
        if skip or argument == "-c" or re.match(r"-g|-W|-M[DMP]*$", argument) or os.path.basename(argument) == "ccache":
            skip = False
            continue
        if argument in ("-o", "-MF", "-MT", "-MQ"):
            skip = True
            continue
        if build not in argument:
            argument = argument.replace(root, tree)
        kept.append(argument)
    return [*kept, "-g0", "-w", "-D__LINE__=0", "-o", out]


def compile_all(commit, root, tree, build, sources, jobs, preprocessed):
    """Returns {source: sections} for the sources that the commit has; a preprocessed source is a single section."""
    subprocess.run(["rm", "-rf", tree], check=True)
    os.makedirs(tree)
    archive = subprocess.run(["git", "-C", root, "archive", commit], capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", tree], input=archive, check=True)

    def one(path):
        if not os.path.exists(os.path.join(tree, path)):
            return None
        out = os.path.join(tree, hashlib.sha256(path.encode()).hexdigest() + ".o")
        what = ["-E", "-P"] if preprocessed else ["-c"]
        done = subprocess.run([*compile_arguments(sources[path], root, tree, build, out), *what], capture_output=True,
                              text=True, cwd=tree, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{commit}: {path} does not compile:\n{done.stderr}")
        with open(out, "rb") as file:
            data = file.read()
        if not preprocessed:
            return sections(data)
        return {("text", 0): b" ".join(line.strip() for line in data.splitlines() if line.strip())}

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return dict(zip(sources, pool.map(one, sources)))


def compare(before, after, build, folders, jobs, preprocessed=False):
    """Prints what differs. Returns whether nothing does."""
    build = os.path.abspath(build)
    root, sources = commands(build, folders)
    if not sources:
        raise RuntimeError(f"{build} lists no sources below {', '.join(folders)}")
    with tempfile.TemporaryDirectory() as work:
        tree = os.path.join(work, "tree")
        old = compile_all(before, root, tree, build, sources, jobs, preprocessed)
        new = compile_all(after, root, tree, build, sources, jobs, preprocessed)
    n_sections = 0
    equal = True
    for path in sorted(sources):
        if old[path] is None and new[path] is None:
            continue
        if old[path] is None or new[path] is None:
            print(f"{path}: only in {before if new[path] is None else after}")
            equal = False
            continue
        names = old[path].keys() | new[path].keys()
        differ = sorted(name for name in names if old[path].get(name) != new[path].get(name))
        n_sections += len(new[path])
        if differ:
            print(f"{path}: differs in {', '.join(name for name, _ in differ)}")
            equal = False
    if equal:
        what = "preprocessed texts are equal" if preprocessed else f"objects: all {n_sections} sections are equal"
        print(f"{before} to {after}: {len(sources)} {what}")
    return equal


def self_test():
    check = '#define CHECK(c) ((c) ? void() : failed(__FILE__, __LINE__))\nvoid failed(const char* file, int line);\n'
    files = {"lib/check.h": check,
             "lib/a.cpp": '#include "lib/check.h"\nint f(int x) {\n    CHECK(x > 0);\n    return x;\n}\n'}
    changes = {
        "a comment": ({"lib/a.cpp": "// Head\n// of two lines.\n" + files["lib/a.cpp"]}, True),
        "a comment in a header": ({"lib/check.h": "// Head.\n" + check}, True),
        "code": ({"lib/a.cpp": files["lib/a.cpp"].replace("return x", "return x + 1")}, False),
        "code in a header": ({"lib/check.h": check.replace("(c) ?", "(!(c)) ?")}, False),
        "a string": ({"lib/check.h": check.replace("__FILE__", '"other"')}, False),
        "a name": ({"lib/a.cpp": files["lib/a.cpp"].replace("f(int", "g(int")}, False),
        "a file that is gone": ({"lib/a.cpp": None}, False),
    }
    with tempfile.TemporaryDirectory() as root:
        git = ["git", "-C", root, "-c", "user.name=t", "-c", "user.email=t@t"]

        def commit(changed):
            for path, text in {**files, **changed}.items():
                os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
                if text is None:
                    os.remove(os.path.join(root, path))
                    continue
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write(text)
            subprocess.run([*git, "add", "-A"], check=True)
            subprocess.run([*git, "commit", "-qm", "x", "--allow-empty"], check=True)
            made = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
            return made.stdout.strip()

        subprocess.run([*git, "init", "-q"], check=True)
        build = os.path.join(root, "build")
        os.makedirs(build)
        with open(os.path.join(build, "compile_commands.json"), "w", encoding="utf-8") as file:
            json.dump([{"directory": build, "file": f"{root}/lib/a.cpp",
                        "command": f"c++ -I{root} -O2 -g -Werror -MD -MF x.d -o a.o -c {root}/lib/a.cpp"}], file)
        first = commit({})
        for name, (changed, want) in changes.items():
            changed_commit = commit(changed)
            for preprocessed in (False, True):
                found = compare(first, changed_commit, build, ["lib"], 1, preprocessed)
                assert found == want, f"{name}: wanted {'equal' if want else 'different'}"
    print(f"{len(changes)} small changes judged as they should be")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", nargs="?", help="a commit")
    parser.add_argument("after", nargs="?", help="a commit")
    parser.add_argument("folders", nargs="*", help="folders of sources, or sources, relative to the root")
    parser.add_argument("--build", default="build/release", help="a configured build folder of this tree")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--preprocessed", action="store_true", help="compare preprocessed sources, not objects")
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        self_test()
        return
    if not options.folders:
        parser.error("BEFORE, AFTER and at least one FOLDER are required")
    try:
        equal = compare(options.before, options.after, options.build, options.folders, options.jobs,
                        options.preprocessed)
    except (RuntimeError, ValueError, subprocess.CalledProcessError) as error:
        sys.exit(str(error))
    sys.exit(0 if equal else 1)


if __name__ == "__main__":
    main()
