#!/usr/bin/env bash
# The .deb in a fresh Debian of the kind that it was built on: apt brings what it depends on, and the program runs there
# for an ordinary user. Takes a few minutes and Debian's packages out of the network; as root only.
# usage: fresh_root.sh BUILD_FOLDER
set -euo pipefail

build=${1:?name the build folder}
fail() { echo "$*"; exit 1; }
skip() { echo "skipped: $*"; exit 77; }

[ "$(id -u)" = 0 ] || skip "a root of one's own wants to be made as root"
for tool in debootstrap dpkg-shlibdeps unshare cpack; do
    command -v "$tool" >/dev/null || skip "no $tool here"
done
# shellcheck source=/dev/null
. /etc/os-release
[ "${ID:-}" = debian ] && [ -n "${VERSION_CODENAME:-}" ] || skip "the package is for the system that it is built on, here ${ID:-unknown}"

to=$(mktemp -d)
trap 'rm -rf --one-file-system "$to"' EXIT
(cd "$to" && cpack --config "$build/CPackConfig.cmake" -B "$to/packages") >"$to/log" 2>&1 || fail "$(tail -n 5 "$to/log")"

root=$to/root
debootstrap --variant=minbase "$VERSION_CODENAME" "$root" "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$to/log" 2>&1 ||
    skip "debootstrap makes no root here: $(tail -n 1 "$to/log")"
cp /etc/resolv.conf "$root/etc/resolv.conf"
cp "$to"/packages/slipstream_*.deb "$root/tmp/slipstream.deb"

# inside USER COMMAND...: with processes and an environment of its own.
inside() {
    local user=$1
    shift
    unshare --mount --pid --fork --mount-proc="$root/proc" \
        chroot --userspec="$user" "$root" /usr/bin/env -i HOME=/tmp PATH=/usr/bin:/bin:/usr/sbin:/sbin \
        DEBIAN_FRONTEND=noninteractive "$@"
}
inside root apt-get -q update >"$to/log" 2>&1 || skip "Debian's packages are out of reach: $(tail -n 1 "$to/log")"
inside root apt-get -q -y --no-install-recommends install /tmp/slipstream.deb >"$to/log" 2>&1 || fail "$(tail -n 5 "$to/log")"

inside nobody slipstream version >"$to/version" || fail "version ends with $?"
grep -q '^slipstream ' "$to/version" || fail "version says '$(cat "$to/version")'"
inside nobody slipstream help >"$to/help" && grep -q '^  generate ' "$to/help" || fail "help lists no generate"
tale=(generate "Once upon a time" -n 20 --temperature 0 --tables off)
inside nobody slipstream "${tale[@]}" >"$to/text" 2>"$to/said" || fail "$(cat "$to/said")"
"$build/slipstream" "${tale[@]}" --no-config >"$to/expected" 2>/dev/null
cmp -s "$to/text" "$to/expected" || fail "it says '$(cat "$to/text")', and not '$(cat "$to/expected")'"

inside root apt-get -q -y purge slipstream >"$to/log" 2>&1 || fail "$(tail -n 5 "$to/log")"
left=$(find "$root/usr" -iname '*slipstream*')
[ -z "$left" ] || fail "left behind: $left"
