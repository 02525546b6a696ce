// slipstream-lab random-model: writes a GGUF file of random weights for a shape and a type, if a real model of that
// size is not available.
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/formats/family.h"
#include "tools/base/usage_error.h"
#include "tools/lab/lab.h"
#include "tools/lab/random_model/random_model_file.h"
#include "tools/lab/random_model/random_model_header.h"
#include "tools/options/compute_options.h"
#include "tools/options/settings.h"
#include "tools/terminal/console.h"
#include "tools/terminal/file_output.h"

namespace slipstream::tools {

namespace {

struct Request {
    RandomModelOptions options;
    std::string output;
    bool list = false;
};

std::string joined(const std::vector<std::string_view>& names) {
    return fmt::format("{}", fmt::join(names, ", "));
}

Request read_request(const Settings& settings) {
    Request request;
    request.list = settings.flag("list");
    if (request.list) return request;
    for (const std::string_view name : {"shape", "type"})
        if (settings.find(name) == nullptr)
            throw UsageError(fmt::format("--{} is missing; --list prints the known ones", name));
    const std::string shape = settings.text("shape").value_or("");
    const std::string type = settings.text("type").value_or("");
    const auto config = find_shape(shape, settings.integer("layers", {1, 1024}).value_or(0));
    if (!config)
        throw UsageError(fmt::format("--shape: unknown shape '{}'; known shapes: {}", shape, joined(shape_names())));
    validate(*config);
    const auto quantisation = find_quantisation(type);
    if (!quantisation)
        throw UsageError(fmt::format("--type: unknown type '{}'; known types: {}", type, joined(quantisation_names())));
    const auto output = settings.path("output");
    if (!output) throw UsageError("--output is missing: where the file goes");
    request.output = *output;
    request.options.n_threads = thread_setting(settings);
    request.options.seed = static_cast<std::uint64_t>(
        settings.integer("seed", {0, INT64_MAX}).value_or(static_cast<std::int64_t>(request.options.seed)));
    request.options.config = *config;
    request.options.quantisation = *quantisation;
    request.options.has_head = settings.flag("mtp-head");
    if (request.options.has_head && gguf_family(*config).head == HeadNaming::None)
        throw UsageError(fmt::format(
            "--mtp-head: MTP heads are supported for the qwen3.5, qwen3.6, qwen3.8, qwen3-coder-next and glm-4.5-air "
            "shapes only; {} has none",
            shape));
    request.options.zipf_routers = settings.flag("zipf-routers");
    if (request.options.zipf_routers && gguf_family(*config).gguf_names[TensorRole::RouterBias].empty())
        throw UsageError(
            fmt::format("--zipf-routers: the routers of {} have no biases; those of the gpt-oss shapes have", shape));
    if (const auto context_tokens = settings.integer("context", {1, 1 << 24}))
        request.options.config.context_tokens = *context_tokens;
    return request;
}

int run_random_model(CommandContext& context) {
    const Request request = read_request(context.settings);
    if (request.list) {
        TextOutput(std::nullopt)
            .write(fmt::format("shapes: {}\ntypes: {}\n", joined(shape_names()), joined(quantisation_names())));
        return 0;
    }
    const auto began = std::chrono::steady_clock::now();
    write_random_model(request.output, request.options);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    const double gb = static_cast<double>(random_model_bytes(request.options)) * 1e-9;
    context.console.note(fmt::format("{}: {} {}, {} layers, {:.2f} GB in {:.1f} s", request.output,
                                     request.options.config.name, quantisation_name(request.options.quantisation),
                                     request.options.config.n_layers(), gb, seconds));
    return 0;
}

}  // namespace

CommandSpec random_model_command() {
    return {.name = "random-model",
            .summary = "Write a GGUF file of random weights, where a real model of that size is not at hand",
            .details = "Speed and memory are those of a real model of this shape; its texts mean nothing.",
            .example = "slipstream-lab random-model --list",
            .options = {{"list", "--list", "", "Print the known shapes and types"},
                        {"shape", "--shape", "NAME", "Shape, such as llama3.1-8b"},
                        {"type", "--type", "TYPE", "Type of the weights, such as Q4_K_M"},
                        {"output", "-o,--output", "F", "The file to write", OptionRole::OutputFile},
                        {"seed", "-s,--seed", "N", "The same seed gives the same file"},
                        {"threads", "-t,--threads", "N", "CPU threads [physical cores]"},
                        {"mtp-head", "--mtp-head", "", "Add an MTP head (multi-token prediction), for --draft mtp"},
                        {"zipf-routers", "--zipf-routers", "",
                         "Routers whose biases make them choose experts roughly by Zipf's law, the first most often"},
                        {"layers", "--layers", "N", "Only the first N layers [all]"},
                        {"context", "--context", "N", "Context length that the file names [the shape's]"}},
            .run = run_random_model};
}

}  // namespace slipstream::tools
