// slipstream-lab card: measures what a GPU does, compared with its peak rates: copies over its link, its memory, matmul
// of every weight type, attention, the small ops, kernel launches.
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
#include "tools/lab/card/card_runs.h"
#include "tools/lab/lab.h"
#include "tools/lab/lab_settings.h"
#include "tools/machine/compute_device.h"
#include "tools/machine/host.h"
#include "tools/options/settings.h"

namespace slipstream::tools {

namespace {

constexpr Range<std::int64_t> kSizes{1, 1 << 24};

struct Request {
    std::optional<std::size_t> card;  // none: the first one that is supported
    double seconds = 600.0;
    double sm_hertz = 0.0;
    std::optional<std::string> json;
    bool weights_by_registers = false;
    CardSizes sizes;
};

std::size_t card_named(const Setting& setting) {
    const std::string_view text = setting.values.back();
    constexpr std::string_view kPrefix = "cuda:";
    std::size_t card = 0;
    if (text.starts_with(kPrefix)) {
        const char* const end = text.data() + text.size();
        const auto [read, error] = std::from_chars(text.data() + kPrefix.size(), end, card);
        if (error == std::errc() && read == end) return card;
    }
    throw UsageError(
        fmt::format("{}: one GPU is measured, cuda:0, cuda:1, ... expected, found '{}'", setting.where, text));
}

Request read_request(const Settings& settings) {
    Request request;
    CardSizes& sizes = request.sizes;
    if (const Setting* devices = settings.find("devices")) request.card = card_named(*devices);
    request.seconds =
        static_cast<double>(settings.integer("seconds", kSizes).value_or(static_cast<std::int64_t>(request.seconds)));
    request.sm_hertz = 1e6 * static_cast<double>(settings.integer("sm-mhz", kSizes).value_or(0));
    request.json = settings.path("json");
    if (const Setting* tokens = settings.find("tokens")) {
        sizes.first_tokens = number_list(*tokens, kSizes);
        sizes.other_tokens.clear();
    }
    if (const Setting* types = settings.find("types")) {
        sizes.first_types.clear();
        sizes.other_types.clear();
        for (const std::string_view type : split_list(types->values.back()))
            sizes.first_types.push_back(type_named(type, *types));
    }
    sizes.rows = settings.integer("rows", kSizes).value_or(sizes.rows);
    sizes.cols = settings.integer("cols", kSizes).value_or(sizes.cols);
    sizes.n_matrices = settings.integer("matrices", kSizes).value_or(sizes.n_matrices);
    if (const Setting* weights = settings.find("weights")) {
        const std::string& way = weights->values.back();
        if (way != "ring" && way != "registers")
            throw UsageError(fmt::format("{}: ring or registers expected, found '{}'", weights->where, way));
        request.weights_by_registers = way == "registers";
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

void measure(const Request& request) {
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

int run_card(CommandContext& context) {
    measure(read_request(context.settings));
    return 0;
}

}  // namespace

CommandSpec card_command() {
    return {.name = "card",
            .summary = "What a GPU does, beside its peak rates: copies, memory, matmul, attention, launches",
            .details = "The most important figures come first. Each is printed, and written to the file, at once.",
            .example = "slipstream-lab card --seconds 60",
            .options = {{"devices", "--devices", "cuda:N", "The GPU to measure [the first one that is supported]"},
                        {"seconds", "--seconds", "S",
                         "Measurements that have not begun by then are skipped and counted [600]"},
                        {"json", "--json", "F", "Write a line of JSON for each figure", OptionRole::OutputFile},
                        {"sm-mhz", "--sm-mhz", "N",
                         "Clock of the multiprocessors (clocks.max.sm of nvidia-smi), for the peak of tensor cores"},
                        {"tokens", "--tokens", "LIST", "Tokens of a matmul [1 to 1024]"},
                        {"types", "--types", "LIST", "Types of weights [all]"},
                        {"rows", "--rows", "M", "Rows of each matrix [4096]"},
                        {"cols", "--cols", "K", "Columns of each matrix [14336]"},
                        {"matrices", "--matrices", "N", "Matrices that are used in turn [32]"},
                        {"weights", "--weights", "HOW",
                         "How passes of few tokens read weights: ring, or registers, the older kernel [ring]"}},
            .run = run_card};
}

}  // namespace slipstream::tools
