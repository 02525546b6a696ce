// bench_card: measures what a GPU does, compared with its peak rates: copies over its link, its memory, matmul of every
// weight type, attention, the small ops, kernel launches.
//
//   bench_card [--devices cuda:N] [--seconds S] [--json F] [--sm-mhz N] [--tokens n,n,...] [--types T,T,...]
//              [--rows M] [--cols K] [--matrices N] [--weights ring|registers]
//
// --seconds: measurements that have not begun by then are skipped and counted. --json: a line per figure, written at
// once. --weights: how passes of few tokens read weights; `registers` is the older kernel, for comparison [ring].
// --sm-mhz: clock of the multiprocessors (clocks.max.sm of nvidia-smi), for the peak rate of the tensor cores.
#include <charconv>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "tools/base/text_parts.h"
#include "tools/base/usage_error.h"
#include "tools/dev/bench_card_runs.h"
#include "tools/machine/compute_device.h"
#include "tools/machine/host.h"
#include "tools/terminal/console.h"
#include "tools/terminal/signals.h"

namespace slipstream::tools {

namespace {

struct Request {
    std::optional<std::size_t> card;  // none: the first one that is supported
    double seconds = 600.0;
    double sm_hertz = 0.0;
    std::optional<std::string> json;
    bool weights_by_registers = false;
    CardSizes sizes;
};

std::int64_t parse_number(std::string_view text, std::string_view option) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > (1 << 24))
        throw UsageError(fmt::format("{} {}: not a number from 1 to {}; give one", option, text, 1 << 24));
    return value;
}

DType parse_type(std::string_view text) {
    for (int i = 0; i < kDTypeCount; ++i)
        if (dtype_name(static_cast<DType>(i)) == text) return static_cast<DType>(i);
    throw UsageError(fmt::format("--types {}: unknown; give names such as BF16 or Q4_K", text));
}

std::size_t parse_card(std::string_view text) {
    constexpr std::string_view kPrefix = "cuda:";
    std::size_t card = 0;
    if (text.starts_with(kPrefix)) {
        const char* const end = text.data() + text.size();
        const auto [read, error] = std::from_chars(text.data() + kPrefix.size(), end, card);
        if (error == std::errc() && read == end) return card;
    }
    throw UsageError(fmt::format("--devices {}: one GPU is measured; give cuda:0, cuda:1, ...", text));
}

Request parse(const std::vector<std::string>& arguments) {
    Request request;
    CardSizes& sizes = request.sizes;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        const std::string& option = arguments[i];
        if (i + 1 == arguments.size())
            throw UsageError(fmt::format("{}: unknown, or without its value; see the head of bench_card.cpp", option));
        const std::string& value = arguments[++i];
        if (option == "--devices") {
            request.card = parse_card(value);
        } else if (option == "--seconds") {
            request.seconds = static_cast<double>(parse_number(value, option));
        } else if (option == "--sm-mhz") {
            request.sm_hertz = 1e6 * static_cast<double>(parse_number(value, option));
        } else if (option == "--json") {
            request.json = value;
        } else if (option == "--tokens") {
            sizes.first_tokens.clear();
            sizes.other_tokens.clear();
            for (const std::string_view n : split_list(value)) sizes.first_tokens.push_back(parse_number(n, option));
        } else if (option == "--types") {
            sizes.first_types.clear();
            sizes.other_types.clear();
            for (const std::string_view type : split_list(value)) sizes.first_types.push_back(parse_type(type));
        } else if (option == "--rows") {
            sizes.rows = parse_number(value, option);
        } else if (option == "--cols") {
            sizes.cols = parse_number(value, option);
        } else if (option == "--weights") {
            if (value != "ring" && value != "registers")
                throw UsageError(fmt::format("--weights {}: give ring or registers", value));
            request.weights_by_registers = value == "registers";
        } else if (option == "--matrices") {
            sizes.n_matrices = parse_number(value, option);
        } else {
            throw UsageError(fmt::format("{}: unknown option; see the head of bench_card.cpp", option));
        }
    }
    for (const std::vector<DType>* types : {&sizes.first_types, &sizes.other_types})
        for (const DType type : *types)
            if (sizes.cols % dtype_info(type).block_elements != 0)
                throw UsageError(fmt::format("--cols {}: {} has blocks of {}; give a multiple, or other --types",
                                             sizes.cols, dtype_name(type), dtype_info(type).block_elements));
    return request;
}

// Returns the named GPU, or the first one that is supported. Throws RequestError if there is none.
std::size_t choose_card(const CudaCards& found, const std::optional<std::size_t>& named) {
    if (found.module == nullptr) throw RequestError(fmt::format("no GPU to measure: {}", found.why_not));
    if (named) {
        if (!found.serves(*named))
            throw RequestError(fmt::format("--devices cuda:{}: {}", *named, found.why_not_card(*named)));
        return *named;
    }
    for (std::size_t card = 0; card < found.cards.size(); ++card)
        if (found.serves(card)) return card;
    throw RequestError(fmt::format("no GPU to measure: {}", found.why_not));
}

void run(const Request& request) {
    const auto deadline =
        std::chrono::steady_clock::now() +
        std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(request.seconds));
    const CudaCards found = cuda_cards();
    const std::size_t card = choose_card(found, request.card);
    CudaDeviceOptions options;
    options.ordinal = static_cast<int>(card);
    options.n_threads = default_threads();
    options.weights_by_registers = request.weights_by_registers;
    CudaDevice device(*found.module, options);
    const cuda::DeviceProperties& properties = device.properties();
    const std::unique_ptr<Stream> stream = device.make_stream(StreamKind::Compute);
    CardReport report(request.json);
    report.begin(properties, {.memory_bytes_per_second = properties.memory_bytes_per_second,
                              .tensor_flops = tensor_flops_per_cycle(properties.sm) * properties.n_multiprocessors *
                                              request.sm_hertz});
    CardClock clock(device, *stream, request.sizes.memory_bytes);
    CardBench bench{.device = device,
                    .stream = *stream,
                    .sizes = request.sizes,
                    .report = report,
                    .clock = clock,
                    .deadline = deadline};
    run_card_bench(bench);
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
        tools::report_failure("bench_card", error.what());
        return 2;
    } catch (const std::exception& error) {
        tools::report_failure("bench_card", error.what());
        return 1;
    }
}
