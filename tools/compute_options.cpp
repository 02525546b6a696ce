#include "tools/compute_options.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "kernels/attention.h"
#include "kernels/base/error.h"
#include "runtime/model.h"
#include "tools/console.h"
#include "tools/model_lookup.h"
#include "tools/usage_error.h"

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
    return {{"devices", "--devices", "LIST", "Devices that compute: auto, cpu [auto]"},
            {"threads", "-t,--threads", "N", "CPU threads [physical cores]"}};
}

std::filesystem::path choose_model(const CommandContext& context) {
    const auto model = context.settings.text("model");
    const std::filesystem::path bundled = bundled_model(program_folder());
    std::filesystem::path path = bundled;
    if (model) {
        const auto stores = [&] { return find_models(context.settings.environment(), bundled); };
        path = resolve_model(*model, stores);
    } else if (bundled.empty()) {
        throw RequestError(
            fmt::format("no -m was given, and the bundled model is not where it belongs beside {}; name a model",
                        program_folder().string()));
    }
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
    return static_cast<int>(settings.integer("threads", {1, 1024}).value_or(physical_cores()));
}

void check_devices(const Settings& settings) {
    const Setting* setting = settings.find("devices");
    if (setting == nullptr) return;
    const std::string_view list = setting->values.back();
    if (list == "auto" || list == "cpu") return;
    for (std::size_t begin = 0; begin <= list.size();) {
        const std::size_t end = std::min(list.find(',', begin), list.size());
        const std::string_view device = list.substr(begin, end - begin);
        const bool is_card = device.starts_with("cuda:") && device.size() > 5 &&
                             device.find_first_not_of("0123456789", 5) == std::string_view::npos;
        if (device != "cpu" && !is_card)
            throw UsageError(fmt::format("{}: auto, cpu or cuda:N expected, found '{}'", setting->where, device));
        begin = end + 1;
    }
    if (list.find("cuda:") != std::string_view::npos)
        throw RequestError(
            fmt::format("{} {}: this build has no CUDA backend; use --devices cpu", setting->where, list));
    throw RequestError(
        fmt::format("{} {}: several devices are not served yet; use --devices cpu", setting->where, list));
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
        throw OutOfBudget(fmt::format("a context of {} tokens takes {} of KV cache, {} are free beside the model{}",
                                      wanted, size_text(kv_bytes(config, kv_dtype, wanted)), size_text(room),
                                      most > 0 ? fmt::format("; use --ctx {} or less", most) : "; free some memory"));
    return {most, true};
}

}  // namespace slipstream::tools
