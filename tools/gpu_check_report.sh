# shellcheck shell=bash
# Runs the steps of tools/gpu_check and reports them (sourced, not run): time limits, outcomes, the JSON and the
# Markdown report. A step leaves files in its folder: log (its output), outcome, seconds, line (its result in one line),
# and, if it measured anything, figures.json or figures.jsonl (for programs) and table (for readers). The reports are
# written again after each step from these folders, so that a run that ends early has reports of the steps before.

STEP_NUMBER=0
CHILD=

# Programs count GPUs as CUDA does, and only those in CUDA_VISIBLE_DEVICES; nvidia-smi counts all of them in the order
# of their PCI addresses. With this order the GPU that is cuda:0 for the programs has the index CARD_INDEX in
# nvidia-smi.
export CUDA_DEVICE_ORDER=PCI_BUS_ID
CARD_INDEX=${CUDA_VISIBLE_DEVICES:-0}
CARD_INDEX=${CARD_INDEX%%,*}

# Sets the variables CARD_* to the properties of the GPU that is used. Returns 1 and sets CARD_ERROR if there is none.
read_card() {
    local line fields=name,driver_version,compute_cap,memory.total,clocks.max.sm,clocks.max.mem
    fields+=,pcie.link.gen.max,pcie.link.width.max,power.limit
    if ! line=$(nvidia-smi --query-gpu="$fields" --format=csv,noheader,nounits -i "$CARD_INDEX" 2>&1) || [ -z "$line" ]; then
        CARD_ERROR=${line%%$'\n'*}
        return 1
    fi
    line=${line%%$'\n'*}
    IFS=, read -r CARD_NAME CARD_DRIVER CARD_CAPABILITY CARD_MIB CARD_SM_MHZ CARD_MEMORY_MHZ CARD_PCIE CARD_LANES \
        CARD_WATTS <<<"${line//, /,}"
    CARD_SM=${CARD_CAPABILITY/./}
    if [[ ! $CARD_SM =~ ^[0-9]+$ || ! $CARD_MIB =~ ^[0-9]+$ ]]; then CARD_ERROR=$line && return 1; fi
    [[ $CARD_SM_MHZ =~ ^[1-9][0-9]*$ ]] || CARD_SM_MHZ=
}

# Prints clocks, temperature and power of the GPU as they are now, for the report.
card_state() {
    nvidia-smi --query-gpu=clocks.sm,clocks.mem,temperature.gpu,power.draw,pcie.link.gen.current \
        --format=csv,noheader -i "$CARD_INDEX" 2>/dev/null | head -n 1
}

free_gb() { df -P -k "$1" 2>/dev/null | awk 'NR == 2 { print int($4 / 1048576) } END { if (NR < 2) print 0 }'; }
memory_gb() { awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo; }

# limited COMMAND...: runs the command for at most the time that the step has left; returns 124 if that runs out.
# LIBRARIES is added to the library path of this command only.
limited() {
    local left=$((STEP_END - SECONDS)) status=0
    if [ "$left" -lt 1 ]; then return 124; fi
    env ${LIBRARIES:+"LD_LIBRARY_PATH=$LIBRARIES${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"} \
        timeout -k 5 "$left" "$@" </dev/null &
    CHILD=$!
    wait "$CHILD" || status=$?
    CHILD=
    if [ "$status" -eq 137 ] && [ "$SECONDS" -ge "$STEP_END" ]; then status=124; fi  # timeout sent SIGKILL, too
    return "$status"
}

# run_step NAME LIMIT LEAST FUNCTION: runs the function as a step. Its status is the outcome (0: passed, 124: out of
# time, 77: not run, for the reason in STEP_LINE, else failed); STEP_LINE is its result in one line.
run_step() {
    local name=$1 limit=$2 least=$3 function=$4 status=0 outcome began=$SECONDS left=$((END - SECONDS - 3))
    STEP_NUMBER=$((STEP_NUMBER + 1))
    STEP_DIR=$WORK/steps/$(printf '%02d' "$STEP_NUMBER")-$name
    STEP_LINE=
    mkdir -p "$STEP_DIR"
    : >"$STEP_DIR/log"
    echo interrupted >"$STEP_DIR/outcome"
    if [ "$left" -lt "$least" ]; then
        STEP_LINE="no time: $((left > 0 ? left : 0)) s were left, it is begun with $least"
        status=77
    else
        STEP_END=$((SECONDS + (limit < left ? limit : left)))
        "$function" >"$STEP_DIR/log" 2>&1 || status=$?
    fi
    case $status in
        0) outcome=passed ;;
        77) outcome='not run' ;;
        124) outcome='out of time' ;;
        *) outcome=failed ;;
    esac
    echo "$outcome" >"$STEP_DIR/outcome"
    echo "$((SECONDS - began))" >"$STEP_DIR/seconds"
    echo "$STEP_LINE" >"$STEP_DIR/line"
    say "$(printf '%-14s %-12s %4d s  %s' "$name" "$outcome" "$((SECONDS - began))" "$STEP_LINE")"
    if [ "$left" -ge "$least" ]; then write_report; fi  # not after each step that there is no time for
    [ "$status" -eq 0 ]
}

interrupted() {
    local job
    for job in $(jobs -p); do kill "$job" 2>/dev/null; done
    say "interrupted; what was done so far is in $REPORT.md"
    write_report
    exit "$1"
}

# Prints stdin as a JSON string, without characters that are not ASCII.
json_text() {
    LC_ALL=C tr -cd '\11\12\40-\176' | sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/\t/\\t/g' |
        awk 'BEGIN { printf "\"" } NR > 1 { printf "\\n" } { printf "%s", $0 } END { printf "\"" }'
}
json_number() { if [[ $1 =~ ^-?[0-9]+(\.[0-9]+)?$ ]]; then printf '%s' "$1"; else printf null; fi; }
# one_line FILE: prints a JSON file as one line.
one_line() { tr '\n' ' ' <"$1" | sed 's/ *$//' && echo; }
# json_lines FILE: prints the lines of FILE that are complete JSON objects, as an array.
json_lines() { awk 'BEGIN { printf "[" } /^\{.*\}$/ { printf "%s%s", sep, $0; sep = "," } END { printf "]" }' "$1"; }

step_json() {
    local dir=$1 name
    name=$(basename "$dir")
    printf '{"name": %s, "outcome": %s, "seconds": %s, "line": %s' "$(json_text <<<"${name#*-}")" \
        "$(json_text <"$dir/outcome")" "$(json_number "$(cat "$dir/seconds" 2>/dev/null)")" \
        "$(cat "$dir/line" 2>/dev/null | json_text)"
    if [ -s "$dir/figures.json" ]; then printf ', "figures": %s' "$(cat "$dir/figures.json")"; fi
    if [ -s "$dir/figures.jsonl" ]; then printf ', "figures": %s' "$(json_lines "$dir/figures.jsonl")"; fi
    if [ "$(cat "$dir/outcome")" != passed ]; then printf ', "last_lines": %s' "$(tail -n 40 "$dir/log" | json_text)"; fi
    printf '}'
}

write_json() {
    local dir sep=''
    printf '{"program": %s, "date": "%s", "seconds": %d, "prebuilt": %s, "toolkit": %s, "scratch": %s,\n' \
        "$(program_version | json_text)" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$SECONDS" \
        "$([ -n "$prebuilt" ] && echo true || echo false)" "$(toolkit_version | json_text)" "$(json_text <<<"$scratch")"
    printf ' "card": {"name": %s, "driver": %s, "sm": %s, "memory_mib": %s, "max_sm_mhz": %s, "max_memory_mhz": %s,' \
        "$(json_text <<<"$CARD_NAME")" "$(json_text <<<"$CARD_DRIVER")" "$(json_number "$CARD_SM")" \
        "$(json_number "$CARD_MIB")" "$(json_number "$CARD_SM_MHZ")" "$(json_number "$CARD_MEMORY_MHZ")"
    printf ' "pcie_generation": %s, "pcie_lanes": %s, "power_limit_watts": %s, "state_at_end": %s},\n' \
        "$(json_number "$CARD_PCIE")" "$(json_number "$CARD_LANES")" "$(json_number "$CARD_WATTS")" \
        "$(card_state | json_text)"
    printf ' "host": {"cpus": %d, "memory_available_gb": %s},\n "steps": [\n' "$JOBS" "$(json_number "$(memory_gb)")"
    for dir in "$WORK"/steps/*/; do
        printf '%s  %s' "$sep" "$(step_json "${dir%/}")"
        sep=$',\n'
    done
    printf '\n ]}\n'
}

write_markdown() {
    local dir name
    printf '# %s, %s\n\n' "$CARD_NAME" "$(date -u '+%Y-%m-%d %H:%M UTC')"
    printf '%s\n\n' "$(program_version)"
    printf 'sm_%s, %s MiB, driver %s, at most %s MHz (memory %s MHz), PCIe %s x%s, %s W; ' "$CARD_SM" "$CARD_MIB" \
        "$CARD_DRIVER" "${CARD_SM_MHZ:-?}" "$CARD_MEMORY_MHZ" "$CARD_PCIE" "$CARD_LANES" "$CARD_WATTS"
    printf 'now (clocks, temperature, power, PCIe): %s. %s. %d CPUs, %s GB of memory free. %d s in all.\n\n' \
        "$(card_state)" "$(toolkit_version)" "$JOBS" "$(memory_gb)" "$SECONDS"
    printf '| step | outcome | s | |\n|---|---|---|---|\n'
    for dir in "$WORK"/steps/*/; do
        name=$(basename "$dir")
        printf '| %s | %s | %s | %s |\n' "${name#*-}" "$(cat "$dir/outcome")" "$(cat "$dir/seconds" 2>/dev/null)" \
            "$(cat "$dir/line" 2>/dev/null | tr '|' '/')"
    done
    for dir in "$WORK"/steps/*/; do
        name=$(basename "$dir")
        if [ -s "$dir/table" ]; then printf '\n## %s\n\n```\n%s\n```\n' "${name#*-}" "$(cat "$dir/table")"; fi
        if [ "$(cat "$dir/outcome")" != passed ] && [ -s "$dir/log" ]; then
            printf '\n## %s: last lines\n\n```\n%s\n```\n' "${name#*-}" \
                "$(tail -n 40 "$dir/log" | LC_ALL=C tr -cd '\11\12\40-\176')"
        fi
    done
}

program_version() {
    env ${LIBRARIES:+"LD_LIBRARY_PATH=$LIBRARIES"} timeout 10 "$BIN/slipstream" version --no-config 2>/dev/null |
        head -n 1 | grep . || echo "commit $(git -C "$ROOT" describe --always --dirty --exclude='*' 2>/dev/null || echo unknown)"
}
toolkit_version() { { "$nvcc" --version 2>/dev/null | grep release || echo "no toolkit: programs built elsewhere"; } | sed 's/^ *//'; }

# Each report is written to another file and renamed, so that it is never incomplete.
write_report() {
    write_json >"$REPORT.json.part" && mv "$REPORT.json.part" "$REPORT.json"
    write_markdown >"$REPORT.md.part" && mv "$REPORT.md.part" "$REPORT.md"
}
