# shellcheck shell=bash disable=SC2154,SC2034  # variables of tools/gpu_check
# Figures of tools/gpu_check and the bounds ("floors") that they are compared with (sourced, not run). Each figure is
# printed, appended to the step's figures and written to REPORT.figures as soon as it is known, so that it is not lost
# if the run ends early.

MEMORY_RATE='' LINK_RATE=''  # of the GPU, bytes per second, measured by `slipstream-lab card`; empty: not measured
LAST_FIGURE=

# tell WHAT VALUE [FLOOR VERDICT]: reports a figure, with the floor and verdict if it has one.
tell() {
    LAST_FIGURE="$1: $2${3:+ (wanted $3): $4}"
    say "    $LAST_FIGURE"
    printf '%4d s  %s\n' "$SECONDS" "$LAST_FIGURE" >>"$REPORT.figures"
    # A program that was killed may have left an incomplete line.
    if [ -n "$(tail -c 1 "$STEP_DIR/figures.jsonl" 2>/dev/null)" ]; then echo >>"$STEP_DIR/figures.jsonl"; fi
    printf '{"figure": %s, "value": %s, "floor": %s, "pass": %s}\n' "$(json_text <<<"$1")" "$(json_number "$2")" \
        "$(if [ -n "${3:-}" ]; then json_text <<<"$3"; else printf null; fi)" \
        "$(case ${4:-} in pass) printf true ;; FAIL) printf false ;; *) printf null ;; esac)" >>"$STEP_DIR/figures.jsonl"
}

# judge WHAT VALUE '>='|'<=' FLOOR: reports a figure and its verdict. Returns 1 if VALUE misses FLOOR or is empty.
judge() {
    local verdict=FAIL
    if awk -v v="$2" -v op="$3" -v f="$4" 'BEGIN { exit !(v + 0 == v && (op == ">=" ? v >= f : v <= f)) }'; then verdict=pass; fi
    tell "$1" "${2:-none}" "$3 $4" "$verdict"
    [ "$verdict" = pass ]
}

# ratio A B: prints A / B with three decimals; nothing if B is not above zero.
ratio() { awk -v a="${1:-0}" -v b="${2:-0}" 'BEGIN { if (b > 0) printf "%.3f", a / b }'; }

# pass_field FILE TOKENS FIELD: prints a field of the pass of that many tokens in a file of `slipstream bench --passes
# --stats`.
pass_field() {
    one_line "$1" | tr '{' '\n' | grep "\"tokens\": $2," | head -n 1 | grep -o "\"$3\": *[0-9.e+-]*" | sed 's/.*: *//'
}

# Sets MEMORY_RATE and LINK_RATE from what `slipstream-lab card` measured, if it ran, and reports its main figures.
read_card_rates() {
    local lines=$STEP_DIR/figures.jsonl
    [ -s "$lines" ] || return 0
    MEMORY_RATE=$(grep '"bench": *"memory"' "$lines" | head -n 1 | grep -o '"bytes_per_second": *[0-9.e+]*' | sed 's/.*: *//')
    LINK_RATE=$(grep '"bench": *"copy"' "$lines" | grep '64 MiB to the card' | head -n 1 |
        grep -o '"bytes_per_second": *[0-9.e+]*' | sed 's/.*: *//')
    if [ -n "$MEMORY_RATE" ]; then tell "the card's memory, GB/s read and written" "$(ratio "$MEMORY_RATE" 1e9)"; fi
    if [ -n "$LINK_RATE" ]; then tell "the link to the card, GB/s in copies of 64 MiB" "$(ratio "$LINK_RATE" 1e9)"; fi
    local one
    for one in BF16 Q4_K; do
        grep '"bench": *"matmul"' "$lines" | grep "\"what\": *\"$one" | grep '"n": *1,' | head -n 1 |
            grep -o '"memory_share": *[0-9.e+-]*' | sed 's/.*: *//' | while read -r share; do
            tell "$one matmul of one token, share of memory" "$share"
        done
    done
    grep '"bench": *"small_copy"' "$lines" | while read -r line; do
        tell "128 bytes to the card $(sed 's/.*"what": *"\([^"]*\)".*/\1/' <<<"$line"), us" \
            "$(awk -v s="$(grep -o '"seconds": *[0-9.e+-]*' <<<"$line" | sed 's/.*: *//')" 'BEGIN { printf "%.1f", s * 1e6 }')"
    done
}

# Prints the fraction of the memory's rate that resident decoding of 4-bit weights must reach. It is lower for H100 and
# H200, whose memory is faster, relative to their arithmetic, than an RTX 4090's: unpacking the weights is the limit
# there.
q4_floor() { case $CARD_NAME in *H100* | *H200*) echo 0.55 ;; *) echo 0.75 ;; esac; }

# judge_decode WHAT FILE FLOOR: checks that a pass of one token reads weights and KV at that fraction of the memory's
# rate.
judge_decode() {
    local bytes seconds
    seconds=$(pass_field "$2" 1 seconds)
    bytes=$(awk -v a="$(pass_field "$2" 1 weight_bytes)" -v b="$(pass_field "$2" 1 kv_bytes)" 'BEGIN { print a + b }')
    if [ -z "$MEMORY_RATE" ]; then
        tell "$1: GB/s of a pass of one token (no rate of the memory to judge it by)" "$(ratio "$(ratio "$bytes" "$seconds")" 1e9)"
        return 1
    fi
    judge "$1: a pass of one token, share of the memory's rate" "$(ratio "$(ratio "$bytes" "$seconds")" "$MEMORY_RATE")" ">=" "$3"
}

# judge_streamed FILE: checks that passes of 1, 64 and 512 tokens take hardly longer than copying their bytes over the
# link, and that one of 512 takes hardly longer than one of 1.
judge_streamed() {
    local n bytes seconds bad=0
    for n in 1 64 512; do
        seconds=$(pass_field "$1" "$n" seconds)
        bytes=$(pass_field "$1" "$n" streamed_bytes)
        tell "a streamed pass of $n, ms" "$(awk -v s="${seconds:-0}" 'BEGIN { printf "%.1f", s * 1e3 }')"
        if [ -z "$LINK_RATE" ]; then tell "a streamed pass of $n over its bytes on the link: no rate of the link" none && bad=1 && continue; fi
        judge "a streamed pass of $n over its bytes on the link" "$(ratio "$seconds" "$(ratio "$bytes" "$LINK_RATE")")" "<=" 1.05 || bad=1
    done
    judge "a streamed pass of 512 over one of 1" "$(ratio "$(pass_field "$1" 512 seconds)" "$(pass_field "$1" 1 seconds)")" "<=" 1.10 || bad=1
    return "$bad"
}
