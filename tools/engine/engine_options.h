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
#include "runtime/loop/sampling/sampler.h"
#include "runtime/model/model_shard.h"
#include "runtime/text/chat/prompt_template.h"
#include "tools/machine/compute_device.h"

namespace slipstream::tools {

/// Of one device.
struct DeviceLimits {
    std::optional<std::size_t>
        memory_bytes;                    // not given: a CPU has no limit and computes in place, a card what is free
    double link_bytes_per_second = 0.0;  // 0: not throttled
    bool operator==(const DeviceLimits&) const = default;
};

/// Memory, links, and how several devices share the model.
struct OffloadOptions {
    std::vector<DeviceLimits> devices{};        // in the order of --devices; empty: nothing is said
    std::size_t host_memory = 0;                // most that streamed weights and KV may take of the host
    std::optional<std::size_t> ring;            // of each device; not given: planned
    std::optional<std::int64_t> expect_tokens;  // of a pass, to plan for
    std::optional<SplitKind> split{};           // of the model among several devices; not given: layers
    std::string split_where{};                  // who said so, for messages: "--split"; empty: nobody
    std::vector<double> shares{};               // of it, by device; empty: planned
    std::string shares_where{};

    [[nodiscard]] bool splits_matrices() const { return split == SplitKind::Tensor; }

    [[nodiscard]] DeviceLimits limits(std::size_t device) const {
        return device < devices.size() ? devices[device] : DeviceLimits{};
    }
};

/// Whether files and KV are checked against the memory of the host; a plan checks it by itself.
enum class HostMemoryCheck : std::uint8_t { No, Yes };

/// Where the model computes, and for which context.
struct ComputeOptions {
    std::optional<std::int64_t> context_tokens;
    std::optional<DType> kv_dtype;
    int n_threads = 1;
    std::vector<DeviceChoice> devices;  // at least one
    OffloadOptions offload;             // of those
    // Where a split that was planned is kept, beside the tables; nothing: nowhere.
    std::optional<std::filesystem::path> splits_folder{};
    HostMemoryCheck host_memory = HostMemoryCheck::Yes;
};

/// Of the host's threads those of each CPU device: all where the devices compute in turn, else its part of them.
[[nodiscard]] int device_threads(int n_threads, std::size_t n_devices, SplitKind split);

/// By the tokens that plain decoding would give, or by their distribution.
enum class VerifyRule : std::uint8_t { Exact, Rejection };

/// Who drafts: the sources, their tree and its budget, and how the target verifies what they propose.
struct DraftSettings {
    std::string list = "none";    // the list of sources as it was given, for messages
    bool automatic = false;       // `auto`: what is not there is left out, not an error
    draft::DraftOptions options;  // no sources: plain decoding
    // Returns the draft model for the target model at that path; an empty path if the target has none. Called only if
    // `model` is among the sources. Unset: no target has one.
    std::function<std::filesystem::path(const std::filesystem::path& target)> find_model;
    VerifyRule verify = VerifyRule::Exact;
};

/// "context+suffix, merged tree of at most 64 nodes": for people.
[[nodiscard]] std::string describe_draft(const DraftSettings& draft);

/// How tokens are drawn, as far as it was asked for; the rest is for the model's files to say, or built in.
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
    bool ignore_end = false;            // the end tokens never come
    std::optional<std::uint64_t> seed;  // a random one if a random one was asked for
};

/// "15043=1,2=-inf", or "none".
[[nodiscard]] std::string logit_bias_text(const std::vector<TokenBias>& bias);
/// `options` under which none of `end_tokens` ever comes.
[[nodiscard]] SamplerOptions without_end_tokens(SamplerOptions options, std::span<const TokenId> end_tokens);
/// Throws RequestError where a bias is of no token of a vocabulary.
void check_logit_bias(const SamplerOptions& options, std::int64_t vocab);

/// Who names the template of a prompt.
enum class TemplateChoice : std::uint8_t {
    Automatic,  // the model's own where it has one
    None,       // --no-template
    Named,      // --template
};

/// Which template a prompt goes through, and with which variables.
struct TemplateSettings {
    TemplateChoice choice = TemplateChoice::Automatic;
    std::string name{};                  // of TemplateChoice::Named, as it was given
    std::optional<ChatTemplate> file{};  // where that is a file
    TemplateArguments arguments{};
    std::string arguments_from = "--template-arg";  // who gave them, for messages
    bool arguments_demanded = false;                // what would have no effect is refused then, else passed over
    std::optional<std::string> system{};
    bool system_demanded = false;  // the same
};

}  // namespace slipstream::tools
