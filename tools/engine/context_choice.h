// How long a text may become: what was asked for, or the model's own context, or what of it memory holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "kernels/base/dtype.h"
#include "runtime/model/model_config.h"
#include "tools/machine/host.h"

namespace slipstream::tools {

struct ContextChoice {
    std::int64_t tokens = 0;
    bool reduced = false;  // less than the model's own, for want of memory
};
/// The context to serve: `asked`, or the model's own, or what of it fits into memory beside `file_bytes` of weights, in
/// chunks of 256. Memory of zero bytes is unknown and not checked. Throws OutOfBudget where the model, the asked
/// context, or any context at all does not fit.
[[nodiscard]] ContextChoice choose_context(const ModelConfig& config, DType kv_dtype, std::optional<std::int64_t> asked,
                                           std::size_t file_bytes, const HostMemory& memory);

/// What is said where `tokens` of context were chosen for want of memory, less than the model's own. Where rope is
/// fixed by the context in such a way that the text changes with it (dynamic and longrope scaling), it says so.
[[nodiscard]] std::string reduction_note(const ModelConfig& config, std::int64_t tokens);

}  // namespace slipstream::tools
