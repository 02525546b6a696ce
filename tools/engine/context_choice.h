// Chooses the context length: the requested one, else the model's own, reduced if memory is short.
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
    bool reduced = false;  // `tokens` is less than the model's own context, since memory is short
};
/// Returns the context to serve: `asked`, or else the model's own, reduced in KV chunks (256 tokens) to what fits into
/// memory beside `file_bytes` of weights. memory.total_bytes of 0 means unknown and is not checked. Throws OutOfBudget
/// if the model, the requested context, or any context at all does not fit.
[[nodiscard]] ContextChoice choose_context(const ModelConfig& config, DType kv_dtype, std::optional<std::int64_t> asked,
                                           std::size_t file_bytes, const HostMemory& memory);

/// Returns the note for the user if memory reduced the context to `tokens`. If the model's rope scaling depends on the
/// context (dynamic and longrope), the note says that the text changes with it.
[[nodiscard]] std::string reduction_note(const ModelConfig& config, std::int64_t tokens);

}  // namespace slipstream::tools
