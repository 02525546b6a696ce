#!/usr/bin/env bash
# Text reaches a terminal in one place, which escapes it: nothing outside tools/terminal writes to stdout or stderr, and
# nothing outside tools/terminal/console.cpp spells an escape sequence that is sent. Exceptions: a CHECK that fails
# (kernels/base/check.cpp, fed by no user data), libedit's own drawing and the keys that it reads
# (tools/chat/line_editor.cpp), and man pages (tools/options/help_files.cpp).
# usage: terminal_gate.sh ROOT         one line per offence, exit code 1 if there is any
#        terminal_gate.sh --self-test  builds small wrong trees and demands that each offence is seen
set -euo pipefail

check() {
    local root=$1 folders=() folder
    for folder in kernels offload runtime draft tools; do
        if [ -d "$root/$folder" ]; then folders+=("$folder"); fi
    done
    if [ ${#folders[@]} -eq 0 ]; then
        echo "$root: none of the five folders is here; name the project's root"
        return 1
    fi
    (cd "$root" && find "${folders[@]}" -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
        sort -z | xargs -0 -r awk '
        function offence(why) { printf "%s:%d: %s\n", FILENAME, FNR, why; bad = 1 }
        BEGIN { before = "(^|[^A-Za-z0-9_.>])" }
        /^[ \t]*\/\// { next }
        {
            writes = $0 ~ (before "(std::)?(cout|cerr|clog)[^A-Za-z0-9_]") ||
                     $0 ~ (before "(std::)?(printf|vprintf|puts|putchar|perror|psignal|dprintf)[ ]*\\(") ||
                     $0 ~ (before "STD(OUT|ERR)_FILENO") || $0 ~ /[(,][ ]*(std::)?stderr[ ]*[,)]/
            to_stdout = $0 ~ /[(,][ ]*(std::)?stdout[ ]*[,)]/
            prints = $0 ~ /fmt::(print|println)[ ]*\(/
        }
        writes && FILENAME !~ /^tools\/terminal\// && FILENAME != "kernels/base/check.cpp" &&
            FILENAME != "tools/chat/line_editor.cpp" { offence("writes past tools/terminal (Console, TextOutput)") }
        (prints || to_stdout) && !writes && FILENAME !~ /^tools\/terminal\// { offence("prints past tools/terminal (Console, TextOutput)") }
        /\\x1[bB]|\\033|\\e\[|\\u009[bB]/ && FILENAME != "tools/terminal/console.cpp" &&
            FILENAME != "tools/chat/line_editor.cpp" { offence("spells an escape sequence (terminal_control.h names them)") }
        END { exit bad }')
}

# expect VERDICT FILE LINE: a tree with that one line must be refused, or pass.
expect() {
    local verdict=pass tree
    tree=$(mktemp -d)
    mkdir -p "$tree/$(dirname "$2")"
    printf '// head\n%s\n' "$3" >"$tree/$2"
    check "$tree" >/dev/null || verdict=refused
    rm -rf "$tree"
    if [ "$verdict" != "$1" ]; then
        echo "self-test: $2 with $3: wanted $1, found $verdict"
        exit 1
    fi
}

if [ "${1:-}" != --self-test ]; then
    check "${1:?name the root of the project}"
    exit
fi
for line in 'std::cerr << name;' 'fprintf(stderr, "%s", name);' 'std::puts(name);' 'fmt::print("{}", name);' \
    'fmt::print(stderr, "{}", name);' 'write(STDERR_FILENO, name, n);' 'fputs(name, stdout);'; do
    expect refused tools/chat/a.cpp "$line"
    expect refused runtime/a.h "$line"
done
expect refused tools/lab/a.cpp 'fmt::print("{} GB/s\n", rate); std::fflush(stdout);'
expect pass tools/cli/a.cpp 'throw UsageError("one of them needs stdout; give --output F");'
expect pass tools/terminal/console.cpp 'write(STDERR_FILENO, name, n);'
expect pass tools/cli/a.cpp 'console.draw(name);'
expect pass tools/cli/a.cpp '// written to stdout'
expect pass tools/cli/a.cpp 'if (console.stdout_is_terminal()) output.write(text);'
expect refused tools/cli/a.cpp 'draw("\x1b[2m");'
expect refused tools/chat/a.cpp 'draw("\033[2m");'
expect pass tools/terminal/console.cpp 'return "\x1b[2m";'
echo "small trees judged as they should be"
