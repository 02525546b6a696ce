#include "tools/engine/engine_options.h"

#include <algorithm>
#include <limits>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/base/error.h"

namespace slipstream::tools {

int device_threads(int n_threads, std::size_t n_devices, SplitKind split) {
    return split == SplitKind::Layers ? n_threads : std::max(1, n_threads / static_cast<int>(n_devices));
}

ExpertMisses expert_misses(DeviceKind device, std::optional<ExpertMisses> experts) {
    return device == DeviceKind::Cuda ? ExpertMisses::Copy : experts.value_or(ExpertMisses::Cpu);
}

std::string describe_draft(const DraftSettings& draft) {
    if (draft.options.sources.empty()) return "none";
    std::vector<std::string_view> names;
    for (const draft::SourceKind kind : draft.options.sources) names.push_back(draft::source_name(kind));
    return fmt::format("{}, at most {} nodes a pass{}", fmt::join(names, "+"), draft.options.max_budget,
                       draft.options.adapt_budget ? ", fewer where more would not pay" : "");
}

std::string logit_bias_text(const std::vector<TokenBias>& bias) {
    std::string text;
    for (const TokenBias& one : bias) text += fmt::format("{}{}={}", text.empty() ? "" : ",", one.id, one.bias);
    return text.empty() ? "none" : text;
}

SamplerOptions without_end_tokens(SamplerOptions options, std::span<const TokenId> end_tokens) {
    for (const TokenId id : end_tokens) options.bias.push_back({id, -std::numeric_limits<float>::infinity()});
    return options;
}

void check_logit_bias(const SamplerOptions& options, std::int64_t vocab) {
    for (const TokenBias& bias : options.bias)
        if (bias.id >= vocab)
            throw RequestError(
                fmt::format("--logit-bias: {} is not a token of this model; its ids are 0 to {}", bias.id, vocab - 1));
}

}  // namespace slipstream::tools
