#!/usr/bin/env bash
# tools/quickstart with a build, a model and a program that only pretend: which model is asked, and what is said where
# fetching it ends otherwise.
# usage: quickstart.sh ROOT
set -euo pipefail

root=${1:?name the root of the project}
to=$(mktemp -d)
trap 'rm -rf "$to"' EXIT
fail() { echo "$*"; exit 1; }

mkdir -p "$to/tools/demo_model/prompts" "$to/build/release"
cp "$root/tools/quickstart" "$to/tools"
{
    cat "$root/tools/script_lib.sh"
    echo 'need_packages() { :; }; configure() { :; }; build() { :; }'
} >"$to/tools/script_lib.sh"
echo "Once upon a time" >"$to/tools/demo_model/prompts/three_sons.txt"
cat >"$to/build/release/slipstream" <<'P'
#!/bin/sh
if [ "$1" = inspect ]; then exit "$AMBIGUOUS"; fi
echo "$@" >>"$LOG"
P
chmod +x "$to/build/release/slipstream"

# run WANTED_CODE CODE_OF_GET_MODEL AMBIGUOUS
run() {
    printf '#!/bin/sh\n[ %s = 0 ] && echo /there/smollm2.gguf\nexit %s\n' "$2" "$2" >"$to/tools/get_model"
    chmod +x "$to/tools/get_model"
    rm -f "$to/log"
    local code=0
    AMBIGUOUS=$3 LOG=$to/log "$to/tools/quickstart" 2>"$to/said" || code=$?
    [ "$code" = "$1" ] || fail "get_model $2: code $code: $(cat "$to/said")"
}
says() { grep -q -e "$1" "$to/said" || fail "'$1' is not said: $(cat "$to/said")"; }

run 0 0 0
grep -q -e "-m /there/smollm2.gguf" "$to/log" || fail "another model is asked: $(cat "$to/log")"
says "chat -m smollm2 "
run 0 0 1
says "chat -m /there/smollm2.gguf"
run 0 3 0
grep -q -e "--prompt-file" "$to/log" || fail "no tale: $(cat "$to/log")"
if grep -q "fetching the model failed" "$to/said"; then fail "no index is no failure"; fi
run 0 1 0
says "fetching the model failed"
grep -q -e "--prompt-file" "$to/log" || fail "no tale: $(cat "$to/log")"
run 130 130 0
[ ! -e "$to/log" ] || fail "interrupted, and a text all the same"
