#include "tools/options/compute_options.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "kernels/attention.h"
#include "kernels/base/error.h"
#include "runtime/model/model.h"
#include "runtime/model/rope.h"
#include "tools/machine/model_lookup.h"
#include "tools/terminal/console.h"
#include "tools/terminal/usage_error.h"

namespace slipstream::tools {

namespace {

constexpr std::size_t kProgramBytes = 100U << 20;  // activations, vocabulary, the program itself
constexpr std::int64_t kMaxContext = std::int64_t{1} << 30;

}  // namespace

OptionSpec model_option() {
    return {"model", "-m,--model", "PATH",
            "Model: directory, GGUF file, or a name that 'models' lists [the bundled one]"};
}

OptionSpec context_option() {
    return {"ctx", "-c,--ctx,--ctx-size", "N",
            "Context length in tokens; rope is fixed by it [the model's, or what fits]"};
}

OptionSpec kv_type_option() {
    return {"kv-type", "--kv-type", "TYPE",
            "KV cache type: auto, bf16, f16, f32 [auto: the model's; f16 if quantised]"};
}

std::vector<OptionSpec> device_options() {
    return {
        {"devices", "--devices", "LIST", "Device that computes: auto, cpu, cuda:0 [auto: a card where there is one]"},
        {"threads", "-t,--threads", "N", "CPU threads [physical cores, or what the control group allows]"}};
}

std::filesystem::path model_path(const Settings& settings) {
    const auto model = settings.path("model");
    std::filesystem::path bundled = bundled_model(program_folder());
    if (model) return resolve_model(*model, [&] { return find_models(settings.environment(), bundled); });
    if (bundled.empty())
        throw RequestError(
            fmt::format("no -m was given, and the bundled model is not where it belongs beside {}; name a model",
                        program_folder().string()));
    return bundled;
}

std::filesystem::path choose_model(const CommandContext& context) {
    std::filesystem::path path = model_path(context.settings);
    context.console.detail(context.settings.describe("model", path.string(), "the bundled model"));
    return path;
}

std::optional<std::int64_t> context_setting(const Settings& settings) {
    return settings.integer("ctx", {1, kMaxContext});
}

std::optional<DType> kv_type_setting(const Settings& settings) {
    const Setting* setting = settings.find("kv-type");
    if (setting == nullptr || setting->values.back() == "auto") return std::nullopt;
    const std::string& type = setting->values.back();
    if (type == "f16") return DType::F16;
    if (type == "bf16") return DType::BF16;
    if (type == "f32") return DType::F32;
    if (type == "q8" || type == "q8_0")
        throw UsageError(fmt::format(
            "{}: an 8-bit KV cache comes in a later version; auto, bf16, f16 and f32 are served", setting->where));
    throw UsageError(fmt::format("{}: auto, bf16, f16 or f32 expected, found '{}'", setting->where, type));
}

int thread_setting(const Settings& settings) {
    return static_cast<int>(settings.integer("threads", {1, 1024}).value_or(default_threads()));
}

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
    const std::size_t chunk_bytes = kv_bytes(config, kv_dtype, kChunkTokens);
    const std::int64_t most = static_cast<std::int64_t>(room / chunk_bytes) * kChunkTokens;
    if (asked || most == 0)
        throw OutOfBudget(fmt::format("a context of {} takes {} of KV cache, {} are free beside the model{}",
                                      counted(wanted, "token"), size_text(kv_bytes(config, kv_dtype, wanted)),
                                      size_text(room),
                                      most > 0 ? fmt::format("; use --ctx {} or less", most) : "; free some memory"));
    return {most, true};
}

std::string reduction_note(const ModelConfig& config, std::int64_t tokens) {
    const RopeFrequencies own = rope_frequencies(config, config.context_tokens);
    const RopeFrequencies reduced = rope_frequencies(config, tokens);
    const bool changes = own.inverse_frequency != reduced.inverse_frequency || own.magnitude != reduced.magnitude;
    return fmt::format("the model's context is {}; memory holds {}, which is what it gets{}",
                       counted(config.context_tokens, "token"), tokens,
                       changes ? fmt::format(", and its {} rope scaling is fixed for that length, which changes the "
                                             "text; give --ctx to make it reproducible",
                                             rope_scaling_name(config.rope_scaling.kind))
                               : " (--ctx)");
}

}  // namespace slipstream::tools
