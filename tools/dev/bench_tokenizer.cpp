// bench_tokenizer: measures how fast tokenizers load, and how fast they encode and decode a text, on one thread.
//
//   bench_tokenizer --file TEXT [--runs N] [--json] TOKENIZER...
//
// TOKENIZER is a value of `slipstream tokenize -m`: tokenizer.json, tokenizer.model, vocab.json with merges.txt beside
// it, a GGUF file, or a directory. Each run loads the tokenizer anew and encodes the whole text in one call, so that
// nothing cached in an earlier run helps. Times are CPU times of the thread, which other processes affect less than the
// wall clock: the best run, then the median. MB are 10^6 bytes. It is an error if decoding the ids does not return the
// text.

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/text/tokenizer/tokenizer.h"
#include "tools/base/json_object.h"
#include "tools/machine/machine_peaks.h"
#include "tools/machine/tokenizer_files.h"
#include "tools/terminal/console.h"
#include "tools/terminal/file_output.h"

namespace slipstream {
namespace {

struct Options {
    std::filesystem::path file;
    std::vector<std::filesystem::path> tokenizers;
    int runs = 7;
    bool json = false;
};

int parse_runs(std::string_view text) {
    int runs = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), runs);
    if (error != std::errc() || end != text.data() + text.size() || runs < 1 || runs > 1000)
        throw RequestError(fmt::format("--runs {}: not a number from 1 to 1000; give one", text));
    return runs;
}

Options parse_options(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        const std::string_view argument = argv[i];
        if (argument == "--json") {
            options.json = true;
        } else if (!argument.starts_with("--")) {
            options.tokenizers.emplace_back(argument);
        } else if (i + 1 == argc || (argument != "--file" && argument != "--runs")) {
            throw RequestError(
                fmt::format("{}: unknown, or without its value; see the head of bench_tokenizer.cpp", argument));
        } else if (argument == "--file") {
            options.file = argv[++i];
        } else {
            options.runs = parse_runs(argv[++i]);
        }
    }
    if (options.file.empty() || options.tokenizers.empty())
        throw RequestError("there is nothing to measure; give --file TEXT and at least one tokenizer");
    return options;
}

class Times {
public:
    void add(double seconds) { seconds_.insert(std::ranges::upper_bound(seconds_, seconds), seconds); }
    [[nodiscard]] double best() const { return seconds_.front(); }
    [[nodiscard]] double median() const { return seconds_[seconds_.size() / 2]; }

private:
    std::vector<double> seconds_;
};

struct Figures {
    std::string kind;
    std::size_t n_tokens = 0;
    Times load, encode, decode;
};

Figures measure(const std::filesystem::path& path, const std::string& text, int n_runs) {
    Figures figures;
    const auto now = [] { return busy_seconds(1); };
    for (int run = 0; run < n_runs; ++run) {
        const double begin = now();
        const auto tokenizer = make_tokenizer(tools::find_tokenizer_source(path));
        const double ready = now();
        const std::vector<TokenId> ids = tokenizer->encode(text, SpecialTokens::AsText);
        const double encoded = now();
        const std::string back = tokenizer->decode(ids);
        figures.decode.add(now() - encoded);
        figures.encode.add(encoded - ready);
        figures.load.add(ready - begin);
        figures.kind = tokenizer->kind();
        figures.n_tokens = ids.size();
        if (back != text)
            throw RequestError(
                fmt::format("{}: the text does not come back from its ids; give one that this tokenizer keeps, as "
                            "UTF-8",
                            path.string()));
    }
    return figures;
}

void run(const Options& options) {
    const std::string text = tools::read_bytes(options.file);
    if (text.empty()) throw RequestError(fmt::format("{}: is empty; give a text", options.file.string()));
    const double megabytes = static_cast<double>(text.size()) * 1e-6;
    tools::TextOutput output(std::nullopt);
    if (!options.json)
        output.write(
            fmt::format("{:.2f} MB of text; best of {} runs (median)\n{:>17}  {:>15}  {:>15}  {:>9}  tokenizer\n",
                        megabytes, options.runs, "ready, ms", "encode, MB/s", "decode, MB/s", "tokens"));
    for (const std::filesystem::path& path : options.tokenizers) {
        const Figures figures = measure(path, text, options.runs);
        if (options.json) {
            tools::JsonObject object;
            object.text("tokenizer", path.string());
            object.text("kind", figures.kind);
            object.unsigned_integer("text_bytes", text.size());
            object.unsigned_integer("tokens", figures.n_tokens);
            object.real("load_seconds", figures.load.best());
            object.real("load_seconds_median", figures.load.median());
            object.real("encode_mb_per_s", megabytes / figures.encode.best());
            object.real("encode_mb_per_s_median", megabytes / figures.encode.median());
            object.real("decode_mb_per_s", megabytes / figures.decode.best());
            object.real("decode_mb_per_s_median", megabytes / figures.decode.median());
            output.write(object.to_text(tools::JsonLayout::OneLine));
        } else {
            output.write(fmt::format("{:8.1f} ({:6.1f})  {:6.1f} ({:6.1f})  {:6.1f} ({:6.1f})  {:9}  {}, {}\n",
                                     figures.load.best() * 1e3, figures.load.median() * 1e3,
                                     megabytes / figures.encode.best(), megabytes / figures.encode.median(),
                                     megabytes / figures.decode.best(), megabytes / figures.decode.median(),
                                     figures.n_tokens, path.string(), figures.kind));
        }
    }
}

}  // namespace
}  // namespace slipstream

int main(int argc, char** argv) {
    try {
        slipstream::run(slipstream::parse_options(argc, argv));
        return 0;
    } catch (const std::exception& error) {
        slipstream::tools::report_failure("bench_tokenizer", error.what());
        return 1;
    }
}
