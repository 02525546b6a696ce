# shellcheck shell=bash disable=SC2154,SC2034  # variables of tools/gpu_check; STEP_LINE is read there
# Steps of tools/gpu_check (sourced, not run): build, facts of the machine, tests on the GPU, benchmarks; others are in
# gpu_check_exact.sh and gpu_check_sanitize.sh. The output of a step goes to its log; its status is its outcome
# (run_step in gpu_check_report.sh).

step_build() {
    local generator=() options status=0
    if command -v ninja >/dev/null; then generator=(-G Ninja); fi
    options=(-DCMAKE_BUILD_TYPE=Release -DSLIPSTREAM_CUDA=ON -DSLIPSTREAM_TESTS=ON -DSLIPSTREAM_LAB=ON
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

# test_counts LOG: sets n_passed, n_failed and n_skipped from the output of GoogleTest.
test_counts() {
    n_passed=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$1" | tail -n 1)
    n_failed=$(sed -n 's/^\[  FAILED  \] \([0-9]*\) test.*/\1/p' "$1" | tail -n 1)
    n_skipped=$(sed -n 's/^\[  SKIPPED \] \([0-9]*\) test.*/\1/p' "$1" | tail -n 1)
    n_passed=${n_passed:-0} n_failed=${n_failed:-0} n_skipped=${n_skipped:-0}
}

# Reports the machine, and touches its memory before anything is timed, since a virtual machine may be given memory only
# when it is first used: half of the free space of /dev/shm, at most 48 GB.
step_facts() {
    local mb seconds began gb
    { nvidia-smi; free -g; df -h /dev/shm "$scratch"; nproc; uname -r; } 2>&1
    { echo "free $(memory_gb) GB, /dev/shm $(free_gb /dev/shm) GB, $scratch $(free_gb "$scratch") GB, $JOBS CPUs, kernel $(uname -r)"
        nvidia-smi --query-gpu=name,driver_version,pcie.link.gen.max,pcie.link.width.max,clocks.max.sm,clocks.max.mem,power.limit \
            --format=csv,noheader -i "$CARD_INDEX"
        echo "cuBLASLt: ${blas_folder:-where the loader looks}; NCCL: ${nccl_folder:-not found}"; } >"$STEP_DIR/table" 2>&1
    mb=$(($(free_gb /dev/shm) * 512 < 49152 ? $(free_gb /dev/shm) * 512 : 49152))
    if [ $((mb / 512)) -gt "$(memory_gb)" ]; then mb=$(($(memory_gb) * 512)); fi
    STEP_LINE="less than 64 GB of memory: not touched"
    if [ "$(memory_gb)" -lt 64 ] || [ "$mb" -lt 512 ]; then return 0; fi
    began=$(date +%s%N)
    touched=/dev/shm/slipstream-touch-$$
    limited dd if=/dev/zero of="$touched" bs=1M count="$mb" 2>/dev/null
    gb=$(awk -v b="$(stat -c %s "$touched" 2>/dev/null || echo 0)" 'BEGIN { printf "%.1f", b / 1e9 }')
    seconds=$(awk -v a="$began" -v b="$(date +%s%N)" 'BEGIN { printf "%.3f", (b - a) / 1e9 }')
    rm -f "$touched"
    tell "first touch of memory, GB/s" "$(awk -v g="$gb" -v s="$seconds" 'BEGIN { printf "%.2f", g / s }')"
    STEP_LINE="$gb GB of memory touched in $seconds s"
}

# skip_reason LOG: prints why the first skipped test was skipped; nothing if none was.
skip_reason() { sed -n '/: Skipped$/{n;p;q}' "$1" | cut -c1-200; }

# test_run FILTER LOG [VARIABLE=VALUE]: runs the tests that FILTER names and adds their counts to n_passed, n_failed and
# n_skipped.
test_run() {
    local status=0 passed=$n_passed failed=$n_failed skipped=$n_skipped
    limited env "${@:3}" "$BIN/cuda_card_tests" "--gtest_filter=$1" >"$2" 2>&1 || status=$?
    cat "$2"
    test_counts "$2"
    n_passed=$((n_passed + passed)) n_failed=$((n_failed + failed)) n_skipped=$((n_skipped + skipped))
    return "$status"
}

# Runs tests of small kernels first and those of whole matrices last. One test of graphs runs in a process of its own,
# so that the driver loads its kernels during the capture. If the first suite fails, it is run again with each launch
# waited for, so that the log names the kernel.
step_tests() {
    local status=0 one rest='-CudaElementwise*:CudaLarge*:CudaLong*'
    # A single GPU does not need NCCL, so its tests are run only if the library is found.
    if [ -z "$nccl_folder" ]; then rest+=:CudaNccl*; fi
    n_passed=0 n_failed=0 n_skipped=0
    for one in 'CudaElementwise*' 'CudaGraph.LaunchesRunInStreamOrder' "$rest" 'CudaLarge*'; do
        test_run "$one" "$STEP_DIR/run.log" || {
            status=$?
            if [ "$one" = 'CudaElementwise*' ] && [ "$status" -ne 124 ]; then
                echo "== once more, each launch waited for"
                limited env CUDA_LAUNCH_BLOCKING=1 "$BIN/cuda_card_tests" "--gtest_filter=$one"
            fi
            if [ "$status" -eq 124 ] || [ "$n_passed" -eq 0 ]; then break; fi
        }
    done
    STEP_LINE="$n_passed passed, $n_failed failed, $n_skipped skipped"
    local reason
    reason=$(skip_reason "$STEP_DIR/run.log")
    echo "{\"passed\": $n_passed, \"failed\": $n_failed, \"skipped\": $n_skipped}" >"$STEP_DIR/figures.json"
    if [ "$status" -eq 0 ] && { [ "$n_passed" -eq 0 ] || [ "$n_skipped" -gt 0 ]; }; then
        STEP_LINE+=": a skipped test is not a passed one on a GPU${reason:+ ($reason)}"
        return 1
    fi
    return "$status"
}
step_long_context() {
    local status=0
    n_passed=0 n_failed=0 n_skipped=0
    test_run 'CudaLong*' "$STEP_DIR/run.log" || status=$?
    STEP_LINE="128K positions and a head of 128,256 rows, bit for bit: $n_passed passed, $n_failed failed, $n_skipped skipped"
    if [ "$status" -eq 0 ] && { [ "$n_passed" -eq 0 ] || [ "$n_skipped" -gt 0 ]; }; then
        STEP_LINE+=" ($(skip_reason "$STEP_DIR/run.log"))"
        return 1
    fi
    return "$status"
}

# Generates 64 tokens with the bundled model: streamed, which uses no CUDA graphs, then resident, which uses them.
step_demo() {
    EXACT_NAME=demo EXACT_RUNS=0 EXACT_BAD=() SEEN_WEIGHTS=0 SEEN_KV=0 EXACT_DIR=$STEP_DIR/runs
    EXACT_OPTIONS=(-m "$ROOT/tools/demo_model/target" --prompt-file "$ROOT/tools/demo_model/prompts/three_sons.txt"
        --ctx 2048 --max-tokens 64)
    local status=0
    mkdir -p "$EXACT_DIR"
    capped_run streamed 1 greedy none || status=$?
    if [ "$status" -eq 0 ]; then exact_run resident 12G greedy none || status=$?; fi
    STEP_LINE="64 tokens without graphs, then with them: ${EXACT_BAD[*]:-the same}"
    if [ "$status" -eq 2 ]; then STEP_LINE="the bundled model runs under no cap: $(tail -n 1 "$EXACT_DIR/err" | cut -c1-200)"; fi
    return "$status"
}

# need_model NAME SHAPE TYPE LAYERS [OPTION...]: sets MODEL to $WORK/NAME.gguf, a model of random weights; makes it at
# the first call, with these options of random-model.
need_model() {
    MODEL=$WORK/$1.gguf
    if [ -s "$MODEL" ]; then return 0; fi
    limited "$BIN/slipstream-lab" random-model --shape "$2" --type "$3" --layers "$4" --output "$MODEL" "${@:5}" && return 0
    STEP_LINE="no model $1: $(tail -n 1 "$STEP_DIR/log" | cut -c1-200)"
    return 1
}

# Sets BF16_LAYERS, the layers of the BF16 model (all 32 if memory and disk are large enough, else 10, which the report
# says), and CAP, the --device-memory of its streamed runs.
choose_bf16() {
    BF16_LAYERS=32 CAP=8G
    if [ "$(memory_gb)" -ge 48 ] && [ "$(free_gb "$WORK")" -ge 20 ]; then return; fi
    BF16_LAYERS=10 CAP=4G
}

step_bench_card() {
    local status=0
    limited "$BIN/slipstream-lab" card --devices cuda:0 --seconds $((STEP_END - SECONDS > 8 ? STEP_END - SECONDS - 5 : 3)) \
        ${CARD_SM_MHZ:+--sm-mhz "$CARD_SM_MHZ"} --json "$STEP_DIR/figures.jsonl" >"$STEP_DIR/table" || status=$?
    STEP_LINE=$(sed -n 's/^\(out of time: .*\)/\1/p' "$STEP_DIR/table" | tail -n 1)
    STEP_LINE=${STEP_LINE:-"$(grep -c '"seconds"' "$STEP_DIR/figures.jsonl" 2>/dev/null) figures"}
    if [ "$status" -ne 0 ]; then STEP_LINE="ended with code $status: $(tail -n 1 "$STEP_DIR/log" | cut -c1-200)"; fi
    read_card_rates
    return "$status"
}

# bench_model LINE OPTION...: runs `slipstream bench` and keeps its table and its JSON. LINE names the run.
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
    STEP_LINE="8B Q4_K_M, passes of $PASSES after 1024 tokens"
}
step_resident_bf16() {
    choose_bf16
    if [ "$CARD_MIB" -lt $((BF16_LAYERS * 450 + 6000)) ]; then
        STEP_LINE="$BF16_LAYERS layers of 8B BF16 do not fit into $CARD_MIB MiB"
        return 77
    fi
    need_model 8b-bf16 llama3.1-8b BF16 "$BF16_LAYERS" || return
    bench_model "8B BF16, $BF16_LAYERS layers" --ctx 4096 --passes "$PASSES" --depth 1024 --repeat 3 || return
    STEP_LINE="8B BF16, $BF16_LAYERS layers, passes of $PASSES after 1024 tokens"
}
# Checks that decoding is bound by the GPU's memory: the bytes that passes of one token of resident models read, over
# their time.
step_decode() {
    local status=0
    need_model 8b-q4 llama3.1-8b Q4_K_M 32 || return
    bench_model "8B Q4_K_M" --ctx 4096 --passes 1,64 --depth 1024 --repeat 3 || return
    judge_decode "8B Q4_K_M" "$STEP_DIR/run.json" "$(q4_floor)" || status=1
    STEP_LINE="$LAST_FIGURE"
    choose_bf16
    if [ "$CARD_MIB" -lt $((BF16_LAYERS * 450 + 6000)) ]; then
        STEP_LINE+="; $BF16_LAYERS layers of BF16 do not fit"
        return "$status"
    fi
    need_model 8b-bf16 llama3.1-8b BF16 "$BF16_LAYERS" || return
    bench_model "8B BF16, $BF16_LAYERS layers" --ctx 4096 --passes 1,64 --depth 1024 --repeat 3 || return
    judge_decode "8B BF16" "$STEP_DIR/run.json" 0.75 || status=1
    STEP_LINE+="; $LAST_FIGURE"
    return "$status"
}

# Checks the passes of a model that does not fit against the rate of the link that `slipstream-lab card` measured; the statistics
# of a run without drafting say how busy the link was.
step_streamed() {
    local status=0 busy bad=0
    choose_bf16
    need_model 8b-bf16 llama3.1-8b BF16 "$BF16_LAYERS" || return
    bench_model "8B BF16, $BF16_LAYERS layers, under $CAP" --device-memory "$CAP" --ctx 4096 \
        --passes 1,64,512 --depth 1024 --repeat 1 || status=$?
    if [ "$status" -ne 0 ]; then return "$status"; fi
    judge_streamed "$STEP_DIR/run.json" || bad=1
    limited "$BIN/slipstream" generate --devices cuda:0 --no-config -m "$MODEL" --device-memory "$CAP" --ctx 4096 --draft none \
        --prompt "once" --max-tokens 12 --temperature 0 --stats "$STEP_DIR/plain.json" >/dev/null || status=$?
    if [ "$status" -ne 0 ]; then STEP_LINE="generate ended with code $status" && return "$status"; fi
    one_line "$STEP_DIR/plain.json" >>"$STEP_DIR/figures.jsonl"
    busy=$(one_line "$STEP_DIR/plain.json" | sed -n 's/.*"link_busy_fraction": *\[ *\([0-9.e-]*\).*/\1/p')
    STEP_LINE="8B BF16, $BF16_LAYERS layers, under $CAP: "
    if [ -z "$busy" ]; then STEP_LINE+="nothing streams" && return 1; fi
    judge "plain decoding: share of time that the link is busy" "$busy" ">=" 0.95 || bad=1
    STEP_LINE+="plain decoding has the link busy $busy of the time"
    return "$bad"
}
