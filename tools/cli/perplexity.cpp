// slipstream perplexity: teacher-forced runs. For a text, it measures how well the model predicts it; for given ids, it
// writes the logits after each of them to a file.
//
// A text is cut into consecutive evaluation windows that do not overlap. Each window starts with an empty KV cache and
// BOS, and each of its tokens is predicted from the tokens before it in the window. If the tokenizer adds no BOS, the
// first token of a window is not predicted. No result depends on the number of tokens per pass (batch invariance, E1).
//
// With --windows llama the score is that of llama-perplexity: BOS and text are cut into whole windows, the rest is left
// out, BOS replaces the first token of each window, and only tokens of its second half are predicted.
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/loop/target.h"
#include "runtime/text/tokenizer/tokenizer.h"
#include "tools/base/amounts.h"
#include "tools/base/usage_error.h"
#include "tools/cli/console_callbacks.h"
#include "tools/cli/token_ids.h"
#include "tools/engine/engine.h"
#include "tools/options/command.h"
#include "tools/options/compute_options.h"
#include "tools/options/offload_options.h"
#include "tools/options/settings.h"
#include "tools/options/statistics_output.h"
#include "tools/terminal/bounded_file.h"
#include "tools/terminal/console.h"
#include "tools/terminal/file_output.h"
#include "tools/terminal/signals.h"

namespace slipstream::tools {

namespace {

constexpr std::int64_t kWindowTokens = 512;
constexpr std::int64_t kPassTokens = 64;
constexpr std::int64_t kMaxPassTokens = 4096;

RunNeeds chain_needs(std::int64_t pass_tokens) {
    return {{.text_tokens = 0,
             .forward = {.max_tokens = pass_tokens, .max_logit_rows = pass_tokens},
             .scratch_nodes = pass_tokens}};
}

// Feeds a chain of tokens to the model, up to `pass_tokens` per pass, and gets the logits after each token.
class ChainRunner {
public:
    ChainRunner(const LoadedModel& model, std::int64_t pass_tokens, const EngineCallbacks& callbacks)
        : runner_(make_runner(model, chain_needs(pass_tokens), callbacks)),
          target_(runner_->target()),
          pass_tokens_(pass_tokens) {}

    void restart() { target_.truncate(0); }

    /// Calls on_logits(i, row) for each token i in order; row [vocab] is valid during the call. Throws Interrupted
    /// after a signal.
    template <typename OnLogits>
    void run(std::span<const TokenId> tokens, OnLogits&& on_logits) {
        for (std::size_t begin = 0; begin < tokens.size(); begin += static_cast<std::size_t>(pass_tokens_)) {
            const auto part =
                tokens.subspan(begin, std::min(static_cast<std::size_t>(pass_tokens_), tokens.size() - begin));
            nodes_.clear();
            rows_.clear();
            NodeId above = kCommittedTip;
            for (std::size_t i = 0; i < part.size(); ++i) {
                nodes_.push_back(above = target_.add_node(above, NodeKind::Certain));
                rows_.push_back(static_cast<std::int32_t>(i));
            }
            const PassControl control{.cancel = &cancel_flag()};
            const LogitRows logits =
                target_.run({.tokens = part, .nodes = nodes_, .logit_tokens = rows_, .control = &control});
            throw_if_interrupted();
            for (std::size_t i = 0; i < part.size(); ++i)
                on_logits(begin + i, logits.row(static_cast<std::int64_t>(i)));
            target_.commit(nodes_);
        }
    }

private:
    std::unique_ptr<ModelRunner> runner_;
    Target& target_;
    std::int64_t pass_tokens_;
    std::vector<NodeId> nodes_;
    std::vector<std::int32_t> rows_;
};

[[noreturn]] void refuse_logits(std::string_view after) {
    throw Unsupported(fmt::format("the model's logits are not numbers (after {}); is the model file damaged?", after));
}

// Returns whether the logits of a row are valid: -inf is allowed, for tokens that are never sampled; NaN and +inf are
// not, and at least one logit must be finite.
bool are_numbers(std::span<const float> logits) {
    bool any = false;
    bool all = true;
    for (const float logit : logits) {
        any |= std::isfinite(logit);
        all &= logit < std::numeric_limits<float>::infinity();  // false for NaN
    }
    return any && all;
}

// Returns -log softmax(logits)[token], computed in double.
double surprise(std::span<const float> logits, TokenId token) {
    float highest = logits[0];
    for (const float logit : logits) highest = std::max(highest, logit);
    double sum = 0.0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - highest);
    return std::log(sum) + highest - logits[token];
}

enum class WindowRule : std::uint8_t { Ours, Llama };

struct TextScore {
    double nats = 0.0;
    double nats_squared = 0.0;  // sum of the squares of the tokens' nats
    std::int64_t tokens = 0;    // tokens that were predicted
    std::int64_t windows = 0;

    [[nodiscard]] double mean() const { return nats / static_cast<double>(tokens); }
    // Returns the standard error of mean(), for tokens as independent samples; 0 for one token.
    [[nodiscard]] double standard_error() const {
        const auto n = static_cast<double>(tokens);
        const double variance = std::max(0.0, nats_squared / n - mean() * mean());
        return tokens > 1 ? std::sqrt(variance / (n - 1.0)) : 0.0;
    }
};

// A window of a text: tokens to feed, and the first of them that is predicted.
struct EvaluationWindow {
    std::vector<TokenId> tokens;
    std::size_t first_predicted = 1;
    std::size_t end = 0;  // tokens of the text up to the end of the window
};

class Windows {
public:
    Windows(std::span<const TokenId> text, std::optional<TokenId> bos, std::int64_t window_tokens, WindowRule rule)
        : text_(text), bos_(bos), size_(static_cast<std::size_t>(window_tokens)), rule_(rule) {}

    // Returns the next window; nothing after the last one.
    std::optional<EvaluationWindow> next() {
        const bool is_llama = rule_ == WindowRule::Llama;
        // Whether BOS is added before the window's tokens: by WindowRule::Ours always, by Llama only in the first
        // window, since in later ones BOS replaces the first token.
        const bool is_own_bos = bos_ && (!is_llama || at_ == 0);
        const std::size_t step = size_ - (is_own_bos ? 1 : 0);
        if (at_ >= text_.size() || (is_llama && text_.size() - at_ < step)) return std::nullopt;
        EvaluationWindow window;
        window.end = std::min(at_ + step, text_.size());
        if (is_own_bos) window.tokens.push_back(*bos_);
        window.tokens.insert(window.tokens.end(), text_.begin() + static_cast<std::ptrdiff_t>(at_),
                             text_.begin() + static_cast<std::ptrdiff_t>(window.end));
        if (is_llama && bos_) window.tokens.front() = *bos_;
        if (is_llama) window.first_predicted = size_ / 2 + 1;
        at_ = window.end;
        return window;
    }

private:
    std::span<const TokenId> text_;
    std::optional<TokenId> bos_;
    std::size_t size_;
    WindowRule rule_;
    std::size_t at_ = 0;  // first token of the next window
};

TextScore score_text(const LoadedModel& model, const std::vector<TokenId>& text, Windows windows,
                     std::int64_t window_tokens, Console& console, const EngineCallbacks& callbacks) {
    ChainRunner runner(model, std::min(kPassTokens, window_tokens), callbacks);
    ProgressBar bar(console, "perplexity");
    TextScore score;
    while (const std::optional<EvaluationWindow> window = windows.next()) {
        const std::vector<TokenId>& tokens = window->tokens;
        runner.restart();
        // The last token of a window is predicted but not fed.
        runner.run(std::span(tokens).first(tokens.size() - 1), [&](std::size_t i, std::span<const float> logits) {
            if (i + 1 < window->first_predicted) return;
            const double nats = surprise(logits, tokens[i + 1]);
            if (!std::isfinite(nats)) refuse_logits(fmt::format("token {} of window {}", i + 1, score.windows + 1));
            score.nats += nats;
            score.nats_squared += nats * nats;
            ++score.tokens;
        });
        ++score.windows;
        const double so_far = score.tokens == 0 ? 0.0 : std::exp(score.mean());
        bar.update(static_cast<double>(window->end), static_cast<double>(text.size()),
                   fmt::format("{} of {} tokens, {:.3f} so far", window->end, text.size(), so_far));
    }
    return score;
}

WindowRule window_rule(const Settings& settings) {
    const std::optional<std::string> asked = settings.text("windows");
    if (!asked || *asked == "all") return WindowRule::Ours;
    if (*asked == "llama") return WindowRule::Llama;
    throw UsageError(fmt::format("{}: all or llama expected, found '{}'", settings.find("windows")->where, *asked));
}

int run_on_text(CommandContext& context, const ComputeOptions& compute) {
    const Settings& settings = context.settings;
    const auto asked_window = settings.integer("window", {2, std::int64_t{1} << 30});
    const WindowRule rule = window_rule(settings);
    const std::string file = *settings.path("file");
    StatisticsOutput statistics(settings.text("stats"));
    const std::string text = read_text(file, "--file", kMostCorpusBytes);
    OpenedModel opened(choose_model(context));
    const auto tokenizer = make_tokenizer(opened.files().tokenizer_source());
    const std::vector<TokenId> tokens = tokenizer->encode(text, SpecialTokens::AsText, &cancel_flag());
    check_tokens(tokens, opened.config());
    const std::optional<TokenId> bos = tokenizer->adds_bos() ? tokenizer->bos_id() : std::nullopt;
    if (tokens.size() < (bos ? 1U : 2U))
        throw RequestError(fmt::format("--file {}: {} of text, nothing to predict; give a longer one", file,
                                       counted(static_cast<std::int64_t>(tokens.size()), "token")));
    PlacedModel placed(std::move(opened), compute, console_callbacks(context));
    const std::int64_t window = asked_window.value_or(std::min(placed.context_tokens(), kWindowTokens));
    if (window > placed.context_tokens() || window < 2)
        throw RequestError(
            fmt::format("--window {}: the context holds {} tokens; give a window from 2 to that, or raise --ctx",
                        window, placed.context_tokens()));
    if (rule == WindowRule::Llama && window < 3)
        throw RequestError(
            fmt::format("--windows llama: the second half of {} tokens has none to predict; give a --window "
                        "of 3 or more",
                        window));
    const std::size_t n_all = tokens.size() + (bos ? 1 : 0);
    if (rule == WindowRule::Llama && n_all / 2 < static_cast<std::size_t>(window))
        throw RequestError(
            fmt::format("--windows llama: two windows of {} tokens are the least, the text has {}; give a "
                        "longer text or a smaller --window",
                        window, counted(static_cast<std::int64_t>(n_all), "token")));
    const LoadedModel model(std::move(placed), chain_needs(std::min(kPassTokens, window)), console_callbacks(context));
    context.console.detail(settings.describe("window", fmt::format("{}", window), "built in"));

    const auto began = std::chrono::steady_clock::now();
    const TextScore score = score_text(model, tokens, Windows(tokens, bos, window, rule), window, context.console,
                                       console_callbacks(context));
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    const double perplexity = std::exp(score.mean());
    TextOutput output(std::nullopt);
    output.write(
        fmt::format("perplexity {:.4f}\nnats per token {:.6f}\nstandard error {:.6f} of nats, {:.4f} of the "
                    "perplexity\ntokens {}\nwindows {} of {}\n",
                    perplexity, score.mean(), score.standard_error(), perplexity * score.standard_error(), score.tokens,
                    score.windows, window));
    statistics.write(statistics_json(model, TeacherForcedFigures{.tokens = score.tokens,
                                                                 .seconds = seconds,
                                                                 .nats = score.nats,
                                                                 .standard_error = score.standard_error(),
                                                                 .windows = score.windows}),
                     output);
    context.console.note(fmt::format("{} in {:.2f} s ({:.1f} tokens/s)", counted(score.tokens, "token"), seconds,
                                     static_cast<double>(score.tokens) / seconds));
    return 0;
}

int run_on_tokens(CommandContext& context, const ComputeOptions& compute) {
    const Settings& settings = context.settings;
    const std::string ids_file = *settings.path("tokens");
    const std::int64_t pass = settings.integer("pass", {1, kMaxPassTokens}).value_or(1);
    StatisticsOutput statistics(settings.text("stats"));
    WholeFile file(*settings.text("logits"));
    OpenedModel opened(choose_model(context));
    const std::vector<TokenId> tokens =
        parse_token_ids(read_text(ids_file, "--tokens", kMostCorpusBytes), ids_file, opened.config().vocab);
    if (tokens.empty()) throw RequestError(fmt::format("--tokens {}: it holds no ids", ids_file));
    const auto n_tokens = static_cast<std::int64_t>(tokens.size());
    PlacedModel placed(std::move(opened), compute, console_callbacks(context));
    if (n_tokens > placed.context_tokens())
        throw RequestError(fmt::format("--tokens {}: {}, and the context holds {}; shorten them or raise --ctx",
                                       ids_file, counted(n_tokens, "id"), placed.context_tokens()));
    const LoadedModel model(std::move(placed), chain_needs(std::min(pass, n_tokens)), console_callbacks(context));
    ChainRunner runner(model, std::min(pass, n_tokens), console_callbacks(context));
    const auto began = std::chrono::steady_clock::now();
    {
        ProgressBar bar(context.console, "logits");
        runner.run(tokens, [&](std::size_t i, std::span<const float> logits) {
            if (!are_numbers(logits)) refuse_logits(fmt::format("token {}, id {}", i + 1, tokens[i]));
            file.write(std::as_bytes(logits));
            bar.update(static_cast<double>(i + 1), static_cast<double>(n_tokens),
                       fmt::format("{} of {} tokens", i + 1, n_tokens));
        });
    }
    file.complete();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    TextOutput output(std::nullopt);
    statistics.write(statistics_json(model, TeacherForcedFigures{.tokens = n_tokens, .seconds = seconds}), output);
    context.console.note(
        fmt::format("logits [{}, {}] written to {}", n_tokens, model.config().vocab, *settings.text("logits")));
    return 0;
}

int run_perplexity(CommandContext& context) {
    constexpr std::string_view kInputs[] = {"file", "tokens"};
    const Settings& settings = context.settings;
    const std::string_view input = settings.strongest_of(kInputs);
    if (input.empty()) throw UsageError("nothing to read; give --file F, or --tokens IDS.txt with --logits OUT.f32");
    const bool on_text = input == "file";
    // Options of the other mode have no effect.
    const auto refuse = [&](std::string_view name, std::string_view wanted) {
        if (const Setting* setting = settings.on_command_line(name))
            throw UsageError(fmt::format("{} has an effect only with --{}; remove it", setting->where, wanted));
    };
    if (on_text) {
        refuse("logits", "tokens");
        refuse("pass", "tokens");
    } else {
        refuse("window", "file");
        refuse("windows", "file");
        if (settings.find("logits") == nullptr)
            throw UsageError("--tokens writes logits; name the file by --logits OUT.f32");
    }
    const ComputeOptions compute = compute_options(settings);
    return on_text ? run_on_text(context, compute) : run_on_tokens(context, compute);
}

}  // namespace

CommandSpec perplexity_command() {
    CommandSpec command{
        .name = "perplexity",
        .summary = "How well a model predicts a text; or its logits after given tokens",
        .details =
            "A text is cut into windows that do not overlap, each after BOS; every token counts. A model that has no\n"
            "BOS predicts all tokens of a window but the first. With --windows llama the text has two whole windows "
            "or\n"
            "more, the rest of it is left out, BOS replaces the first token of each, and its second half counts.\n"
            "With --tokens the ids are fed as they are, no BOS added; --logits gets [n_tokens, vocab] float32,\n"
            "little-endian, whose bytes do not depend on --pass.",
        .example = "slipstream perplexity --file README.md --window 256",
        .options = {{"file", "-f,--file", "F", "Text to predict ('-': stdin)", OptionRole::InputFile},
                    {"window", "--window", "N", "Tokens of a window, BOS included [512, or the context if shorter]"},
                    {"windows", "--windows", "KIND",
                     "all: every token counts; llama: as llama-perplexity counts, the second half of each whole window "
                     "[all]",
                     OptionRole::Value, "all, llama"},
                    {"tokens", "--tokens", "F", "Ids to feed, separated by white space ('-': stdin)",
                     OptionRole::InputFile},
                    {"logits", "--logits", "F", "File for the logits after each id", OptionRole::OutputFile},
                    {"pass", "--pass", "N", "Ids a pass [1]"},
                    statistics_option(),
                    model_option(),
                    context_option(),
                    kv_type_option()},
        .run = run_perplexity};
    for (const OptionSpec& option : device_options()) command.options.push_back(option);
    for (const OptionSpec& option : offload_option_specs()) command.options.push_back(option);
    return command;
}

}  // namespace slipstream::tools
