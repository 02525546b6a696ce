// slipstream-lab drafts: measures the cost of drafting from tables, without a model: the merged tree of several
// sources, the tree of each source alone, the tree shape of its paper, learning from an accepted path, a commit of 4
// tokens, memory.
//
// All sources of a set first observe the context as one prompt. Each step then grows a tree, follows it along the text,
// as a target that generates exactly this text would accept it, learns from the accepted path, and commits the next 4
// tokens. Rows of Recycling, bigrams and unigrams are counted over the text, since there is no model. --noise:
// candidates are ranked as at temperature 1 with that seed. Times are microseconds, medians and 99th percentiles. The
// first figure of each kind in the table is wall-clock time; "cpu" and "p99" are CPU time of the thread, which other
// processes affect less; "cold": 64 MiB of writes before each measurement have evicted the caches, as a pass of a model
// does. "own" is the time of the paper's tree shape, if a source is alone; "hit" the tokens that a tree would have
// committed; "prompt" microseconds per token.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "draft/path_noise.h"
#include "draft/sources/table_source.h"
#include "draft/tree/tree_builder.h"
#include "kernels/base/error.h"
#include "tools/base/text_parts.h"
#include "tools/base/usage_error.h"
#include "tools/lab/drafts/draft_bench_sources.h"
#include "tools/lab/drafts/draft_bench_text.h"
#include "tools/lab/lab.h"
#include "tools/lab/lab_settings.h"
#include "tools/machine/machine_peaks.h"
#include "tools/options/settings.h"
#include "tools/terminal/file_output.h"
#include "tools/terminal/signals.h"

namespace slipstream::tools {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kCommitTokens = 4;
constexpr std::int64_t kWarmUpSteps = 64;
constexpr std::int64_t kColdSteps = 96;
constexpr std::int64_t kLeastText = 131072;                 // so that the counted tables are the same for all contexts
constexpr std::int64_t kLogitRows = 96;                     // rows of the pass from which Recycling learns
constexpr std::size_t kSweptBytes = std::size_t{64} << 20;  // larger than the caches of a core

struct Options {
    std::optional<std::filesystem::path> file, tokenizer;
    std::int64_t vocab = 32000;
    std::uint64_t seed = 1;
    std::vector<std::int64_t> contexts{4096, 131072};
    std::int64_t budget = 96;
    std::int64_t steps = 512;
    std::vector<std::string> sets;
    std::optional<std::uint64_t> noise;
    bool json = false;
};

constexpr Range<std::int64_t> kSizes{1, 1 << 24};

Options read_options(const Settings& settings) {
    Options options;
    options.json = settings.flag("json");
    if (const auto file = settings.path("file")) options.file = *file;
    if (const auto tokenizer = settings.path("tokenizer")) options.tokenizer = *tokenizer;
    if (options.file.has_value() != options.tokenizer.has_value())
        throw UsageError("--file and --tokenizer: one without the other; give both, or none for made-up text");
    for (const std::string_view name : {"vocab", "seed"})
        if (const Setting* given = settings.on_command_line(name); given != nullptr && options.file)
            throw UsageError(fmt::format("{} has an effect only without --file; remove it", given->where));
    options.vocab = settings.integer("vocab", {2, kSizes.highest}).value_or(options.vocab);
    options.seed = settings.unsigned_integer("seed", "").value_or(options.seed);
    if (const Setting* contexts = settings.find("contexts")) options.contexts = number_list(*contexts, kSizes);
    options.budget = settings.integer("budget", kSizes).value_or(options.budget);
    options.steps = settings.integer("steps", kSizes).value_or(options.steps);
    options.sets = settings.texts("sources");
    if (settings.find("noise") != nullptr) options.noise = settings.unsigned_integer("noise", "");
    if (options.sets.empty())
        options.sets = {"context",
                        "suffix",
                        "lookup",
                        "cacheback",
                        "recycling",
                        "bigram",
                        "unigram",
                        "context,suffix",
                        "context,suffix,cacheback,recycling,bigram",
                        "context,suffix,recycling,bigram,unigram"};
    return options;
}

/// Times of one kind of work, in microseconds, run by run.
class Samples {
public:
    template <typename Work>
    void time(const Work& work) {
        const double cpu_start = busy_seconds(1);
        const Clock::time_point start = Clock::now();
        work();
        const Clock::time_point end = Clock::now();
        cpu_.push_back((busy_seconds(1) - cpu_start) * 1e6);
        wall_.push_back(std::chrono::duration<double, std::micro>(end - start).count());
    }
    [[nodiscard]] double median() const { return quantile(wall_, 0.5); }
    [[nodiscard]] double cpu_median() const { return quantile(cpu_, 0.5); }
    [[nodiscard]] double cpu_p99() const { return quantile(cpu_, 0.99); }
    /// Returns a member of a JSON object; its value is null if nothing was timed.
    [[nodiscard]] std::string json(std::string_view name) const {
        if (wall_.empty()) return fmt::format("\"{}\":null", name);
        return fmt::format("\"{}\":{{\"us\":{:.2f},\"p99_us\":{:.2f},\"cpu_us\":{:.2f},\"cpu_p99_us\":{:.2f}}}", name,
                           median(), quantile(wall_, 0.99), cpu_median(), cpu_p99());
    }

private:
    static double quantile(std::vector<double> values, double q) {
        if (values.empty()) return 0.0;
        const auto place = values.begin() + static_cast<std::ptrdiff_t>(q * static_cast<double>(values.size() - 1));
        std::nth_element(values.begin(), place, values.end());
        return *place;
    }
    std::vector<double> wall_, cpu_;
};

struct Figures {
    Samples tree, shape, learn, commit;
    double nodes = 0.0;     // nodes of a tree; summed over the steps
    double accepted = 0.0;  // tokens that a tree would have committed; summed over the steps
};

/// Shared by all sets and contexts.
struct Workplace {
    const Options& options;
    TextOutput& output;
    BenchText text;
    std::vector<std::byte> swept;
};

class SetBench {
public:
    SetBench(std::string_view names, Workplace& place) : names_(names), place_(place) {
        for (const std::string_view name : split_list(names)) {
            sources_.push_back(make_bench_source(name, place.text, place.options.noise ? 1.0 : 0.0));
            pointers_.push_back(sources_.back().source.get());
        }
        if (place.options.noise) noise_ = draft::PathNoise(*place.options.noise);
    }

    void run(std::int64_t n_context) {
        draft::TreeBuilder builder(pointers_, {}, place_.text.vocab);
        for (draft::TableSource* source : pointers_)
            if (source->name() != "recycling") source->reset();
        n_text_ = n_context;
        Samples fill;
        fill.time([&] { observe({.text = text(), .n_new = n_context}); });
        Figures discarded, warm, cold;
        for (std::int64_t i = 0; i < kWarmUpSteps; ++i) step(builder, discarded);
        for (std::int64_t i = 0; i < place_.options.steps; ++i) step(builder, warm);
        sweep_ = true;
        for (std::int64_t i = 0; i < kColdSteps; ++i) step(builder, cold);
        sweep_ = false;
        print(n_context, fill.median() / static_cast<double>(n_context), warm, cold);
    }

    /// Times how Recycling, when it is alone, learns from the logits of all nodes of a pass.
    void run_logits() {
        const std::int64_t vocab = place_.text.vocab;
        std::vector<float> logits(kLogitRows * vocab);
        std::uint64_t state = place_.options.seed;
        for (float& logit : logits) {
            state = state * 6364136223846793005U + 1442695040888963407U;
            logit = static_cast<float>(state >> 40) * 0x1p-21F;  // 0 to 8
        }
        TokenTree tree;
        tree.reset(0);
        while (tree.size() < kLogitRows) tree.add(kTreeRoot, static_cast<TokenId>(tree.size() % vocab));
        Samples learn;
        for (int i = 0; i < 32; ++i)
            learn.time([&] {
                observe({.text = text(),
                         .n_new = 1,
                         .tree = &tree,
                         .logits = matrix_view(std::as_const(logits).data(), kLogitRows, vocab),
                         .accepted = {&kTreeRoot, 1}});
            });
        place_.output.write(
            place_.options.json
                ? fmt::format(
                      "{{\"bench\":\"draft_logits\",\"sources\":\"{}\",\"rows\":{},\"vocab\":{},\"us\":{:.1f}}}\n",
                      names_, kLogitRows, vocab, learn.median())
                : fmt::format("{:44} learns from {} rows of {} logits in {:.0f} us\n", names_, kLogitRows, vocab,
                              learn.median()));
    }

private:
    [[nodiscard]] std::span<const TokenId> text() const { return std::span(place_.text.tokens).first(n_text_); }

    void observe(const Observation& observation) {
        for (draft::TableSource* source : pointers_) source->observe(observation);
    }

    void sweep() {
        if (!sweep_) return;
        for (std::size_t i = 0; i < place_.swept.size(); i += 64) place_.swept[i] ^= std::byte{1};
    }

    void step(draft::TreeBuilder& builder, Figures& figures) {
        throw_if_interrupted();
        const std::int64_t budget = place_.options.budget;
        tree_.reset(text().back());
        sweep();
        figures.tree.time([&] {
            (void)builder.grow(
                tree_, {.text = text(), .budget = budget, .max_depth = budget - 1, .noise = &noise_, .curve = nullptr});
        });
        // The path that is accepted if the target generates exactly the text.
        const std::span<const TokenId> ahead = std::span(place_.text.tokens).subspan(text().size());
        accepted_.assign(1, kTreeRoot);
        while (const auto child = tree_.child(accepted_.back(), ahead[accepted_.size() - 1]))
            accepted_.push_back(*child);
        figures.nodes += tree_.size();
        figures.accepted += static_cast<double>(accepted_.size());
        sweep();
        figures.learn.time([&] { builder.learn({.accepted = accepted_, .came = ahead.first(accepted_.size())}); });
        if (sources_.size() == 1) {
            scratch_.reset(text().back());
            sweep();
            figures.shape.time([&] {
                sources_.front().tree->propose_shape(
                    scratch_, {.text = text(), .budget = budget, .max_depth = budget - 1, .noise = &noise_});
            });
        }
        // A commit of 4 tokens, whatever was accepted: a chain of the next tokens, all accepted.
        scratch_.reset(text().back());
        accepted_.assign(1, kTreeRoot);
        for (std::size_t i = 0; i + 1 < kCommitTokens; ++i)
            accepted_.push_back(scratch_.add(accepted_.back(), ahead[i]));
        n_text_ += kCommitTokens;
        sweep();
        figures.commit.time(
            [&] { observe({.text = text(), .n_new = kCommitTokens, .tree = &scratch_, .accepted = accepted_}); });
    }

    void print(std::int64_t n_context, double fill_us, const Figures& warm, const Figures& cold) const {
        std::size_t bytes = 0;
        for (const draft::TableSource* source : pointers_) bytes += source->memory_bytes();
        const auto steps = static_cast<double>(place_.options.steps);
        if (place_.options.json) {
            std::string line = fmt::format(
                "{{\"bench\":\"draft\",\"sources\":\"{}\",\"context\":{},\"vocab\":{},\"budget\":{},\"noise\":{},"
                "\"steps\":{},\"nodes\":{:.1f},\"tokens_a_tree\":{:.3f},\"commit_tokens\":{},",
                names_, n_context, place_.text.vocab, place_.options.budget, place_.options.noise.has_value(),
                place_.options.steps, warm.nodes / steps, warm.accepted / steps, kCommitTokens);
            line += fmt::format("{},{},{},{},", warm.tree.json("tree"), cold.tree.json("tree_cold"),
                                warm.learn.json("learn"), cold.learn.json("learn_cold"));
            line += fmt::format("{},{},{},\"prompt_us_a_token\":{:.3f},\"bytes\":{}}}\n", warm.commit.json("commit"),
                                cold.commit.json("commit_cold"), warm.shape.json("own_tree"), fill_us, bytes);
            place_.output.write(line);
        } else {
            place_.output.write(fmt::format(
                "{:44} {:7}  {:5.1f} {:5.2f}  {:6.1f} {:6.1f} {:6.1f} {:6.1f}  {:6.1f} {:6.1f}  {:6.1f} {:6.1f} "
                "{:6.1f} {:6.1f}  {:6.1f}  {:6.2f} {:7.1f}\n",
                names_, n_context, warm.nodes / steps, warm.accepted / steps, warm.tree.median(),
                warm.tree.cpu_median(), warm.tree.cpu_p99(), cold.tree.median(), warm.learn.median(),
                cold.learn.median(), warm.commit.median(), warm.commit.cpu_median(), warm.commit.cpu_p99(),
                cold.commit.median(), warm.shape.median(), fill_us, static_cast<double>(bytes) / (1 << 20)));
        }
    }

    std::string names_;
    Workplace& place_;
    std::vector<BenchSource> sources_;
    std::vector<draft::TableSource*> pointers_;
    draft::PathNoise noise_;
    std::int64_t n_text_ = 0;
    bool sweep_ = false;
    TokenTree tree_, scratch_;
    std::vector<TreeNode> accepted_;
};

int run_drafts(CommandContext& context) {
    const Options options = read_options(context.settings);
    TextOutput output(std::nullopt);
    // After the last step there is text for the depth of a whole tree.
    const std::int64_t n_tokens = std::max(std::ranges::max(options.contexts), kLeastText) + options.budget +
                                  kCommitTokens * (kWarmUpSteps + options.steps + kColdSteps);
    Workplace place{.options = options, .output = output, .text = {}, .swept = std::vector<std::byte>(kSweptBytes)};
    place.text = options.file ? read_bench_text(*options.file, *options.tokenizer, n_tokens)
                              : make_bench_text(n_tokens, options.vocab, options.seed);
    if (!options.json)
        output.write(fmt::format(
            "{:44} {:>7}  {:>5} {:>5}  {:>6} {:>6} {:>6} {:>6}  {:>6} {:>6}  {:>6} {:>6} {:>6} {:>6}  {:>6}  "
            "{:>6} {:>7}\n",
            "sources", "context", "nodes", "hit", "tree", "cpu", "p99", "cold", "learn", "cold", "commit", "cpu", "p99",
            "cold", "own", "prompt", "MiB"));
    for (const std::string& names : options.sets) {
        SetBench bench(names, place);
        for (const std::int64_t n_context : options.contexts) bench.run(n_context);
        if (names == "recycling") bench.run_logits();
    }
    return 0;
}

}  // namespace

CommandSpec drafts_command() {
    return {
        .name = "drafts",
        .summary = "What drafting from tables costs, without a model",
        .details =
            "Microseconds, medians and 99th percentiles. The first figure of each kind is wall-clock time; 'cpu' and "
            "'p99' are CPU time; 'cold': the caches were evicted before; 'own': the tree of the source's paper; "
            "'hit': tokens that a tree would have committed; 'prompt': microseconds per token.",
        .example = "slipstream-lab drafts --sources context,suffix --contexts 4096 --steps 64",
        .options = {{"file", "-f,--file", "F", "A text to draft over [made up]", OptionRole::InputFile},
                    {"tokenizer", "--tokenizer", "PATH", "tokenizer.model, directory or GGUF for it"},
                    {"vocab", "--vocab", "N", "Vocabulary of made-up text [32000]"},
                    {"seed", "-s,--seed", "N", "The same seed gives the same made-up text [1]"},
                    {"contexts", "--contexts", "LIST", "Tokens of the context [4096,131072]"},
                    {"budget", "--budget", "N", "Most nodes of a tree [96]"},
                    {"steps", "--steps", "N", "Measured steps [512]"},
                    {"sources", "--sources", "LIST", "Sources of one tree, repeatable [a choice of sets]"},
                    {"noise", "--noise", "N", "Rank candidates by the noise of this seed, at temperature 1 [none]"},
                    {"json", "--json", "", "Print JSON, a line for each figure"}},
        .run = run_drafts};
}

}  // namespace slipstream::tools
