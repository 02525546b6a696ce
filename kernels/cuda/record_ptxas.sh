#!/usr/bin/env bash
# Compiler launcher: runs a compilation, prints its messages, and writes a copy next to its output (FILE.o.ptxas), from
# which tests/checks/cuda_spills.sh reads the lines of ptxas about each kernel. With ccache in between this works too,
# since ccache repeats the messages of a cached compilation.
# usage: record_ptxas.sh COMPILER ARGUMENT...
set -uo pipefail

output= previous=
for argument in "$@"; do
    if [ "$previous" = -o ]; then output=$argument; fi
    previous=$argument
done
if [[ $output != *.o ]]; then exec "$@"; fi
said=$("$@" 2>&1)
status=$?
if [ $status -eq 0 ]; then printf '%s\n' "$said" >"$output.ptxas"; fi
# The lines about registers of hundreds of kernels go to the file only.
printf '%s\n' "$said" | grep -vE '^ptxas info|^ +[0-9]+ bytes stack frame|^$' >&2
exit $status
