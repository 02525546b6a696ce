#!/usr/bin/env bash
# Kills or interrupts a generation with a session at random moments, and goes on, as often as asked; text and --output
# must be those of a run without end, byte for byte, and so must what the ended session prints.
# usage: kill_sessions.sh PROGRAM ROUNDS [OPTIONS OF generate...]
#   kill_sessions.sh build/release/slipstream 50 --prompt "Once upon a time" --seed 3 --max-tokens 2500
set -uo pipefail
if [ $# -lt 2 ]; then
    sed -n 2,5p "$0"
    exit 2
fi
program=$1
rounds=$2
shift 2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$program" generate "$@" -q --output "$folder/expected" || exit 1

killed=0
texts=0
while [ "$killed" -lt "$rounds" ]; do
    rm -f "$folder/session" "$folder/text"
    while :; do
        "$program" generate "$@" -q --session "$folder/session" --output "$folder/text" 2>"$folder/errors" &
        process=$!
        sleep "0.$((RANDOM % 6))$((RANDOM % 10))"
        signal=KILL
        if [ $((RANDOM % 4)) -eq 0 ]; then signal=INT; fi
        kill -$signal $process 2>/dev/null
        wait $process 2>/dev/null
        code=$?
        if [ $code -eq 0 ]; then break; fi
        if [ $code -ne 130 ] && [ $code -ne 137 ]; then
            echo "exit code $code: $(cat "$folder/errors")"
            exit 1
        fi
        killed=$((killed + 1))
    done
    texts=$((texts + 1))
    cmp "$folder/expected" "$folder/text" || exit 1
    "$program" generate --session "$folder/session" -q >"$folder/again" || exit 1
    cmp "$folder/expected" "$folder/again" || exit 1
done
echo "$killed rounds over $texts texts: the same"
