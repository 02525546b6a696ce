#include "tools/served_model.h"

#include <chrono>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "tools/console.h"
#include "tools/host.h"
#include "tools/signals.h"

namespace slipstream::tools {

ComputeOptions compute_options(const CommandContext& context) {
    check_devices(context.settings);
    return {context_setting(context.settings), kv_type_setting(context.settings), thread_setting(context.settings)};
}

ServedModel open_model(const std::filesystem::path& path) {
    ServedModel served;
    served.path = path;
    served.files = ModelFiles::open(path);
    return served;
}

void load_model(ServedModel& served, const ComputeOptions& options, CommandContext& context) {
    const auto began = std::chrono::steady_clock::now();
    const ModelConfig& config = served.files->config();
    const DType kv_dtype = options.kv_dtype.value_or(config.kv_dtype);
    const ContextChoice choice =
        choose_context(config, kv_dtype, options.context_tokens, served.files->total_bytes(), host_memory());
    if (choice.reduced) context.console.note(reduction_note(config, choice.tokens));
    if (choice.tokens > config.context_tokens)
        context.console.note(fmt::format("the model was made for {}; with --ctx {} it may lose its way beyond them",
                                         counted(config.context_tokens, "token"), choice.tokens));

    CpuDeviceOptions device_options;
    device_options.n_threads = options.n_threads;
    served.device = std::make_unique<CpuDevice>(device_options);
    const Settings& settings = context.settings;
    context.console.detail(settings.describe("devices", "cpu", "built in"));
    context.console.detail(settings.describe("threads", fmt::format("{}", options.n_threads),
                                             "physical cores, or what the control group allows"));
    context.console.detail(settings.describe("ctx", fmt::format("{}", choice.tokens),
                                             choice.reduced ? "what fits into memory" : "the model's own"));
    context.console.detail(settings.describe("kv-type", dtype_name(kv_dtype), "the model's own"));
    {
        ProgressBar bar(context.console, "loading");
        const auto on_progress = [&](std::size_t done, std::size_t total) {
            throw_if_interrupted();
            bar.update(static_cast<double>(done), static_cast<double>(total),
                       fmt::format("{} of {}", size_text(done), size_text(total)));
        };
        served.model = std::make_unique<Model>(
            *served.files, *served.device,
            LoadOptions{.context_tokens = choice.tokens, .kv_dtype = kv_dtype, .on_progress = on_progress});
    }
    served.load_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    if (!served.device->huge_pages_come_quickly())
        context.console.detail("the system gives huge pages slowly (fragmented memory): the weights lie on small ones");
    context.console.detail(fmt::format(
        "{}: {} {}, {}, {} kernels, {} of KV cache, loaded in {:.2f} s", served.path.string(), served.files->format(),
        architecture_name(config.architecture), size_text(served.files->total_bytes()),
        served.device->instruction_form(), size_text(kv_bytes(config, kv_dtype, choice.tokens)), served.load_seconds));
}

void check_tokens(std::span<const TokenId> tokens, const ModelConfig& config) {
    for (const TokenId token : tokens)
        if (token < 0 || token >= config.vocab)
            throw FormatError(
                fmt::format("token {} is not in the model's vocabulary of {}; tokenizer and weights do not "
                            "belong together",
                            token, config.vocab));
}

}  // namespace slipstream::tools
