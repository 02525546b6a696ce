# shellcheck shell=bash disable=SC2154,SC2034  # variables of tools/gpu_check; STEP_LINE is read there
# Exactness runs of tools/gpu_check (sourced, not run): they check that a model generates the same tokens whether
# weights and KV are resident or streamed, and with each draft source. The values of --device-memory ("caps") are not
# fixed but found: from the memory that the model takes when all of it is resident down to the least that works. A run
# counts as streamed only if its statistics say so.

# stat_number FILE NAME: prints the first number of that name in a statistics file; 0 if there is none.
stat_number() { tr -d '\n' <"$1" | grep -o "\"$2\": *[0-9.e+-]*" | head -n 1 | sed 's/.*: *//' | grep . || echo 0; }

# offered_by SOURCE FILE: prints how many draft tokens a source offered, by a statistics file; 0 if the file has none of
# that source.
offered_by() {
    tr -d '\n' <"$2" | grep -o "\"$1\": *{[^{}]*}" | grep -o '"offered": *[0-9]*' | head -n 1 | sed 's/.*: *//' |
        grep . || echo 0
}

# exact_run PLACEMENT CAP SAMPLING DRAFT [OPTION...]: generates one text and compares its tokens with those of the first
# run with the same sampling. PLACEMENT only names the run. CAP is the value of --device-memory; '-': no limit. Returns
# 0 if the tokens are equal (or this is the first run), 2 if the model does not fit under CAP, 124 if out of time, else
# 1.
exact_run() {
    local placement=$1 cap=$2 sampling=$3 draft=$4 status=0 ids stats options=() equal=true
    shift 4
    ids=$EXACT_DIR/$placement-$sampling-$draft.ids stats=$EXACT_DIR/run.json
    if [ "$cap" != - ]; then options+=(--device-memory "$cap"); fi
    if [ "$sampling" = greedy ]; then options+=(--temperature 0); else options+=(--temperature 0.8 --top-k 40 --top-p 0.95 --seed 11); fi
    if [ "$draft" != none ]; then options+=(--tables off); fi
    rm -f "$stats" "$ids"
    RUN_WEIGHTS=0 RUN_KV=0
    echo "== $placement (${cap}), $sampling, draft $draft $*"
    limited "$BIN/slipstream" generate --devices cuda:0 --no-config --no-template "${EXACT_OPTIONS[@]}" \
        "${options[@]}" --draft "$draft" --token-ids "$ids" --stats "$stats" -q "$@" >/dev/null 2>"$EXACT_DIR/err" || status=$?
    cat "$EXACT_DIR/err"
    if [ "$status" -eq 124 ]; then return 124; fi
    if [ "$status" -ne 0 ]; then
        LEAST=$(sed -n 's/.*use --device-memory \([0-9.]*[KMG]\{0,1\}\) or more.*/\1/p' "$EXACT_DIR/err" |
            awk '{ power = index("KMG", substr($0, length)); printf "%.0f", $0 * 1024 ^ power + 0.5 }')
        if [ "$cap" != - ] && grep -q -- '--device-memory' "$EXACT_DIR/err"; then return 2; fi
        EXACT_BAD+=("$placement, $sampling, draft $draft: code $status: $(tail -n 1 "$EXACT_DIR/err" | cut -c1-160)")
        return 1
    fi
    RUN_WEIGHTS=$(stat_number "$stats" streamed_weights_bytes) RUN_KV=$(stat_number "$stats" streamed_kv_bytes)
    if [ "$RUN_WEIGHTS" != 0 ]; then SEEN_WEIGHTS=1; fi
    if [ "$RUN_KV" != 0 ]; then SEEN_KV=1; fi
    if [ ! -e "$EXACT_DIR/$sampling.ids" ]; then cp "$ids" "$EXACT_DIR/$sampling.ids"; fi
    cmp -s "$ids" "$EXACT_DIR/$sampling.ids" && [ -s "$ids" ] || equal=false
    printf '{"model": "%s", "placement": "%s", "cap": "%s", "sampling": "%s", "draft": "%s", "equal": %s, "tokens": %d, "streamed_weights_bytes": %s, "streamed_kv_bytes": %s, "tokens_per_second": %s}\n' \
        "$EXACT_NAME" "$placement" "$cap" "$sampling" "$draft" "$equal" "$(wc -l <"$ids")" "$RUN_WEIGHTS" "$RUN_KV" \
        "$(stat_number "$stats" tokens_per_second)" >>"$STEP_DIR/figures.jsonl"
    printf '%-16s %-14s %-8s draft %-5s %-6s %6d tokens, %s of weights and %s of KV stream a pass\n' "$placement" "$cap" \
        "$sampling" "$draft" "$([ "$equal" = true ] && echo equal || echo OTHER)" "$(wc -l <"$ids")" \
        "$RUN_WEIGHTS" "$RUN_KV" >>"$STEP_DIR/table"
    EXACT_RUNS=$((EXACT_RUNS + 1))
    if [ "$equal" = true ]; then return 0; fi
    EXACT_BAD+=("$placement, $sampling, draft $draft: other tokens, from number $(
        cmp "$ids" "$EXACT_DIR/$sampling.ids" 2>&1 | sed -n 's/.* line \([0-9]*\)$/\1/p')")
    return 1
}

# capped_run PLACEMENT CAP SAMPLING DRAFT: exact_run, repeated with a larger cap if the model does not fit (drafting
# takes memory, too): with the least that the error message names and a few percent more, since the staging ring depends
# on the rate of the link, which each run measures anew. CAP_USED becomes the cap of the last run.
capped_run() {
    local code try
    CAP_USED=$2
    for try in 1 2 3 4; do
        code=0
        exact_run "$1" "$CAP_USED" "$3" "$4" || code=$?
        if [ "$code" -ne 2 ] || [ -z "$LEAST" ]; then break; fi
        CAP_USED=$((LEAST + LEAST * try / 50))
    done
    return "$code"
}

# Sets CAPS to values of --device-memory that work, in descending order: all weights and KV minus 20 to 97 percent,
# until one is too small. Each is tried by a greedy run without drafting.
find_caps() {
    local all weights kv part cap code=0
    all=$(stat_number "$EXACT_DIR/resident.json" device_bytes)
    weights=$(stat_number "$EXACT_DIR/resident.json" weights_bytes)
    kv=$(stat_number "$EXACT_DIR/resident.json" kv_bytes)
    CAPS=()
    for part in 20 45 65 80 90 97; do
        cap=$((all - (weights + kv) * part / 100))
        code=0
        capped_run cap $((cap > 0 ? cap : 1)) greedy none || code=$?
        if [ "$code" -eq 124 ]; then return 124; fi
        if [ "$code" -eq 2 ]; then return 0; fi
        CAPS+=("$CAP_USED")
        if [ "$CAP_USED" != "$cap" ]; then return 0; fi
    done
}

# exact_model NAME OPTION...: the exactness runs of one model, with all placements.
exact_model() {
    local sampling draft status=0
    EXACT_NAME=$1 EXACT_RUNS=0 EXACT_BAD=() SEEN_WEIGHTS=0 SEEN_KV=0 EXACT_DIR=$STEP_DIR/runs
    shift
    EXACT_OPTIONS=("$@")
    mkdir -p "$EXACT_DIR"
    # With a cap, even one under which everything is resident, device memory is planned and the statistics have the
    # plan.
    RESIDENT=12G
    if [ "$CARD_MIB" -lt 14000 ]; then RESIDENT=-; fi
    exact_run resident "$RESIDENT" greedy none || { status=$?; STEP_LINE="the resident run: ${EXACT_BAD[*]:-out of time}"; return "$status"; }
    cp "$EXACT_DIR/run.json" "$EXACT_DIR/resident.json"
    find_caps || status=$?
    for sampling in greedy seeded; do
        for draft in none auto; do
            if [ "$sampling-$draft" = greedy-none ]; then continue; fi  # done
            exact_run resident "$RESIDENT" "$sampling" "$draft" || keep_late
            if [ ${#CAPS[@]} -eq 0 ]; then continue; fi
            capped_run some-streams "${CAPS[0]}" "$sampling" "$draft" || keep_late
            capped_run most-streams "${CAPS[-1]}" "$sampling" "$draft" || keep_late
        done
    done
    # Drafting by the target itself over a KV view (a part of the KV cache), which recurrent layers do not have.
    if [ ${#CAPS[@]} -gt 0 ] && [ "$EXACT_NAME" != recurrent ]; then capped_run view "${CAPS[0]}" greedy retrieval,context || keep_late; fi
    if [ "$EXACT_NAME" = recurrent ]; then head_runs; fi
    exact_run self-check "$RESIDENT" greedy auto --self-check || keep_late
    if [ "$status" -ne 124 ] && ! one_line "$EXACT_DIR/run.json" | grep -q '"exact": *true'; then
        EXACT_BAD+=("self-check: the statistics do not say \"exact\": true")
    fi
    if [ "$SEEN_WEIGHTS" -eq 0 ]; then EXACT_BAD+=("weights streamed in no run"); fi
    if [ "$SEEN_KV" -eq 0 ]; then EXACT_BAD+=("KV streamed in no run"); fi
    STEP_LINE="$EXACT_RUNS runs, ${#EXACT_BAD[@]} not as they must be"
    if [ "$status" -eq 124 ]; then STEP_LINE+=", then the time was over" && return 124; fi
    if [ ${#EXACT_BAD[@]} -eq 0 ]; then return 0; fi
    printf 'NOT AS IT MUST BE: %s\n' "${EXACT_BAD[@]}"
    STEP_LINE+=": ${EXACT_BAD[0]}"
    return 1
}
# The runs of a model with an MTP head: all resident, where the head uses the LM head of the model, and beside what
# streams, where it has a copy. With --budget 8 it is asked in each pass, whether it pays or not.
head_runs() {
    local sampling draft
    for sampling in greedy seeded; do
        for draft in mtp auto; do
            if exact_run resident "$RESIDENT" "$sampling" "$draft" --budget 8; then
                if [ "$(offered_by mtp "$EXACT_DIR/run.json")" = 0 ]; then
                    EXACT_BAD+=("$sampling, draft $draft: the MTP head proposed nothing")
                fi
            else
                keep_late
            fi
        done
    done
    if [ ${#CAPS[@]} -gt 0 ]; then capped_run some-streams "${CAPS[0]}" seeded mtp,context || keep_late; fi
}
# Call if a run failed: notes that it was out of time, or found too little memory even with a larger cap. Uses the
# variables of exact_model.
keep_late() {
    local code=$?
    if [ "$code" -eq 124 ]; then status=124; fi
    if [ "$code" -eq 2 ]; then EXACT_BAD+=("$sampling, draft $draft: too little memory, and no least that is enough"); fi
}

step_exact_demo() {
    exact_model demo -m "$ROOT/tools/demo_model/target" --prompt-file "$ROOT/tools/demo_model/prompts/three_sons.txt" \
        --ctx 2048 --max-tokens 400
}

# A quantised KV cache (--kv-type q8).
step_exact_q8() {
    exact_model demo-q8 -m "$ROOT/tools/demo_model/target" --prompt-file "$ROOT/tools/demo_model/prompts/three_sons.txt" \
        --ctx 2048 --max-tokens 200 --kv-type q8
}

# exact_random NAME SHAPE LAYERS [TYPE [OPTION...]]: the exactness runs of a model of random weights, whose tokenizer has
# one token per byte. The prompt is so long that it is computed in more pieces than there are buffers for hidden states.
exact_random() {
    need_model "$1" "$2" "${4:-Q4_K_M}" "$3" "${@:5}" || return
    cat "$ROOT/LICENSE" "$ROOT/LICENSE" | head -c 1800 >"$STEP_DIR/prompt.txt"
    exact_model "$1" -m "$MODEL" --prompt-file "$STEP_DIR/prompt.txt" --ctx 8192 --max-tokens 64
}
step_exact_1b() { exact_random 1b llama3.2-1b 16; }
# Five of six layers of this model have a sliding window of 512 positions, whose ring the prompt overwrites.
step_exact_windows() { exact_random windows gemma3-1b 26; }
# gpt-oss: mixtures of experts, attention sinks, a window of 128 in every second layer.
step_exact_experts() { exact_random experts gpt-oss-20b 2 MXFP4; }
# Qwen3.5: three of four layers are delta nets, and an MTP head drafts.
step_exact_recurrent() { exact_random recurrent qwen3.5-0.8b 24 Q4_K_M --mtp-head; }
