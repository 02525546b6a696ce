#!/usr/bin/env bash
# Checks that pages of documentation repeat no line of 200 characters or more, and that their links to files exist.
# Gives advice about size, which never fails: folders with more than 40 files and files with more than 500 lines in
# kernels, draft, runtime (without runtime/text), offload and tools. Data files are not counted. Reports that
# tools/gpu_check wrote (tests/gpu_reports) are no pages.
# usage: rooms.sh ROOT         prints one line per offence ("advice: ..." for sizes); exit code 1 for an offence only
#        rooms.sh --self-test  builds small trees and requires that each offence and each advice is found
set -euo pipefail

max_files=40
max_lines=500
long_line=200

list_files() {
    if [ -e "$1/.git" ] && git -C "$1" -c safe.directory='*' ls-files --cached --others --exclude-standard 2>/dev/null; then
        return
    fi
    (cd "$1" && find . \( -name build -o -name .git \) -prune -o -type f -printf '%P\n')
}

check() {
    local root=$1 bad=0 page target found
    local -a pages
    cd "$root"
    # A file may be listed by git and gone from the tree.
    list_files . | sort -u | while IFS= read -r found; do if [ -f "$found" ]; then echo "$found"; fi; done >"$list"
    if [ ! -s "$list" ]; then
        echo "$root: no files here; name the project's root"
        return 1
    fi
    grep -E '^(kernels|draft|runtime|offload|tools)/' "$list" | grep -v '^runtime/text/' >"$list.rooms" || true
    found=$(awk -v max=$max_files '
        { folder = $0; sub(/\/[^\/]*$/, "", folder); ++n[folder] }
        END { for (f in n) if (n[f] > max) print "advice: " f ": " n[f] " files, over " max "; consider a folder for some of them" }
    ' "$list.rooms" | sort)
    if [ -n "$found" ]; then echo "$found"; fi
    found=$(grep -vE '\.(json|jsonl|txt|model|safetensors|gguf|bin)$' "$list.rooms" | tr '\n' '\0' |
        xargs -0 -r awk -v max=$max_lines 'FNR == max + 1 { print "advice: " FILENAME ": over " max " lines; consider a split by unit" }') || true
    if [ -n "$found" ]; then echo "$found"; fi

    mapfile -t pages < <(grep -E '\.md$' "$list" | grep -vE '^tests/gpu_reports/[0-9]' || true)
    for page in "${pages[@]}"; do
        while IFS= read -r target; do
            target=${target%%#*}
            if [ -n "$target" ] && [ ! -e "$(dirname "$page")/$target" ]; then
                echo "$page: the link to $target leads nowhere"
                bad=1
            fi
        done < <(grep -oE '\]\([^)]*\)' "$page" | sed -E 's/^\]\(//; s/\)$//' | grep -vE '^[a-z]+:' || true)
    done
    found=$([ ${#pages[@]} -eq 0 ] || awk -v long=$long_line '
        length($0) >= long { if ($0 in at) print FILENAME ":" FNR ": stands already at " at[$0]; else at[$0] = FILENAME ":" FNR }
    ' "${pages[@]}")
    if [ -n "$found" ]; then echo "$found"; bad=1; fi
    return $bad
}

list=$(mktemp)
trap 'rm -f "$list" "$list.rooms"' EXIT

judged=0
# expect VERDICT NAME: the check of the folder $tree must end with `refused` (exit code 1), `advised` (exit code 0 and
# nothing but advice) or `pass` (exit code 0, no output). Removes the folder.
expect() {
    local verdict=pass output
    output=$(check "$tree") || verdict=refused
    if [ $verdict = pass ] && [ -n "$output" ]; then
        verdict=advised
        if grep -qv '^advice: ' <<<"$output"; then verdict='output without advice'; fi
    fi
    rm -rf "$tree"
    if [ "$verdict" != "$1" ]; then
        echo "self-test: $2: wanted $1, found $verdict"
        exit 1
    fi
    judged=$((judged + 1))
}
# many_files FOLDER N; lines N FILE; text FILE TEXT: a fresh tree with that.
fresh() {
    tree=$(mktemp -d)
    mkdir -p "$tree/$1"
}
many_files() { fresh "$1"; for i in $(seq "$2"); do echo >"$tree/$1/f$i.h"; done; }
lines() { fresh "$(dirname "$2")"; yes '//' | head -n "$1" >"$tree/$2" || true; }
text() { fresh "$(dirname "$1")"; printf '%s' "$2" >"$tree/$1"; }

if [ "${1:-}" != --self-test ]; then
    check "${1:?name the root of the project}"
    exit
fi
for room in draft runtime/cache offload tools/engine; do
    many_files $room 41; expect advised "41 files in $room"
    many_files $room 40; expect pass "40 files in $room"
    lines 501 $room/a.cpp; expect advised "501 lines in $room"
    lines 500 $room/a.cpp; expect pass "500 lines in $room"
done
many_files runtime/text/chat 41; expect pass '41 files of text'
many_files tests/draft 41; expect pass '41 tests'
lines 501 draft/measured/a.json; expect pass 'data of 501 lines'
long=$(printf 'x%.0s' $(seq $long_line))
text draft/NOTES.md "$long"$'\n'"$long"$'\n'; expect refused 'a paragraph twice'
many_files draft 41; printf '%s\n%s\n' "$long" "$long" >"$tree/draft/NOTES.md"; expect refused 'advice beside an offence'
text draft/NOTES.md "$long"$'\n'"y$long"$'\n'; expect pass 'two paragraphs'
text tests/gpu_reports/20260101-card.md "$long"$'\n'"$long"$'\n'; expect pass 'a report'
text draft/NOTES.md 'see [there](../offload/README.md)'; expect refused 'a link to nowhere'
text draft/NOTES.md 'see [there](NOTES.md#figures), [here](https://host/x)'; expect pass 'links'
echo "$judged small trees checked"
