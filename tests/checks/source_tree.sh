#!/usr/bin/env bash
# What the source tree must not hold: absolute paths of the machine it was written on, files over 16 MB, source files over
# 800 lines, headers without #pragma once. Looks at what git would commit (tracked, and untracked but not ignored), or at
# all files where git is absent.
# usage: source_tree.sh ROOT         one line per offence, exit code 1 if there is any
#        source_tree.sh --self-test  builds small wrong trees and demands that each offence is seen
set -euo pipefail

max_bytes=16777216
max_lines=800
# Folders of people and of build machines, as the beginning of a path; put together so that this file has none itself.
homes='home root work Users workspace builds mnt'
foreign="(^|[^A-Za-z0-9_./\$}~-])/($(printf '%s' "$homes" | tr ' ' '|'))/[A-Za-z0-9_.]"

list_files() {
    if [ -e "$1/.git" ] && git -C "$1" -c safe.directory='*' ls-files -z --cached --others --exclude-standard 2>/dev/null; then
        return
    fi
    (cd "$1" && find . \( -name build -o -name .git \) -prune -o -type f -printf '%P\0')
}

check() {
    local root=$1 bad=0 found
    local -a files=() sources
    # A file may be listed by git and gone from the tree: its absence is no offence.
    while IFS= read -r -d '' found; do
        if [ -f "$root/$found" ]; then files+=("$found"); fi
    done < <(list_files "$root" | sort -zu)
    if [ ${#files[@]} -eq 0 ]; then
        echo "$root: no files here; name the project's root"
        return 1
    fi
    cd "$root"
    found=$(printf '%s\0' "${files[@]}" | xargs -0 stat -c '%s %n' |
        awk -v max="$max_bytes" '$1 > max { size = $1; sub(/^[0-9]+ /, ""); print $0 ": " size " bytes, at most " max }') || true
    if [ -n "$found" ]; then
        printf '%s; make it smaller, or make it from a script\n' "$found"
        bad=1
    fi
    mapfile -d '' sources < <(printf '%s\0' "${files[@]}" |
        grep -zE '\.(cpp|h|cu|cuh|py|sh|cmake)$|(^|/)CMakeLists\.txt$' || true)
    found=$(printf '%s\0' "${sources[@]}" | xargs -0 -r awk -v max="$max_lines" '
        FNR == max + 1 { print FILENAME ": over " max " lines; split it by unit" }') || true
    if [ -n "$found" ]; then
        echo "$found"
        bad=1
    fi
    found=$(printf '%s\0' "${sources[@]}" | grep -zE '\.(h|cuh)$' | xargs -0 -r grep -L '^#pragma once$') || true
    if [ -n "$found" ]; then
        printf '%s\nheaders without a line #pragma once (above)\n' "$found"
        bad=1
    fi
    # -I: binary files (weights) hold any bytes. What published chat templates say is theirs, paths included.
    if printf '%s\0' "${files[@]}" | grep -zv '^tests/golden/templates/models/' | xargs -0 -r grep -nIE -s -- "$foreign"; then
        echo "absolute paths of one machine (above): take them as arguments, or start from the file's own place"
        bad=1
    fi
    return $bad
}

# expect VERDICT FILE: a tree with that one file, made from stdin, must be refused, or pass.
expect() {
    local verdict=pass tree
    tree=$(mktemp -d)
    mkdir -p "$tree/$(dirname "$2")"
    cat >"$tree/$2"
    (check "$tree") >/dev/null || verdict=refused
    rm -rf "$tree"
    if [ "$verdict" != "$1" ]; then
        echo "self-test: $2: wanted $1, found $verdict"
        exit 1
    fi
}

if [ "${1:-}" != --self-test ]; then
    check "${1:?name the root of the project}"
    exit
fi
for home in $homes; do
    expect refused tools/a.py <<<"data = open('/$home/someone/file')"
    expect refused README.md <<<"/$home/someone/file"
done
expect pass tools/a.py <<<"data = open('../shared/data'); url = 'https://host/home/page'; tmp = '/tmp/x'"
expect refused runtime/a.cpp < <(yes '//' | head -n 801)
expect pass runtime/a.cpp < <(yes '//' | head -n 800)
expect refused runtime/a.h <<<"void a();"
expect pass runtime/a.h < <(printf '%s\n' "#pragma once" "void a();")
expect pass tests/golden/a.txt < <(yes '0 1' | head -n 5000)
expect refused weights.bin < <(head -c 16777217 /dev/zero)
expect pass weights.bin < <(head -c 16777216 /dev/zero)
echo "small trees judged as they should be"
