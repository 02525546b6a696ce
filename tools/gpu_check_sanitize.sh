# shellcheck shell=bash disable=SC2154,SC2034  # variables of tools/gpu_check; STEP_LINE is read there
# Steps of tools/gpu_check, part 2 (sourced, not run): compute-sanitizer on the tests of ops, and profiles of four
# kernels. Nothing here changes settings of the GPU.

# sanitize_tests FILTER: runs compute-sanitizer on the tests that FILTER names. Returns 0 if the tool's output has the
# line $clean and no test was skipped, 124 if out of time. Uses the variables of sanitize.
sanitize_tests() {
    local status=0 log=$STEP_DIR/test.log options=()
    # NCCL asks the driver for features that it may not have and handles the error, which is thus none of ours.
    if [[ $tool = memcheck && $1 = CudaNccl.* ]]; then options=(--report-api-errors no); fi
    limited compute-sanitizer --tool "$tool" "${options[@]}" --error-exitcode 9 --print-limit 5 \
        "$BIN/cuda_card_tests" "--gtest_filter=$1" >"$log" 2>&1 || status=$?
    echo "== $tool: $1: code $status"
    tail -n 30 "$log"
    if [ "$status" -ne 0 ]; then return "$status"; fi
    grep -q "$clean" "$log" && ! grep -q '^\[  SKIPPED' "$log"
}

# sanitize TOOL CLEAN: runs the suites of tests one after the other, since each start under the tool takes seconds. The
# tests of a suite that is not clean are run again one by one, to find which of them are not. A suite may take an equal
# share of the time that is left, so that a slow one leaves some to the others. Tests of large matrices are left out:
# they run the same kernels as those of small ones.
sanitize() {
    local tool=$1 clean=$2 tests=() name suite status n_clean=0 n_late=0 bad=() suites=() late=() end=$STEP_END n_left
    command -v compute-sanitizer >/dev/null || { STEP_LINE="there is no compute-sanitizer here"; return 77; }
    mapfile -t tests < <(limited "$BIN/cuda_card_tests" --gtest_list_tests |
        awk '/^[^ ]+\.( |$)/ { suite = $1 } /^  [^ ]/ && suite !~ /^CudaL(arge|ong)/ { print suite $1 }')
    if [ ${#tests[@]} -eq 0 ]; then STEP_LINE="cuda_card_tests lists no tests" && return 1; fi
    mapfile -t suites < <(printf '%s\n' "${tests[@]%.*}" | uniq)
    n_left=${#suites[@]}
    for suite in "${suites[@]}"; do
        STEP_END=$((SECONDS + (end - SECONDS) / n_left))
        n_left=$((n_left - 1)) status=0
        sanitize_tests "$suite.*" || status=$?
        if [ "$status" -eq 0 ]; then
            n_clean=$((n_clean + $(printf '%s\n' "${tests[@]}" | grep -c "^$suite\.")))
            continue
        fi
        if [ "$status" -eq 124 ]; then
            n_late=$((n_late + $(printf '%s\n' "${tests[@]}" | grep -c "^$suite\."))) late+=("$suite")
            continue
        fi
        # If every test of the first suite is skipped, those of the other suites would be, too.
        if [ "$n_clean" -eq 0 ] && [ -n "$(skip_reason "$STEP_DIR/test.log")" ] && ! grep -q '^\[       OK' "$STEP_DIR/test.log"; then
            STEP_LINE="$n_clean of ${#tests[@]} tests clean, $suite skipped: $(skip_reason "$STEP_DIR/test.log")" && return 1
        fi
        if grep -q 'Device not supported' "$STEP_DIR/test.log"; then STEP_LINE="$tool does not support this device" && return 77; fi
        for name in "${tests[@]}"; do
            if [ "${name%.*}" != "$suite" ]; then continue; fi
            status=0
            sanitize_tests "$name" || status=$?
            case $status in
                0) n_clean=$((n_clean + 1)) ;;
                124) n_late=$((n_late + 1)) ;;
                *) bad+=("$name") ;;
            esac
        done
    done
    echo "{\"tool\": \"$tool\", \"clean\": $n_clean, \"unfinished\": $n_late, \"bad\": ${#bad[@]}}" >"$STEP_DIR/figures.json"
    STEP_END=$end
    STEP_LINE="$n_clean of ${#tests[@]} tests clean, $n_late not finished in time${late[*]:+ (${late[*]})}"
    STEP_LINE+=${bad[*]:+; not clean: ${bad[*]}}
    if [ ${#bad[@]} -gt 0 ]; then return 1; fi
    if [ "$n_late" -gt 0 ]; then return 124; fi
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
