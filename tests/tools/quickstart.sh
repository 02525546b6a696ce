#!/usr/bin/env bash
# tools/quickstart with a build, a model and a program that only pretend: which model is asked, and what is said where
# fetching it ends otherwise; where the CUDA module is compiled.
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
    cat <<'L'
need_packages() { :; }
configure() { echo "configure $*" >>"$BUILT"; }
build() { echo "build $*" >>"$BUILT"; }
find_nvcc() { [ "$NVCC" = 1 ]; }
has_card() { [ "$CARD" = 1 ]; }
card_capabilities() { echo 89; }
L
} >"$to/tools/script_lib.sh"
echo "Once upon a time" >"$to/tools/demo_model/prompts/three_sons.txt"
cat >"$to/build/release/slipstream" <<'P'
#!/bin/sh
if [ "$1" = inspect ]; then exit "$AMBIGUOUS"; fi
echo "$@" >>"$LOG"
P
chmod +x "$to/build/release/slipstream"

export BUILT=$to/built NVCC=0 CARD=0
# run WANTED_CODE CODE_OF_GET_MODEL AMBIGUOUS [OPTION]
run() {
    printf '#!/bin/sh\n[ %s = 0 ] && echo /there/smollm2.gguf\nexit %s\n' "$2" "$2" >"$to/tools/get_model"
    chmod +x "$to/tools/get_model"
    rm -f "$to/log" "$to/built"
    local code=0
    AMBIGUOUS=$3 LOG=$to/log "$to/tools/quickstart" ${4:+"$4"} 2>"$to/said" || code=$?
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

builds() { grep -q -x -e "$1" "$to/built" || fail "not '$1': $(cat "$to/built")"; }
run 1 0 0 --cuda
says "no nvcc"
NVCC=1 run 0 0 0
says "tools/quickstart --cuda"
builds "build release slipstream"
builds "configure release .*-DSLIPSTREAM_CUDA=OFF"
echo "SLIPSTREAM_CUDA:STRING=OFF" >"$to/build/release/CMakeCache.txt"
NVCC=1 run 0 0 0 --cuda
builds "configure release -DSLIPSTREAM_CUDA=ON .*"
rm "$to/build/release/CMakeCache.txt"
NVCC=1 run 0 0 0 --cuda
builds "build release slipstream slipstream_cuda"
builds "configure release .*-DCMAKE_CUDA_ARCHITECTURES=80"
NVCC=1 CARD=1 run 0 0 0
builds "build release slipstream slipstream_cuda"
builds "configure release .*-DCMAKE_CUDA_ARCHITECTURES=89-real"
CARD=1 run 0 0 0
says "no CUDA toolkit"
builds "build release slipstream"
run 2 0 0 --cards
