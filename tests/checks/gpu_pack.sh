#!/usr/bin/env bash
# What tools/gpu_pack packs runs where there is nothing else: unpacked in a bare root folder (a shell, small programs,
# their libraries; a driver's tool and a driver that are stubs), both parts of tools/gpu_check come to their end in time,
# leave whole reports and name what they could not do. Builds the module for one card.
# usage: gpu_pack.sh SOURCE_FOLDER BUILD_FOLDER
# Exit code 77 (skip) where this user may not change root, the build is not tools/gpu_pack's, or the toolkit has no stub.
set -euo pipefail
root=$1 build=$2
skip() { echo "skipped: $*"; exit 77; }
[ "$(readlink -f "$build")" = "$(readlink -f "$root/build/release")" ] || skip "tools/gpu_pack packs build/release, this is $build"
unshare -m -p -f true 2>/dev/null || skip "this user may not make a root folder of its own"
stub=$(compgen -G '/usr/local/cuda*/lib64/stubs/libcuda.so' | head -n 1 || true)
[ -n "$stub" ] || skip "the toolkit has no stub of the driver"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$root/tools/gpu_pack" 80 "$work/pack.tar.gz"
bare=$work/bare
mkdir -p "$bare"/{bin,usr/bin,usr/lib/x86_64-linux-gnu,tmp,proc,dev/shm,pack}
tar -C "$bare/pack" -xzf "$work/pack.tar.gz"
pack=$bare/pack/slipstream-gpu
kb=$(du -sk "$pack" | awk '{ print $1 }')
[ "$kb" -le 46875 ] || { echo "the pack has $kb KiB, more than 48 MB"; exit 1; }
for program in bash env awk sed grep cat head tail tr cut date df dd stat mktemp mkdir rm mv cp basename dirname readlink \
    sort uniq paste wc cmp timeout sleep nproc uname tee seq printf; do
    cp -L "$(type -P "$program")" "$bare/bin/$program"
done
cp "$bare/bin/env" "$bare/usr/bin/env"
# Of the pack's own programs only what belongs to the C and C++ runtimes: the rest must have come along.
{ for program in "$bare"/bin/*; do ldd "$program" 2>/dev/null || true; done
    ldd "$build/cuda_card_tests" | grep -E '/(libc|libm|libstdc\+\+|libgcc_s|ld-linux[^/]*)\.so'; } |
    grep -o '/[^ ]*' | sort -u | while read -r library; do
        mkdir -p "$bare$(dirname "$library")"
        cp -L "$library" "$bare$library"
    done
cp -L "$stub" "$bare/usr/lib/x86_64-linux-gnu/libcuda.so.1"
cat >"$bare/bin/nvidia-smi" <<'END'
#!/bin/bash
case "$*" in
    *compute_cap*) echo "NVIDIA A100-SXM4-40GB, 580.1, 8.0, 40536, 1410, 1215, 4, 16, 400.00" ;;
    *) echo "1410 MHz, 1215 MHz, 40, 99.5 W, 4" ;;
esac
END
chmod +x "$bare/bin/nvidia-smi"
# check PART STEPS: in the bare folder, with two minutes for it. 1: not all steps passed, as it must be without a card.
check() {
    local status=0
    unshare -m -p -f bash -c "mount -t proc proc '$bare/proc' && mount -t tmpfs tmpfs '$bare/dev' && mkdir '$bare/dev/shm' &&
        mknod -m 666 '$bare/dev/null' c 1 3 && mknod -m 666 '$bare/dev/zero' c 1 5 && mknod -m 666 '$bare/dev/urandom' c 1 9 &&
        exec timeout 120 chroot '$bare' /bin/env -i PATH=/bin /pack/slipstream-gpu/tools/gpu_check --part $1 \
            --prebuilt /pack/slipstream-gpu/built --out /pack/reports --only $2" >"$work/said" 2>&1 || status=$?
    cat "$work/said"
    [ "$status" -eq 1 ] || { echo "wanted the exit code 1 of steps that did not pass, found $status"; exit 1; }
    grep -q "NOT all steps of part $1 passed" "$work/said"
}
says() { grep -qE "^$1 +$2" "$work/said" || { echo "$1 does not say what it lacked"; exit 1; }; }
driver='no NVIDIA driver is installed'
check 1 facts,tests,demo,bench-card,exact-demo
says tests "failed .* skipped: a skipped test is not a passed one.*$driver"
for step in demo bench-card exact-demo; do says "$step" "failed .*$driver"; done
# What the second part looks closer with is not there; its models of 8B are left out, for they take gigabytes.
check 2 memcheck,racecheck,profile,long-context,exact-1b
for step in memcheck racecheck; do says "$step" 'not run .*there is no compute-sanitizer'; done
says profile 'not run .*there is no ncu'
for step in long-context exact-1b; do says "$step" "failed .*$driver"; done
grep -q '"name": "exact-demo"' "$bare"/pack/reports/*.json
echo "the pack of $kb KiB came to its end in a bare folder"
