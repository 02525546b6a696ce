# shellcheck shell=bash disable=SC2154,SC2034  # variables of tools/gpu_check; STEP_LINE is read there
# The steps of tools/gpu_check but the exactness runs (sourced, not run): build, tests on the card, compute-sanitizer,
# benchmarks. A step's words go to its log; what it returns says what came of it (run_step in gpu_check_report.sh).

step_build() {
    local generator=() options status=0
    if command -v ninja >/dev/null; then generator=(-G Ninja); fi
    options=(-DCMAKE_BUILD_TYPE=Release -DSLIPSTREAM_CUDA=ON -DSLIPSTREAM_TESTS=ON
        "-DCMAKE_CUDA_COMPILER=$nvcc" "-DCMAKE_CUDA_ARCHITECTURES=$CARD_SM-real")
    if [ -n "$prefix" ]; then
        export PATH=$PATH:$prefix/usr/bin
        export CPATH=$prefix/usr/include:$prefix/usr/include/x86_64-linux-gnu${CPATH:+:$CPATH}
        export LIBRARY_PATH=$LIBRARIES${LIBRARY_PATH:+:$LIBRARY_PATH}
        export PKG_CONFIG_PATH=$prefix/usr/lib/x86_64-linux-gnu/pkgconfig:$prefix/usr/share/pkgconfig
        export PKG_CONFIG_SYSROOT_DIR=$prefix
        options+=("-DCMAKE_PREFIX_PATH=$prefix/usr")
    fi
    command -v cmake >/dev/null || { STEP_LINE="there is no cmake here"; return 1; }
    limited cmake -S "$ROOT" -B "$BIN" "${generator[@]}" "${options[@]}" || status=$?
    if [ "$status" -eq 0 ]; then
        limited cmake --build "$BIN" -j "$JOBS" --target "${PROGRAMS[@]}" slipstream_cuda || status=$?
    fi
    if [ "$status" -ne 0 ]; then
        STEP_LINE=$({ grep -m 1 -iE 'error|not found|could not' "$STEP_DIR/log" || tail -n 1 "$STEP_DIR/log"; } | cut -c1-200)
        return "$status"
    fi
    STEP_LINE="for sm_$CARD_SM in $BIN"
}

# How many cases a run of GoogleTest passed, skipped and failed, from its words.
test_counts() {
    n_passed=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$1" | tail -n 1)
    n_failed=$(sed -n 's/^\[  FAILED  \] \([0-9]*\) test.*/\1/p' "$1" | tail -n 1)
    n_skipped=$(sed -n 's/^\[  SKIPPED \] \([0-9]*\) test.*/\1/p' "$1" | tail -n 1)
    n_passed=${n_passed:-0} n_failed=${n_failed:-0} n_skipped=${n_skipped:-0}
}

step_tests() {
    local status=0
    limited "$BIN/cuda_card_tests" || status=$?
    test_counts "$STEP_DIR/log"
    STEP_LINE="$n_passed passed, $n_failed failed, $n_skipped skipped"
    echo "{\"passed\": $n_passed, \"failed\": $n_failed, \"skipped\": $n_skipped}" >"$STEP_DIR/figures.json"
    if [ "$status" -eq 0 ] && { [ "$n_passed" -eq 0 ] || [ "$n_skipped" -gt 0 ]; }; then
        STEP_LINE+=": a skipped test is no passed one on a card"
        return 1
    fi
    return "$status"
}

# sanitize_tests FILTER: compute-sanitizer on the tests that FILTER names. 0 where the tool says $clean and none was
# skipped, 124 out of time. In the scope of sanitize.
sanitize_tests() {
    local status=0 log=$STEP_DIR/test.log
    limited compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 5 \
        "$BIN/cuda_card_tests" "--gtest_filter=$1" >"$log" 2>&1 || status=$?
    echo "== $tool: $1: code $status"
    tail -n 30 "$log"
    if [ "$status" -ne 0 ]; then return "$status"; fi
    grep -q "$clean" "$log" && ! grep -q '^\[  SKIPPED' "$log"
}

# sanitize TOOL CLEAN: a suite at a time, since a start under the tool takes seconds; the tests of a suite that is not
# clean one by one, which names the guilty. Large matrices are left out: their kernels are those of the small ones.
sanitize() {
    local tool=$1 clean=$2 tests=() name suite status n_clean=0 n_late=0 bad=() suites=()
    command -v compute-sanitizer >/dev/null || { STEP_LINE="there is no compute-sanitizer here"; return 77; }
    mapfile -t tests < <(limited "$BIN/cuda_card_tests" --gtest_list_tests |
        awk '/^[^ ]+\.( |$)/ { suite = $1 } /^  [^ ]/ && suite !~ /^CudaLarge/ { print suite $1 }')
    if [ ${#tests[@]} -eq 0 ]; then STEP_LINE="cuda_card_tests lists no tests" && return 1; fi
    mapfile -t suites < <(printf '%s\n' "${tests[@]%.*}" | uniq)
    for suite in "${suites[@]}"; do
        if sanitize_tests "$suite.*"; then
            n_clean=$((n_clean + $(printf '%s\n' "${tests[@]}" | grep -c "^$suite\.")))
            continue
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
    STEP_LINE="$n_clean of ${#tests[@]} tests clean, $n_late not finished in time${bad[*]:+; not clean: ${bad[*]}}"
    if [ ${#bad[@]} -gt 0 ]; then return 1; fi
    if [ "$n_late" -gt 0 ]; then return 124; fi
}
step_memcheck() { sanitize memcheck 'ERROR SUMMARY: 0 errors'; }
step_racecheck() { sanitize racecheck 'RACECHECK SUMMARY: 0 hazards'; }

# need_model NAME SHAPE TYPE LAYERS: $WORK/NAME.gguf, of random weights, made when it is first asked for.
need_model() {
    MODEL=$WORK/$1.gguf
    if [ -s "$MODEL" ]; then return 0; fi
    limited "$BIN/random_model" --shape "$2" --type "$3" --layers "$4" --output "$MODEL" && return 0
    STEP_LINE="no model $1: $(tail -n 1 "$STEP_DIR/log" | cut -c1-200)"
    return 1
}

# Whole where host memory and the disk hold it twice over, else a part of it, which is said.
choose_bf16() {
    BF16_LAYERS=32 CAP=8G
    if [ "$(memory_gb)" -ge 48 ] && [ "$(free_gb "$WORK")" -ge 20 ]; then return; fi
    BF16_LAYERS=10 CAP=4G
}

step_bench_card() {
    local status=0
    limited "$BIN/bench_card" --devices cuda:0 --seconds $((STEP_END - SECONDS > 8 ? STEP_END - SECONDS - 5 : 3)) \
        ${CARD_SM_MHZ:+--sm-mhz "$CARD_SM_MHZ"} --json "$STEP_DIR/figures.jsonl" >"$STEP_DIR/table" || status=$?
    STEP_LINE=$(sed -n 's/^\(out of time: .*\)/\1/p' "$STEP_DIR/table" | tail -n 1)
    STEP_LINE=${STEP_LINE:-"$(grep -c '"seconds"' "$STEP_DIR/figures.jsonl" 2>/dev/null) figures"}
    if [ "$status" -ne 0 ]; then STEP_LINE="ended with code $status: $(tail -n 1 "$STEP_DIR/log" | cut -c1-200)"; fi
    return "$status"
}

# bench_model LINE OPTION...: one run of `slipstream bench`, its table and its JSON kept.
bench_model() {
    local line=$1 status=0 table=$STEP_DIR/table.run json=$STEP_DIR/run.json
    shift
    rm -f "$json"
    limited "$BIN/slipstream" bench --devices cuda:0 --no-config -m "$MODEL" --stats "$json" "$@" >"$table" || status=$?
    { echo "$line: bench $*"; cat "$table"; echo; } >>"$STEP_DIR/table"
    if [ "$status" -eq 0 ] && [ -s "$json" ]; then one_line "$json" >>"$STEP_DIR/figures.jsonl"; fi
    if [ "$status" -ne 0 ]; then STEP_LINE="$line: ended with code $status: $(tail -n 1 "$STEP_DIR/log" | cut -c1-200)"; fi
    return "$status"
}

PASSES=1,2,4,8,16,32,64,128,256,512,1024
step_resident_q4() {
    need_model 8b-q4 llama3.1-8b Q4_K_M 32 || return
    bench_model "8B Q4_K_M" --ctx 4096 --passes "$PASSES" --depth 1024 --repeat 3 || return
    STEP_LINE="8B Q4_K_M, passes of $PASSES behind 1024 tokens"
}
step_resident_bf16() {
    choose_bf16
    if [ "$CARD_MIB" -lt $((BF16_LAYERS * 450 + 6000)) ]; then
        STEP_LINE="$BF16_LAYERS layers of 8B BF16 do not fit into $CARD_MIB MiB"
        return 77
    fi
    need_model 8b-bf16 llama3.1-8b BF16 "$BF16_LAYERS" || return
    bench_model "8B BF16, $BF16_LAYERS layers" --ctx 4096 --passes "$PASSES" --depth 1024 --repeat 3 || return
    STEP_LINE="8B BF16, $BF16_LAYERS layers, passes of $PASSES behind 1024 tokens"
}
step_decode() {
    need_model 8b-q4 llama3.1-8b Q4_K_M 32 || return
    bench_model "8B Q4_K_M" --ctx 4096 --prompt-tokens 2048 --max-tokens 128 --repeat 2 || return
    STEP_LINE="8B Q4_K_M, a prompt of 2048 tokens and 128 more"
}

# Plain decoding and large passes of a model that does not fit; statistics tell how busy the link was.
step_streamed() {
    local status=0 busy
    choose_bf16
    need_model 8b-bf16 llama3.1-8b BF16 "$BF16_LAYERS" || return
    bench_model "8B BF16, $BF16_LAYERS layers, under $CAP" --device-memory "$CAP" --ctx 4096 \
        --passes 1,64,256,1024 --depth 1024 --repeat 1 || status=$?
    if [ "$status" -ne 0 ]; then return "$status"; fi
    limited "$BIN/slipstream" generate --devices cuda:0 --no-config -m "$MODEL" --device-memory "$CAP" --ctx 4096 --draft none \
        --prompt "once" --max-tokens 12 --temperature 0 --stats "$STEP_DIR/plain.json" >/dev/null || status=$?
    if [ "$status" -ne 0 ]; then STEP_LINE="generate ended with code $status" && return "$status"; fi
    one_line "$STEP_DIR/plain.json" >>"$STEP_DIR/figures.jsonl"
    busy=$(one_line "$STEP_DIR/plain.json" | sed -n 's/.*"link_busy_fraction": *\[ *\([0-9.e-]*\).*/\1/p')
    STEP_LINE="8B BF16, $BF16_LAYERS layers, under $CAP: "
    if [ -z "$busy" ]; then STEP_LINE+="nothing streams" && return 1; fi
    STEP_LINE+="plain decoding has the link busy $busy of the time"
}
