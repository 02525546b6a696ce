// The list of kernel launches, written once. From it follow the functions of the module's table (module_api.h), the
// tables of the card (card/module.cu) and of the emulation (tests/cuda_emulation/emulated_module.cpp), and the sizes
// that both sides compare (host/table_bytes.h). launches.h has the parameters.
#pragma once

/// Expands X(name, Parameters) for each kernel launch, in the order of the module's table. `Parameters` is a struct of
/// plain data; launch_`name`(const Parameters&, void* stream) enqueues the kernel.
#define SLIPSTREAM_CUDA_LAUNCHES(X)                \
    X(add, AddLaunch)                              \
    X(argmax, ArgmaxLaunch)                        \
    X(attention, AttentionLaunch)                  \
    X(combine_experts, CombineExpertsLaunch)       \
    X(delta_net, DeltaNetLaunch)                   \
    X(gated_activation, GatedActivationLaunch)     \
    X(gather_columns, GatherColumnsLaunch)         \
    X(gumbel, GumbelLaunch)                        \
    X(kv_commit, KvCommitLaunch)                   \
    X(kv_gather, KvGatherLaunch)                   \
    X(kv_score, KvScoreLaunch)                     \
    X(kv_write, KvWriteLaunch)                     \
    X(link_pace, LinkPaceLaunch)                   \
    X(logit_sum, LogitSumLaunch)                   \
    X(matmul, MatmulLaunch)                        \
    X(matmul_group, MatmulGroupLaunch)             \
    X(move_rows, MoveRowsLaunch)                   \
    X(pages_attention, PagesAttentionLaunch)       \
    X(pages_write, PagesWriteLaunch)               \
    X(prompt_activations, PromptActivationsLaunch) \
    X(prompt_store, PromptStoreLaunch)             \
    X(prompt_weights, PromptWeightsLaunch)         \
    X(rms_norm, RmsNormLaunch)                     \
    X(rope, RopeLaunch)                            \
    X(rotate_write, RotateWriteLaunch)             \
    X(softcap, SoftcapLaunch)                      \
    X(top_k, TopKLaunch)
