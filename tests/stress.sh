#!/usr/bin/env bash
# The long forms of two checks of which tools/test runs a part. Builds what they need in build/release.
#
#   tests/stress.sh faults [OPTION...]        each call of each text on emulated cards fails once: hours. Options as in
#                                             tests/cuda_emulation/fault_sweep.cpp: --case NAME and --from K go on with a
#                                             sweep that was ended, --points N takes a part
#   tests/stress.sh random [SECONDS [FIRST]]  random texts over views and over splits, with faults and without, from
#                                             seed FIRST on [0], for so much processor time [3600]
#
# Prints counts, seeds and what is broken. The exit code is 0 only if nothing is.
set -euo pipefail
# shellcheck source=tools/script_lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../tools/script_lib.sh"
SELF=tests/stress.sh

usage() { say "$SELF: $1; see: $SELF --help"; exit 2; }
whole_number() { [[ $1 =~ ^[0-9]+$ ]] || usage "'$1' is not a number"; }
build_release() {
    configure release -DSLIPSTREAM_TESTS=ON
    build release "$@"
}

case ${1:-} in
    faults)
        shift
        build_release fault_sweep
        exec "$ROOT/build/release/fault_sweep" "$@" ;;
    random)
        seconds=${2:-3600} first=${3:-0} status=0
        whole_number "$seconds"
        whole_number "$first"
        build_release random_walk
        # Both at once where there are two cores.
        "$ROOT/build/release/random_walk" views --first "$first" --seconds $((seconds / 2)) &
        "$ROOT/build/release/random_walk" splits --first "$first" --seconds $((seconds / 2)) || status=1
        wait $! || status=1
        exit $status ;;
    -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" ;;
    *) usage "unknown check '${1:-}'; known checks: faults, random" ;;
esac
