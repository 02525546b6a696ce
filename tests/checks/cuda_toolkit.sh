#!/usr/bin/env bash
# The project configures with toolkits that know fewer cards than the newest: with stub compilers that report a version
# and refuse what it does not know. The list of cards by version needs no toolkit; the configuring, one to stand behind
# the stub.
# usage: cuda_toolkit.sh SOURCE_FOLDER lists
#        cuda_toolkit.sh SOURCE_FOLDER configure NVCC
set -euo pipefail
root=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# stub VERSION NVCC: a compiler that says it is of that version, and refuses cards from compute capability 10.0 on if
# that is older than 12.8.
stub() {
    cat >"$work/nvcc" <<END
#!/usr/bin/env bash
if [ "\$*" = --version ]; then
    echo "nvcc: NVIDIA (R) Cuda compiler driver"
    echo "Cuda compilation tools, release $1, V$1.131"
    exit
fi
case $1 in 12.[0-7]) [[ ! \$* =~ (compute|sm)_1[0-9][0-9] ]] || { echo "nvcc fatal   : Unsupported gpu architecture" >&2; exit 1; } ;; esac
exec ${2:-false} "\$@"
END
    chmod +x "$work/nvcc"
}

# list VERSION: the architectures chosen for it, by the very functions that kernels/cuda/CMakeLists.txt calls.
list() {
    stub "$1"
    cat >"$work/list.cmake" <<END
include($root/kernels/cuda/architectures.cmake)
slipstream_nvcc_version(version $work/nvcc)
slipstream_cuda_architectures(list "\${version}")
message("\${list}")
END
    cmake -P "$work/list.cmake" 2>&1
}
expect() {
    local found
    found=$(list "$1")
    if [ "$found" != "$2" ]; then echo "for toolkit $1: wanted $2, found $found" && exit 1; fi
}

case $2 in
    lists)
        for version in 12.4 12.6 nonsense; do expect "$version" "80;86-real;89-real;90"; done
        for version in 12.8 12.9 13.0; do expect "$version" "80;86-real;89-real;90-real;120"; done
        echo "six toolkits have the GPUs that they know" ;;
    configure)
        stub 12.4 "$3"
        if "$work/nvcc" -arch=sm_120 -cubin -x cu -o "$work/none" /dev/null 2>/dev/null; then
            echo "the stub takes what toolkit 12.4 refuses" && exit 1
        fi
        cmake -S "$root" -B "$work/build" -DSLIPSTREAM_TESTS=OFF "-DCMAKE_CUDA_COMPILER=$work/nvcc" >"$work/log" 2>&1 ||
            { tail -n 20 "$work/log"; exit 1; }
        grep -q '^CMAKE_CUDA_ARCHITECTURES:[A-Z]*=80;86-real;89-real;90$' "$work/build/CMakeCache.txt"
        cmake --build "$work/build" --target help >"$work/targets" && grep -q slipstream_cuda "$work/targets"
        echo "configured for the GPUs that toolkit 12.4 knows" ;;
esac
