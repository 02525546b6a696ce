// What an engine is asked: plain structs, which a command fills from its options (tools/options) and a server from a
// request. "--name" in a comment is the option that fills a field; messages of the engine name it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "draft/drafter.h"
#include "kernels/base/dtype.h"
#include "runtime/experts/miss_rules.h"
#include "runtime/loop/sampling/sampler.h"
#include "runtime/model/model_shard.h"
#include "runtime/text/chat/prompt_template.h"
#include "tools/machine/compute_device.h"

namespace slipstream::tools {

/// Memory, links, and how several devices share the model.
struct OffloadOptions {
    std::vector<DeviceLimits> devices{};        // [devices], in the order of --devices; empty: no limits
    std::size_t host_memory = 0;                // most bytes of pinned memory: what streams, and the MTP head
    std::optional<std::size_t> ring;            // bytes of each device's transfer ring; not given: planned
    std::optional<std::int64_t> expect_tokens;  // tokens per pass to plan for; not given: planned
    std::optional<ExpertMisses> experts{};      // what becomes of needed experts that a device lacks; no value: a GPU's
                                                // are copied, the CPU computes those of CPU devices
    std::string experts_demanded{};             // option on the command line that gave `experts`
    std::optional<SplitKind> split{};           // how the model is split over several devices; no value: by layers
    std::string split_where{};                  // option or variable that gave `split`, for messages; empty: none
    std::vector<double> shares{};               // relative shares of the model, [devices]; empty: planned
    std::string shares_where{};
    // For messages: the given options that have no effect on one CPU without a budget: "--device-memory, --ring";
    // empty: none.
    std::string streaming_options{};

    [[nodiscard]] bool splits_matrices() const { return split == SplitKind::Tensor; }

    [[nodiscard]] DeviceLimits limits(std::size_t device) const {
        return device < devices.size() ? devices[device] : DeviceLimits{};
    }
};

/// Returns what happens to needed experts that a device lacks: `experts`, as OffloadOptions has it, but Copy for a GPU,
/// since the CPU's products have other bits.
[[nodiscard]] ExpertMisses expert_misses(DeviceKind device, std::optional<ExpertMisses> experts);

/// Where the rates of this machine (seconds per byte to compute and to copy) come from.
struct RatesOptions {
    std::optional<std::filesystem::path> file{};  // file in which the rates are kept; no value: they are not kept
    bool measure = false;                         // measure again although rates are kept
};

/// Whether placing a model checks the bytes of its files and KV against the host's memory. No: the caller checks them,
/// as `plan` does in its report.
enum class HostMemoryCheck : std::uint8_t { No, Yes };

/// Where the model computes, and for which context.
struct ComputeOptions {
    std::optional<std::int64_t> context_tokens;
    std::optional<DType> kv_dtype;
    int n_threads = 1;
    std::vector<DeviceChoice> devices;  // at least one
    OffloadOptions offload;             // limits of `devices`, and how they share the model
    // Folder of the tables, where a planned split and the counts of experts are kept; no value: they are not kept.
    std::optional<std::filesystem::path> tables_folder{};
    RatesOptions rates{};
    HostMemoryCheck host_memory = HostMemoryCheck::Yes;
};

/// Returns the threads of each CPU device: all `n_threads` if the devices compute in turn (layers), else
/// n_threads / n_devices, at least 1.
[[nodiscard]] int device_threads(int n_threads, std::size_t n_devices, SplitKind split);

/// How draft tokens are verified. Exact commits the tokens that plain decoding gives for the same seed; Rejection
/// commits tokens with the same distribution.
enum class VerifyRule : std::uint8_t { Exact, Rejection };

/// Speculative decoding: the draft sources, their tree and its budget, and how the target verifies draft tokens.
struct DraftSettings {
    std::string list = "none";    // the list of sources as it was given, for messages
    bool automatic = false;       // list `auto`: a source that is missing is left out, not an error
    draft::DraftOptions options;  // no sources: plain decoding
    // Returns the draft model for the target model at that path; an empty path if the target has none. Called only if
    // `model` is among the sources. Unset: no target has one.
    std::function<std::filesystem::path(const std::filesystem::path& target)> find_model;
    VerifyRule verify = VerifyRule::Exact;
    // Set where the sources are chosen for a target: all of it stays on one device beside them, so that its MTP head
    // uses its LM head instead of a copy.
    bool lm_head_of_target = false;
    std::optional<ViewType> view_type;  // --view-type; nothing: auto
    std::int64_t view_percent = 0;      // --kv-budget P%: of the context; 0: options.view.budget_tokens, or planned
};

/// Returns a description for messages: "context+suffix, at most 64 nodes a pass", or "none".
[[nodiscard]] std::string describe_draft(const DraftSettings& draft);

/// The sampling options that were given; the others follow from the model's files or are built in.
struct SamplingSettings {
    std::optional<double> temperature;
    std::optional<std::int64_t> top_k;
    std::optional<double> top_p;
    std::optional<double> min_p;
    std::optional<double> repeat_penalty;
    std::optional<std::int64_t> repeat_window;
    std::optional<double> presence_penalty;
    std::optional<double> frequency_penalty;
    std::optional<std::vector<TokenBias>> bias;
    bool ignore_end = false;            // end tokens are never sampled
    std::optional<std::uint64_t> seed;  // no value: a random one
};

/// Returns the biases as text, ID=BIAS for each token: "15043=1,2=-inf", or "none".
[[nodiscard]] std::string logit_bias_text(const std::vector<TokenBias>& bias);
/// Returns `options` with a bias that forbids each of `end_tokens`.
[[nodiscard]] SamplerOptions without_end_tokens(SamplerOptions options, std::span<const TokenId> end_tokens);
/// Throws RequestError if a bias is for a token that is not in a vocabulary of `vocab` tokens.
void check_logit_bias(const SamplerOptions& options, std::int64_t vocab);

/// Which chat template renders a prompt.
enum class TemplateChoice : std::uint8_t {
    Automatic,  // the model's own, if it has one
    None,       // --no-template
    Named,      // --template
};

/// The template of a prompt, and its variables.
struct TemplateSettings {
    TemplateChoice choice = TemplateChoice::Automatic;
    std::string name{};                  // if Named: the name or file as it was given
    std::optional<ChatTemplate> file{};  // if `name` is a file: its content
    TemplateArguments arguments{};
    bool offers_tools =
        false;  // whether the conversation offers tools: of several templates of a model, that for tools
    std::string arguments_from = "--template-arg";  // option or variable that gave `arguments`
    bool arguments_demanded = false;  // whether arguments without effect are an error; else they are ignored
    std::optional<std::string> system{};
    bool system_demanded = false;  // whether a system text without effect is an error; else it is ignored
};

}  // namespace slipstream::tools
