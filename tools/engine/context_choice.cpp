#include "tools/engine/context_choice.h"

#include <algorithm>

#include <fmt/format.h>

#include "kernels/attention.h"
#include "kernels/base/error.h"
#include "runtime/model/model.h"
#include "runtime/model/rope.h"
#include "runtime/plan/pass_items.h"
#include "tools/base/amounts.h"

namespace slipstream::tools {

namespace {

constexpr std::size_t kProgramBytes = 100U << 20;  // reserved for activations, vocabulary, the program itself

}  // namespace

ContextChoice choose_context(const ModelConfig& config, DType kv_dtype, std::optional<std::int64_t> asked,
                             std::size_t file_bytes, const HostMemory& memory) {
    const std::int64_t wanted = asked.value_or(config.context_tokens);
    if (memory.total_bytes == 0) return {wanted, false};
    if (file_bytes > memory.total_bytes)
        throw OutOfBudget(
            fmt::format("the model's files hold {}, this machine's memory {}; take a smaller or more strongly "
                        "quantised model",
                        size_text(file_bytes), size_text(memory.total_bytes)));
    const std::size_t taken = file_bytes + kProgramBytes;
    const std::size_t room = memory.available_bytes - std::min(memory.available_bytes, taken);
    const auto fits = [&](std::int64_t tokens) { return kv_bytes(config, kv_dtype, tokens) <= room; };
    if (fits(wanted)) return {wanted, false};
    std::int64_t most = 0;  // the largest number of whole KV chunks that fits, in tokens
    for (std::int64_t too_many = wanted / kChunkTokens + 1; most / kChunkTokens + 1 < too_many;) {
        const std::int64_t middle = most / kChunkTokens + (too_many - most / kChunkTokens) / 2;
        if (fits(middle * kChunkTokens)) {
            most = middle * kChunkTokens;
        } else {
            too_many = middle;
        }
    }
    if (asked || most == 0)
        throw OutOfBudget(fmt::format("a context of {} takes {} of KV cache, {} are free beside the model{}",
                                      counted(wanted, "token"), size_text(kv_bytes(config, kv_dtype, wanted)),
                                      size_text(room),
                                      most > 0 ? fmt::format("; use --ctx {} or less", most) : "; free some memory"));
    return {most, true};
}

std::string reduction_note(const ModelConfig& config, std::int64_t tokens) {
    const bool changes = rope_frequencies(config, config.context_tokens) != rope_frequencies(config, tokens);
    return fmt::format("the model's context is {}; memory holds {}, which is what it gets{}",
                       counted(config.context_tokens, "token"), tokens,
                       changes ? fmt::format(", and its {} rope scaling is fixed for that length, which changes the "
                                             "text; give --ctx to make it reproducible",
                                             rope_scaling_name(config.ropes.front().scaling.kind))
                               : " (--ctx)");
}

}  // namespace slipstream::tools
