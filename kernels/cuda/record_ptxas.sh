#!/usr/bin/env bash
# Compiler launcher: runs a compilation, passes on what it says, and keeps a copy beside its output (FILE.o.ptxas), where
# tests/checks/cuda_spills.sh reads what ptxas said of each kernel. ccache, where it is in between, repeats the words.
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
# Registers of hundreds of kernels are for the file alone.
printf '%s\n' "$said" | grep -vE '^ptxas info|^ +[0-9]+ bytes stack frame|^$' >&2
exit $status
