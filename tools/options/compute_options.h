// Options of every command that computes: which model, where, with how many threads, for which context.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "kernels/base/dtype.h"
#include "runtime/model/model_config.h"
#include "tools/machine/host.h"
#include "tools/options/command.h"
#include "tools/options/settings.h"

namespace slipstream::tools {

[[nodiscard]] OptionSpec model_option();
[[nodiscard]] OptionSpec context_option();
[[nodiscard]] OptionSpec kv_type_option();
/// --devices and --threads.
[[nodiscard]] std::vector<OptionSpec> device_options();

/// -m resolved to a path; the bundled model where it is not given. UsageError where it is empty; else throws as
/// resolve_model() does.
[[nodiscard]] std::filesystem::path model_path(const Settings& settings);
/// The same, told under -v.
[[nodiscard]] std::filesystem::path choose_model(const CommandContext& context);

/// --ctx; nothing where it is not given.
[[nodiscard]] std::optional<std::int64_t> context_setting(const Settings& settings);
/// --kv-type; nothing means the model's own. UsageError for a type that is not served.
[[nodiscard]] std::optional<DType> kv_type_setting(const Settings& settings);
/// --threads, else default_threads().
[[nodiscard]] int thread_setting(const Settings& settings);
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
