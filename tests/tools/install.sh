#!/usr/bin/env bash
# What `cmake --install` puts into a folder works there; with --package: so does a .deb, unpacked.
# usage: install.sh BUILD_FOLDER [--package]
set -euo pipefail

build=${1:?name the build folder}
to=$(mktemp -d)
trap 'rm -rf "$to"' EXIT
fail() { echo "$*"; exit 1; }

if [ "${2:-}" = --package ]; then
    if ! command -v dpkg-shlibdeps >/dev/null || ! command -v dpkg-deb >/dev/null; then
        echo "no dpkg-dev here"
        exit 77
    fi
    (cd "$to" && cpack --config "$build/CPackConfig.cmake" -B "$to/packages") >"$to/log" 2>&1 || fail "$(tail -n 5 "$to/log")"
    package=$(echo "$to"/packages/slipstream_*.deb)
    # Not through a pipe: grep leaves at the first match, and whoever still writes then fails.
    grep -q 'Depends:.*libc6' <(dpkg-deb -I "$package") || fail "the package depends on nothing"
    dpkg-deb -x "$package" "$to/root"
    prefix=$to/root/usr
    zsh_folder=vendor-completions
else
    cmake --install "$build" --prefix "$to/prefix" >"$to/log" 2>&1 || fail "$(tail -n 5 "$to/log")"
    prefix=$to/prefix
    zsh_folder=site-functions
    # Where zsh looks by itself only below /usr.
    grep -q "fpath+=($prefix/share/zsh/site-functions)" "$to/log" || fail "nobody says how zsh finds its completions"
fi

program=$prefix/bin/slipstream
cd /
env -i HOME="$to" PATH=/usr/bin:/bin "$program" generate "Once upon a time" -n 3 --tables off >"$to/text" 2>"$to/said" ||
    fail "$(cat "$to/said")"
[ -s "$to/text" ] || fail "no text from the bundled model"
grep -q '^smollm2 ' <("$prefix/bin/slipstream-get-model" --list) || fail "no list of models"

gunzip -c "$prefix/share/man/man1/slipstream.1.gz" >"$to/slipstream.1" || fail "no manual page"
page=$to/slipstream.1
if command -v groff >/dev/null; then
    warnings=$(groff -man -Tascii -ww "$page" 2>&1 >/dev/null | head -n 3)
    [ -z "$warnings" ] || fail "$warnings"
fi
grep -q '^\.SS generate' "$page" || fail "the manual page tells of no generate"
[ -z "$(find "$prefix" -name '*slipstream-lab*')" ] || fail "slipstream-lab is installed"
completed=$(bash -c "source '$prefix/share/bash-completion/completions/slipstream'
    COMP_WORDS=(slipstream gen) COMP_CWORD=1; _slipstream; echo \"\${COMPREPLY[*]}\"
    COMP_WORDS=(slipstream generate --max-to) COMP_CWORD=2; _slipstream; echo \"\${COMPREPLY[*]}\"
    COMP_WORDS=(slipstream generate --split '') COMP_CWORD=3; _slipstream; echo \"\${COMPREPLY[*]}\"
    COMP_WORDS=(slipstream plan --profile 2x4) COMP_CWORD=3; _slipstream; echo \"\${COMPREPLY[*]}\"
    COMP_WORDS=(slipstream tables b) COMP_CWORD=2; _slipstream; echo \"\${COMPREPLY[*]}\"")
[ "$completed" = $'generate\n--max-tokens\nlayers tensor\n2x4090 2x4090-x16\nbuild' ] || fail "bash completes to '$completed'"
for shell in zsh:zsh/$zsh_folder/_slipstream fish:fish/vendor_completions.d/slipstream.fish; do
    file=$prefix/share/${shell#*:}
    [ -s "$file" ] || fail "no $file"
    if command -v "${shell%%:*}" >/dev/null; then "${shell%%:*}" -n "$file" || fail "$file: not what ${shell%%:*} reads"; fi
done
