# shellcheck shell=bash disable=SC2034  # the package lists are read by the scripts that source this file
# Shared by tools/quickstart and tools/test (sourced, not run): where the checkout is, which packages are missing and
# how they get there, and how a build folder is configured. Both scripts configure a folder in the same way, so that
# running one after the other compiles nothing twice.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
SELF=tools/$(basename "$0")
JOBS=$(nproc 2>/dev/null || echo 2)
LOG_DIR=$ROOT/build/log
# With ccache, a build finds what was compiled under another LANG: that changes the compiler's messages, not its output.
# The variable replaces `sloppiness` in ccache's own configuration file.
export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:+$CCACHE_SLOPPINESS,}locale

say() { printf '%s\n' "$*" >&2; }
die() { say "$SELF: $*"; exit 1; }

# quietly NAME COMMAND...: runs the command with its output in build/log/NAME.log; if it fails, ends the program with
# one line.
quietly() {
    local name=$1 log=$LOG_DIR/$1.log why
    shift
    { mkdir -p "$LOG_DIR" && : >>"$log"; } 2>/dev/null ||
        die "cannot write to $ROOT/build; give this user the right to, or remove that folder"
    "$@" >"$log" 2>&1 && return
    why=$(grep -m 1 -iE 'error|^E: |unable|not found' "$log" || tail -n 1 "$log")
    die "$name failed: ${why:0:300} (all of it: $log)"
}

is_installed() { dpkg-query -W -f='${Status}\n' "$1" 2>/dev/null | grep -q ' installed$'; }

# need_packages PACKAGE...: installs the packages that are missing; calls neither apt nor sudo if none is.
need_packages() {
    if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
        say "no apt here: taking these (or their like) for granted: $*"
        return
    fi
    local missing=() package sudo=()
    for package in "$@"; do is_installed "$package" || missing+=("$package"); done
    if [ ${#missing[@]} -eq 0 ]; then return; fi
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || die "packages are missing and there is no sudo; as root: apt-get install ${missing[*]}"
        sudo=(sudo)
        sudo -v || die "packages are missing and sudo was refused; as root: apt-get install ${missing[*]}"
    fi
    say "installing: ${missing[*]}"
    # If the update fails, the packages may be found all the same: only a failing install is an error.
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=120 update >/dev/null 2>&1 || true
    quietly apt-install "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get -qy -o DPkg::Lock::Timeout=120 install --no-install-recommends "${missing[@]}"
}

# configure PRESET [CMAKE OPTION...]: configures build/PRESET. A new folder uses ccache if it is installed; an existing
# one is not changed to it, since everything would be compiled again.
configure() {
    local preset=$1 launcher=()
    shift
    if [ ! -e "$ROOT/build/$preset/CMakeCache.txt" ] && command -v ccache >/dev/null; then
        launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache)
    fi
    quietly "configure-$preset" cmake -S "$ROOT" --preset "$preset" "${launcher[@]}" "$@"
}

# find_nvcc: exports the CUDA compiler as CUDACXX, where CMake finds it; looks in PATH, then in /usr/local/cuda. Returns
# 1 if there is none.
find_nvcc() {
    local nvcc
    for nvcc in "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc; do
        if [ -x "$nvcc" ]; then export CUDACXX=${CUDACXX:-$nvcc} && return 0; fi
    done
    return 1
}

# nvcc_knows_120: succeeds if the compiler that find_nvcc found can compile for compute capability 12.0 (toolkit 12.8
# and newer).
nvcc_knows_120() {
    "$CUDACXX" --version 2>/dev/null |
        awk -F 'release ' 'NF > 1 { split($2, v, /[.,]/); if (v[1] * 100 + v[2] >= 1208) found = 1 } END { exit !found }'
}

# card_capabilities: prints the compute capabilities of this machine's GPUs, each once: "89".
card_capabilities() {
    nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d '. ' | grep -x '[0-9]*' | sort -u
}

# has_card: succeeds if this machine has an NVIDIA GPU and its driver.
has_card() { command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep '^GPU ' >/dev/null; }  # grep -q would end nvidia-smi early

# build PRESET [TARGET...]: builds in build/PRESET. The output goes to the terminal; if stderr is none, to a log file.
build() {
    local preset=$1 targets=()
    shift
    if [ $# -gt 0 ]; then targets=(--target "$@"); fi
    if [ -t 2 ]; then
        cmake --build "$ROOT/build/$preset" -j "$JOBS" "${targets[@]}" >&2 ||
            die "the $preset build failed; the compiler's words are above"
    else
        quietly "build-$preset" cmake --build "$ROOT/build/$preset" -j "$JOBS" "${targets[@]}"
    fi
}

PACKAGES_BUILD=(g++ cmake ninja-build libfmt-dev nlohmann-json3-dev libcli11-dev pkg-config libxxhash-dev libmimalloc-dev
    libpcre2-dev libutf8proc-dev libedit-dev libtomlplusplus-dev
    libboost-dev)  # Boost.Beast, the HTTP of `serve`: headers only
PACKAGES_MODEL=(python3-pip)  # tools/get_model
PACKAGES_TEST=(libgtest-dev libgmock-dev)
# The files of this tree are formatted and checked by version 14 of both; Debian 12 and Ubuntu 24.04 have it.
PACKAGES_STYLE=(clang-format-14 clang-tidy-14)
PACKAGES_FUZZ=(clang libclang-rt-dev)
