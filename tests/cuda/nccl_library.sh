#!/usr/bin/env bash
# The CUDA module opens NCCL by name: where it is not there that is no failure, where it is broken its error is told.
# usage: nccl_library.sh NCCL_LIBRARY MODULE      (tests/cuda/nccl_library.cpp)
set -euo pipefail
program=$1 module=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# expect WHAT PATTERN SAID
expect() {
    [[ $3 =~ $2 ]] || { echo "$1: wanted $2, found $3" && exit 1; }
    echo "$1: $3"
}

mkdir "$work/empty" "$work/foreign"
: >"$work/empty/libnccl.so.2"
ln -s "$(readlink -f "$module")" "$work/foreign/libnccl.so.2"
expect "an empty file" '^failed: .*libnccl.so.2: file too short$' "$(LD_LIBRARY_PATH=$work/empty "$program" "$module")"
expect "another library" '^failed: libnccl.so.2 has no ncclGetVersion$' \
    "$(LD_LIBRARY_PATH=$work/foreign "$program" "$module")"

# Without the loader's cache only the system's own folders are looked through.
loader=$(ldd "$program" | awk '$1 ~ /ld-linux/ { print $1 }')
if ! compgen -G '/usr/lib*/libnccl.so.2' >/dev/null && ! compgen -G '/usr/lib/*/libnccl.so.2' >/dev/null; then
    expect "none" '^not installed: libnccl.so.2: cannot open' "$("$loader" --inhibit-cache "$program" "$module")"
fi

# As it is here.
libraries=$(LC_ALL=C ldconfig -p 2>/dev/null || true)  # whole: grep -q would end ldconfig, which pipefail counts
if [[ $libraries == *'libnccl.so.2 '* ]]; then
    expect "this machine's" $'^version 2\\.[0-9]+\\.[0-9]+\n(a communicator$|no communicator: ncclCommInitAll: .)' \
        "$("$program" "$module" 2>/dev/null)"
else
    expect "this machine's" '^not installed: ' "$("$program" "$module")"
fi
