// random_model: writes a GGUF file of random weights for a shape and a type, if a real model of that size is not
// available.
//
//   random_model --shape llama3.1-8b --type Q4_K_M --output F.gguf [--seed N] [--threads N] [--layers N] [--context N]
//   random_model --list
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "tools/base/usage_error.h"
#include "tools/dev/random_model_file.h"
#include "tools/machine/host.h"
#include "tools/terminal/console.h"
#include "tools/terminal/signals.h"

namespace slipstream::tools {

namespace {

struct Request {
    RandomModelOptions options;
    std::string output;
    bool list = false;
};

std::int64_t parse_number(std::string_view text, std::string_view option, std::int64_t least, std::int64_t most) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < least || value > most)
        throw UsageError(fmt::format("{} {}: not a number from {} to {}; give one", option, text, least, most));
    return value;
}

std::string joined(const std::vector<std::string_view>& names) {
    return fmt::format("{}", fmt::join(names, ", "));
}

Request parse(const std::vector<std::string>& arguments) {
    Request request;
    request.options.n_threads = default_threads();
    std::string shape;
    std::string type;
    std::int64_t n_layers = 0;
    std::int64_t context_tokens = 0;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        const std::string& option = arguments[i];
        if (option == "--list") {
            request.list = true;
            continue;
        }
        const std::vector<std::string_view> known{"--shape",   "--type",   "--output", "--seed",
                                                  "--threads", "--layers", "--context"};
        if (std::find(known.begin(), known.end(), option) == known.end())
            throw UsageError(fmt::format("unknown option {}; known: --list, {}", option, joined(known)));
        if (i + 1 == arguments.size()) throw UsageError(fmt::format("{} has no value; give one", option));
        const std::string& value = arguments[++i];
        if (option == "--shape") shape = value;
        if (option == "--type") type = value;
        if (option == "--output") request.output = value;
        if (option == "--seed")
            request.options.seed = static_cast<std::uint64_t>(parse_number(value, option, 0, INT64_MAX));
        if (option == "--threads") request.options.n_threads = static_cast<int>(parse_number(value, option, 1, 1024));
        if (option == "--layers") n_layers = parse_number(value, option, 1, 1024);
        if (option == "--context") context_tokens = parse_number(value, option, 1, 1 << 24);
    }
    if (request.list) return request;
    const auto config = find_shape(shape, n_layers);
    if (!config) throw UsageError(fmt::format("--shape '{}': unknown; known: {}", shape, joined(shape_names())));
    const auto quantisation = find_quantisation(type);
    if (!quantisation)
        throw UsageError(fmt::format("--type '{}': unknown; known: {}", type, joined(quantisation_names())));
    if (request.output.empty()) throw UsageError("--output is missing: where the file goes");
    request.options.config = *config;
    request.options.quantisation = *quantisation;
    if (context_tokens > 0) request.options.config.context_tokens = context_tokens;
    return request;
}

void run(const Request& request) {
    if (request.list) {
        fmt::print("shapes: {}\ntypes: {}\n", joined(shape_names()), joined(quantisation_names()));
        return;
    }
    const auto began = std::chrono::steady_clock::now();
    write_random_model(request.output, request.options);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    const double gb = static_cast<double>(random_model_bytes(request.options)) * 1e-9;
    Console(Verbosity::Normal, TerminalUse::NoColors, std::nullopt)
        .draw(fmt::format("{}: {} {}, {} layers, {:.2f} GB in {:.1f} s\n", request.output, request.options.config.name,
                          quantisation_name(request.options.quantisation), request.options.config.n_layers(), gb,
                          seconds));
}

}  // namespace

}  // namespace slipstream::tools

int main(int argc, char** argv) {
    using namespace slipstream;
    try {
        tools::watch_signals();
        tools::run(tools::parse({argv + 1, argv + argc}));
        return 0;
    } catch (const Interrupted&) {
        return tools::signal_exit_code();
    } catch (const tools::UsageError& error) {
        tools::report_failure("random_model", error.what());
        return 2;
    } catch (const std::exception& error) {
        tools::report_failure("random_model", error.what());
        return 1;
    }
}
