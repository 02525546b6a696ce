// slipstream-lab tokenizers: measures how fast tokenizers load, and how fast they encode and decode a text, on one
// thread.
//
// Each run loads the tokenizer anew and encodes the whole text in one call, so that nothing cached in an earlier run
// helps. Times are CPU times of the thread, which other processes affect less than the wall clock: the best run, then
// the median. MB are 10^6 bytes. It is an error if decoding the ids does not return the text.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/text/tokenizer/tokenizer.h"
#include "tools/base/json_object.h"
#include "tools/base/usage_error.h"
#include "tools/lab/lab.h"
#include "tools/machine/machine_peaks.h"
#include "tools/machine/tokenizer_files.h"
#include "tools/options/settings.h"
#include "tools/terminal/bounded_file.h"
#include "tools/terminal/file_output.h"
#include "tools/terminal/signals.h"

namespace slipstream::tools {

namespace {

struct Options {
    std::filesystem::path file;
    std::vector<std::filesystem::path> tokenizers;
    int runs = 7;
    bool json = false;
};

Options read_options(const Settings& settings) {
    const auto file = settings.path("file");
    if (!file) throw UsageError("--file is missing: the text to encode");
    Options options{.file = *file, .json = settings.flag("json")};
    for (std::string& tokenizer : settings.texts("tokenizers")) options.tokenizers.emplace_back(std::move(tokenizer));
    if (options.tokenizers.empty()) throw UsageError("there is no tokenizer; name at least one");
    options.runs = static_cast<int>(settings.integer("runs", {1, 1000}).value_or(options.runs));
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
        throw_if_interrupted();
        const double begin = now();
        const auto tokenizer = make_tokenizer(find_tokenizer_source(path));
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

int run_tokenizers(CommandContext& context) {
    const Options options = read_options(context.settings);
    const std::string text = read_text(options.file, "--file", kMostCorpusBytes);
    if (text.empty()) throw RequestError(fmt::format("{}: is empty; give a text", options.file.string()));
    const double megabytes = static_cast<double>(text.size()) * 1e-6;
    TextOutput output(std::nullopt);
    if (!options.json)
        output.write(
            fmt::format("{:.2f} MB of text; best of {} runs (median)\n{:>17}  {:>15}  {:>15}  {:>9}  tokenizer\n",
                        megabytes, options.runs, "ready, ms", "encode, MB/s", "decode, MB/s", "tokens"));
    for (const std::filesystem::path& path : options.tokenizers) {
        const Figures figures = measure(path, text, options.runs);
        if (options.json) {
            JsonObject object;
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
            output.write(object.to_text(JsonLayout::OneLine));
        } else {
            output.write(fmt::format("{:8.1f} ({:6.1f})  {:6.1f} ({:6.1f})  {:6.1f} ({:6.1f})  {:9}  {}, {}\n",
                                     figures.load.best() * 1e3, figures.load.median() * 1e3,
                                     megabytes / figures.encode.best(), megabytes / figures.encode.median(),
                                     megabytes / figures.decode.best(), megabytes / figures.decode.median(),
                                     figures.n_tokens, path.string(), figures.kind));
        }
    }
    return 0;
}

}  // namespace

CommandSpec tokenizers_command() {
    return {.name = "tokenizers",
            .summary = "How fast tokenizers load, encode and decode a text",
            .details = "On one thread, by its CPU time: the best run, then the median.",
            .example = "slipstream-lab tokenizers --file README.md --runs 3 tools/demo_model/target",
            .options = {{"tokenizers", "tokenizers", "PATH...",
                         "Paths: tokenizer.json, tekken.json, tokenizer.model, vocab.json, GGUF, directory"},
                        {"file", "-f,--file", "F", "The text", OptionRole::InputFile},
                        {"runs", "--runs", "N", "Runs, each with a tokenizer loaded anew [7]"},
                        {"json", "--json", "", "Print JSON, a line for each tokenizer"}},
            .run = run_tokenizers};
}

}  // namespace slipstream::tools
