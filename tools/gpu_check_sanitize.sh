# shellcheck shell=bash disable=SC2154,SC2034  # variables of tools/gpu_check; STEP_LINE is read there
# Steps of tools/gpu_check, part 2 (sourced, not run): compute-sanitizer on the tests of ops, and profiles of four
# kernels. Nothing here changes settings of the GPU.

# sanitize_test NAME: runs compute-sanitizer on one test. Writes its output and its status to STEP_DIR/tests: 0 if the
# tool's output has the line $clean and the test was not skipped, 124 if out of time. Uses the variables of sanitize.
sanitize_test() {
    local status=0 log=$STEP_DIR/tests/$1 options=()
    # NCCL asks the driver for features that it may not have and handles the error, which is thus none of ours.
    if [[ $tool = memcheck && $1 = CudaNccl.* ]]; then options=(--report-api-errors no); fi
    limited compute-sanitizer --tool "$tool" "${options[@]}" --error-exitcode 9 --print-limit 5 \
        "$BIN/cuda_card_tests" "--gtest_filter=$1" >"$log" 2>&1 || status=$?
    if [ "$status" -eq 0 ] && { ! grep -q "$clean" "$log" || grep -q '^\[  SKIPPED' "$log"; }; then status=1; fi
    echo "$status" >"$log.status"
}

# sanitize TOOL CLEAN: runs the tests each in a process of its own, several at once: the tool's host code is the slow
# part, and each start takes seconds. Tests of large matrices and long contexts are left out: they run the same kernels
# as those of small ones.
sanitize() {
    local tool=$1 clean=$2 tests=() name n_clean=0 late=() bad=() n_at_once=$((CARD_MIB / 6000)) log
    command -v compute-sanitizer >/dev/null || { STEP_LINE="there is no compute-sanitizer here"; return 77; }
    mapfile -t tests < <(limited "$BIN/cuda_card_tests" --gtest_list_tests |
        awk '/^[^ ]+\.( |$)/ { suite = $1 } /^  [^ ]/ && suite !~ /^CudaL(arge|ong)/ { print suite $1 }')
    if [ ${#tests[@]} -eq 0 ]; then STEP_LINE="cuda_card_tests lists no tests" && return 1; fi
    if [ "$n_at_once" -gt "$JOBS" ]; then n_at_once=$JOBS; fi
    mkdir -p "$STEP_DIR/tests"
    for name in "${tests[@]}"; do
        while [ "$(jobs -pr | wc -l)" -ge "$((n_at_once > 0 ? n_at_once : 1))" ]; do wait -n || true; done
        (
            trap 'kill "$CHILD" 2>/dev/null; exit 143' TERM
            sanitize_test "$name"
        ) &
    done
    wait
    for name in "${tests[@]}"; do
        log=$STEP_DIR/tests/$name
        echo "== $tool: $name: code $(cat "$log.status")"
        tail -n 30 "$log" 2>/dev/null
        case $(cat "$log.status") in
            0) n_clean=$((n_clean + 1)) ;;
            124) late+=("$name") ;;
            *) bad+=("$name") ;;
        esac
    done
    log=$STEP_DIR/tests/${tests[0]}
    if grep -q 'Device not supported' "$log" 2>/dev/null; then STEP_LINE="$tool does not support this device" && return 77; fi
    if [ "$n_clean" -eq 0 ] && [ -n "$(skip_reason "$log")" ]; then
        STEP_LINE="0 of ${#tests[@]} tests clean, ${tests[0]} skipped: $(skip_reason "$log")" && return 1
    fi
    echo "{\"tool\": \"$tool\", \"clean\": $n_clean, \"unfinished\": ${#late[@]}, \"bad\": ${#bad[@]}}" >"$STEP_DIR/figures.json"
    STEP_LINE="$n_clean of ${#tests[@]} tests clean, ${#late[@]} not finished in time${late[*]:+ (${late[*]})}"
    STEP_LINE+=${bad[*]:+; not clean: ${bad[*]}}
    if [ ${#bad[@]} -gt 0 ]; then return 1; fi
    if [ ${#late[@]} -gt 0 ]; then return 124; fi
}
step_memcheck() { sanitize memcheck 'ERROR SUMMARY: 0 errors'; }
step_racecheck() { sanitize racecheck 'RACECHECK SUMMARY: 0 hazards'; }

# Profiles four kernels in `slipstream-lab card` by ncu's counters, two launches each: duration, memory throughput, active warps,
# issued instructions.
step_profile() {
    local status=0 kernel n=0 metrics=gpu__time_duration.sum,dram__throughput.avg.pct_of_peak_sustained_elapsed
    metrics+=,sm__warps_active.avg.pct_of_peak_sustained_active,smsp__issue_active.avg.pct_of_peak_sustained_active
    command -v ncu >/dev/null || { STEP_LINE="there is no ncu here"; return 77; }
    for kernel in matmul_ring matmul_split matmul_tiles attention; do
        limited ncu --clock-control none -k "regex:$kernel" -c 2 --metrics "$metrics" \
            "$BIN/slipstream-lab" card --devices cuda:0 --seconds 20 --types BF16,Q4_K --tokens 1,64,512 --matrices 2 \
            >"$STEP_DIR/ncu.$kernel" 2>&1 || status=$?
        grep -q '%' "$STEP_DIR/ncu.$kernel" && n=$((n + 1))
        # These lines have the kernel's name and the counters of each launch.
        { echo "== $kernel"; grep -E '\(.*\)x\(|__.* [0-9.,]+$' "$STEP_DIR/ncu.$kernel" | head -n 10; } >>"$STEP_DIR/table"
    done
    STEP_LINE="$n of 4 kernels profiled"
    if [ "$n" -eq 0 ]; then STEP_LINE+=": $(tail -n 1 "$STEP_DIR/ncu.matmul_ring" | cut -c1-150)"; return 77; fi
    return "$status"
}
