#!/usr/bin/env bash
# No kernel spills registers or keeps arrays in local memory: read from what ptxas said when the CUDA module was compiled
# (kernels/cuda/record_ptxas.sh keeps it beside each object). Kernels whose name has "_generic" are for sizes that have no
# instance of their own, and may.
# usage: cuda_spills.sh FOLDER         a table by architecture; one line per offence, exit code 1 if there is any, 77 (skip)
#                                      where nothing has been compiled
#        cuda_spills.sh --self-test    judges small made-up words of ptxas
set -euo pipefail

# judge FILE...: "Compiling entry function 'NAME' for 'sm_NN'", then a line of stack and spills, then one of registers.
judge() {
    awk '
        /Compiling entry function/ { split($0, part, "\047"); name = part[2]; sm = part[4] }
        /bytes stack frame/ {
            stack = $1
            kernels[sm]++
            if (($1 + $5 + $9 > 0) && name !~ /_generic/) {
                printf "%s for %s: %d bytes of stack, %d of spill stores, %d of spill loads\n", name, sm, $1, $5, $9
                bad = 1
            }
        }
        /Used [0-9]+ registers/ {
            for (i = 1; i < NF; ++i) if ($i == "Used" && $(i + 1) + 0 > most[sm]) { most[sm] = $(i + 1) + 0; which[sm] = name }
        }
        END {
            for (sm in kernels) { printf "%s: %d kernels, at most %d registers (%s)\n", sm, kernels[sm], most[sm], which[sm]; any = 1 }
            if (!any) { print "no words of ptxas in these files: was the module compiled with -Xptxas=-v?"; bad = 1 }
            exit bad
        }' "$@"
}

words() {
    cat <<END
ptxas info    : Compiling entry function '$1' for 'sm_89'
ptxas info    : Function properties for $1
    $2 bytes stack frame, $3 bytes spill stores, $4 bytes spill loads
ptxas info    : Used 40 registers, used 0 barriers, 380 bytes cmem[0]
END
}

# expect VERDICT NAME STACK STORES LOADS
expect() {
    local verdict=pass
    words "$2" "$3" "$4" "$5" | judge - >/dev/null || verdict=refused
    if [ "$verdict" != "$1" ]; then
        echo "self-test: $2 with $3, $4, $5 bytes: wanted $1, found $verdict"
        exit 1
    fi
}

if [ "${1:-}" = --self-test ]; then
    expect pass kernel 0 0 0
    expect refused kernel 8 0 0
    expect refused kernel 0 4 0
    expect refused kernel 0 0 4
    expect pass attention_generic 8 4 4
    if judge /dev/null >/dev/null; then
        echo "self-test: silence must not pass"
        exit 1
    fi
    echo "six small reports judged as they should be"
    exit
fi
mapfile -d '' files < <(find "${1:?name the folder of the objects}" -name '*.o.ptxas' -print0)
if [ ${#files[@]} -eq 0 ]; then
    echo "skipped: the CUDA module has not been compiled in $1"
    exit 77
fi
judge "${files[@]}"
