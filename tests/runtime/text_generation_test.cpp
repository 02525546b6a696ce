// generate_text(): stop rules that strike in the middle of a pass, text held back, limits, cancelling, figures; the
// same for every proposer and budget. The expected output is made here from what plain decoding says, token by token.
#include "runtime/loop/text_generation.h"
#include "runtime/loop/loop_needs.h"

#include <algorithm>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu_device.h"
#include "runtime/ranks/rank_target.h"
#include "tests/support/scripted_proposer.h"
#include "tests/support/tiny_model.h"

namespace slipstream {
namespace {

constexpr std::int64_t kVocab = 97;
constexpr std::int64_t kPlainTokens = 120;

/// Two letters a token, so that stops cross tokens; some tokens are halves of characters, one prints nothing.
class LetterTokenizer final : public Tokenizer {
public:
    LetterTokenizer() {
        for (TokenId id = 0; id < kVocab; ++id) pieces_.push_back(spelling(id));
    }
    [[nodiscard]] std::string_view kind() const override { return "letters"; }
    [[nodiscard]] std::int64_t vocab_size() const override { return kVocab; }
    [[nodiscard]] std::optional<TokenId> bos_id() const override { return 1; }
    [[nodiscard]] bool adds_bos() const override { return true; }
    [[nodiscard]] TokenKind token_kind(TokenId) const override { return TokenKind::Normal; }
    [[nodiscard]] std::vector<TokenId> end_tokens() const override { return {}; }
    [[nodiscard]] std::vector<TokenId> encode(std::string_view, SpecialTokens,
                                              const std::atomic<bool>*) const override {
        return {};
    }
    [[nodiscard]] std::string_view piece(TokenId id) const override { return pieces_[id]; }
    [[nodiscard]] std::string_view token_bytes(TokenId id) const override { return piece(id); }
    [[nodiscard]] bool adds_space_prefix() const override { return false; }
    [[nodiscard]] std::vector<TokenId> encode_marked(std::string_view, SaidBytes,
                                                     const std::atomic<bool>*) const override {
        return {};
    }

private:
    static std::string spelling(TokenId id) {
        if (id == 1) return {};
        if (id > 0 && id % 5 == 0) return "\xac";      // the end of "€"
        if (id > 0 && id % 7 == 0) return "\xe2\x82";  // its beginning
        return {static_cast<char>('A' + id / 10), static_cast<char>('a' + id % 10)};
    }

    std::vector<std::string> pieces_;
};

const LetterTokenizer kLetters;

struct Setting {
    std::int64_t n_prompt = 5;
    std::int64_t budget = 1;  // 1: no proposer
    double hit = 1.0;
    std::int64_t context = 2048;
    std::vector<TokenId> end_tokens{};       // that the loop knows
    std::vector<TokenId> more_end_tokens{};  // that generate_text alone knows
};

/// A model, a loop over it, and what generate_text said with it.
class Trial {
public:
    explicit Trial(const Setting& setting)
        : setting_(setting),
          files_(make_tiny_model({.vocab = kVocab, .context_tokens = setting.context})),
          device_({.n_threads = 1}),
          model_(*files_, device_, {}),
          cache_(device_, model_.kv_layouts(), setting.context, scratch_nodes_for(setting.budget)),
          forward_(model_, forward_limits_for(setting.budget)),
          sampler_({.temperature = 0.9, .repeat_penalty = 1.2, .seed = 11}, kVocab),
          verifier_(sampler_),
          proposer_(setting.budget > 1 ? plain_text(setting.n_prompt) : std::vector<TokenId>{}, setting.hit, 3),
          target_(forward_, cache_),
          sequence_(target_),
          loop_(sequence_, verifier_, setting.budget > 1 ? static_cast<Proposer&>(proposer_) : none_,
                {.budget = setting.budget, .end_tokens = setting.end_tokens}) {
        loop_.begin(prompt(setting.n_prompt));
    }

    static std::vector<TokenId> prompt(std::int64_t n) {
        std::vector<TokenId> prompt;
        for (std::int64_t i = 0; i < n; ++i) prompt.push_back(static_cast<TokenId>((i * 31 + 7) % kVocab));
        return prompt;
    }

    /// The prompt and what plain decoding says after it, in a context without end.
    static const std::vector<TokenId>& plain_text(std::int64_t n_prompt) {
        static std::vector<std::pair<std::int64_t, std::vector<TokenId>>> known;
        for (const auto& [n, text] : known)
            if (n == n_prompt) return text;
        Trial run({.n_prompt = n_prompt});
        while (std::ssize(run.loop_.text()) < n_prompt + kPlainTokens) static_cast<void>(run.loop_.step(1));
        return known.emplace_back(n_prompt, run.loop_.text()).second;
    }

    const TextGenerationResult& generate(std::int64_t max_tokens, std::vector<std::string> stops = {},
                                         TextGenerationCallbacks callbacks = {}) {
        const auto sink = std::move(callbacks.on_text);
        callbacks.on_text = [&](std::string_view piece) {
            EXPECT_FALSE(piece.empty());
            text += piece;
            if (sink) sink(piece);
        };
        LoopLimits limits{.budget = setting_.budget, .end_tokens = setting_.end_tokens};
        limits.end_tokens.insert(limits.end_tokens.end(), setting_.more_end_tokens.begin(),
                                 setting_.more_end_tokens.end());
        const std::vector<TokenId> before = loop_.text();
        const std::size_t n_shown = text.size();
        result = generate_text(loop_, kLetters, StreamingDetokenizer::Start::Continued, limits,
                               {.max_tokens = max_tokens, .stops = std::move(stops)}, callbacks);
        // Whatever ended it, the loop holds the text before and the tokens of the result, and is in order.
        std::vector<TokenId> expected = before;
        expected.insert(expected.end(), result.tokens.begin(), result.tokens.end());
        EXPECT_EQ(loop_.text(), expected);
        EXPECT_LE(cache_.n_committed(), std::ssize(loop_.text()) - 1);
        EXPECT_EQ(result.prompt_tokens, std::ssize(before));
        EXPECT_EQ(result.text_bytes, static_cast<std::int64_t>(text.size() - n_shown));
        return result;
    }

    [[nodiscard]] GenerationLoop& loop() { return loop_; }
    [[nodiscard]] const ScriptedProposer& proposer() const { return proposer_; }
    [[nodiscard]] const KvCache& cache() const { return cache_; }
    /// The rest of what plain decoding says, behind what the loop holds.
    [[nodiscard]] bool continues_plainly() {
        const auto& plain = plain_text(setting_.n_prompt);
        while (loop_.text().size() < plain.size())
            if (loop_.step(std::ssize(plain) - std::ssize(loop_.text())).empty()) return false;
        return loop_.text() == plain;
    }

    std::string text;  // shown so far
    TextGenerationResult result;

private:
    Setting setting_;
    std::unique_ptr<ModelFiles> files_;
    CpuDevice device_;
    Model model_;
    KvCache cache_;
    Forward forward_;
    Sampler sampler_;
    ExactVerifier verifier_;
    NoProposer none_;
    ScriptedProposer proposer_;
    RankTarget target_;
    Sequence sequence_;
    GenerationLoop loop_;
};

/// The first n tokens that plain decoding gives after a prompt.
std::vector<TokenId> plain_tokens(std::int64_t n, std::int64_t n_prompt = 5) {
    const auto& text = Trial::plain_text(n_prompt);
    return {text.begin() + n_prompt, text.begin() + n_prompt + n};
}

/// What they print, broken characters replaced.
std::string shown(std::span<const TokenId> tokens) {
    StreamingDetokenizer detokenizer(kLetters, StreamingDetokenizer::Start::Continued);
    std::string text;
    for (const TokenId token : tokens) text += detokenizer.push(token);
    return text += detokenizer.finish();
}

/// Index of the first token at which what is shown so far holds `stop`.
std::int64_t token_that_completes(const std::string& stop) {
    StreamingDetokenizer detokenizer(kLetters, StreamingDetokenizer::Start::Continued);
    std::string text;
    const auto tokens = plain_tokens(kPlainTokens);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        text += detokenizer.push(tokens[i]);
        if (text.find(stop) != std::string::npos) return static_cast<std::int64_t>(i);
    }
    ADD_FAILURE() << "nowhere: " << stop;
    return -1;
}

/// The shortest end of what is shown after token `last` that was not there before; nothing where the token completes no
/// character.
std::optional<std::string> stop_completed_by(std::int64_t last) {
    const std::string before = shown(plain_tokens(last));
    const std::string text = shown(plain_tokens(last + 1));
    if (before.ends_with("\xef\xbf\xbd") || text.ends_with("\xef\xbf\xbd")) return std::nullopt;
    for (std::size_t at = text.size(); text.size() > before.size() && at-- > 0;)
        if (before.find(text.substr(at)) == std::string::npos) return text.substr(at);
    return std::nullopt;
}

/// `length` bytes of the plain text about `at`, beginning and ending with whole characters, first met there.
std::string part_of_text(std::size_t at, std::size_t length) {
    const std::string text = shown(plain_tokens(kPlainTokens));
    const auto inside = [&](std::size_t i) { return (static_cast<unsigned char>(text[i]) & 0xc0U) == 0x80U; };
    while (inside(at)) ++at;
    while (inside(at + length) || text.find(text.substr(at, length)) < at) ++length;
    return text.substr(at, length);
}

TEST(TextGeneration, EveryProposerAndBudgetGivesTheSameTextAndStop) {
    const std::string stop = part_of_text(70, 5);
    const std::int64_t last = token_that_completes(stop);
    ASSERT_GT(last, 10);
    const std::string whole = shown(plain_tokens(kPlainTokens));
    for (const std::int64_t budget : {1, 2, 9, 64}) {
        for (const double hit : {0.0, 0.6, 1.0}) {
            SCOPED_TRACE(testing::Message() << "budget " << budget << ", hit " << hit);
            Trial stopped({.budget = budget, .hit = hit});
            stopped.generate(100, {"never said", stop});
            EXPECT_EQ(stopped.result.stop_reason, StopReason::StopString);
            EXPECT_EQ(stopped.result.stop, stop);
            EXPECT_EQ(stopped.result.tokens, plain_tokens(last + 1));
            EXPECT_EQ(stopped.text, whole.substr(0, whole.find(stop)));
            EXPECT_TRUE(stopped.continues_plainly());
            Trial unstopped({.budget = budget, .hit = hit});
            unstopped.generate(60);
            EXPECT_EQ(unstopped.result.stop_reason, StopReason::Length);
            EXPECT_EQ(unstopped.result.tokens, plain_tokens(60));
            EXPECT_EQ(unstopped.text, shown(plain_tokens(60)));
        }
    }
}

TEST(TextGeneration, AStopInTheMiddleOfAPassTakesBackWhatIsBehindIt) {
    Trial free({.budget = 64});
    std::vector<std::int64_t> after_pass;
    free.generate(60, {}, {.on_tokens = [&](std::int64_t n) { after_pass.push_back(n); }});
    const auto pass =
        std::adjacent_find(after_pass.begin(), after_pass.end(), [](auto a, auto b) { return b > a + 4; });
    ASSERT_NE(pass, after_pass.end()) << "no pass of many tokens";
    // A token in the middle of the pass, and a stop that it completes.
    const auto tokens = plain_tokens(kPlainTokens);
    std::int64_t last = *pass + 1;
    while (!stop_completed_by(last)) ++last;
    ASSERT_LT(last + 1, *(pass + 1));
    const std::string stop = *stop_completed_by(last);
    Trial run({.budget = 64});
    run.generate(60, {stop});
    EXPECT_EQ(run.result.stop_reason, StopReason::StopString);
    EXPECT_EQ(run.result.tokens, plain_tokens(last + 1));
    EXPECT_EQ(run.cache().n_committed() + 1, std::ssize(run.loop().text()));
    EXPECT_EQ(run.proposer().n_observed, std::ssize(run.loop().text())) << "the proposer is told as well";
    // Another call goes on behind the stop.
    const std::int64_t shown_tokens = last + 1;
    run.generate(10);
    EXPECT_EQ(run.result.tokens,
              std::vector<TokenId>(tokens.begin() + shown_tokens, tokens.begin() + shown_tokens + 10));
    EXPECT_TRUE(run.continues_plainly());
}

// All rules at once, as they come: whichever strikes first, it does so at the same token and byte with every proposer,
// penalties on each node's own path included (E4).
TEST(TextGeneration, RandomRulesEndTheTextAtTheSamePlaceForEveryProposer) {
    std::mt19937 random(12);
    const auto pick = [&](std::int64_t below) {
        return static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(below));
    };
    const std::string whole = shown(plain_tokens(kPlainTokens));
    std::set<StopReason> seen;
    int n_inside_a_pass = 0;
    for (int round = 0; round < 60; ++round) {
        Setting setting{.context = 5 + 30 + pick(80)};
        const TokenId end = plain_tokens(kPlainTokens)[20 + pick(100)];
        if (pick(3) == 0) setting.end_tokens = {end};
        if (pick(4) == 0) setting.more_end_tokens = {end};
        const std::int64_t max_tokens = pick(2) == 0 ? -1 : 1 + pick(90);
        std::vector<std::string> stops;
        for (std::int64_t i = pick(3); i > 0; --i)
            stops.push_back(
                part_of_text(static_cast<std::size_t>(40 + pick(150)), static_cast<std::size_t>(2 + pick(9))));
        Trial plain(setting);
        plain.generate(max_tokens, stops);
        seen.insert(plain.result.stop_reason);
        EXPECT_LT(std::ssize(plain.result.tokens), kPlainTokens) << "beyond what the proposer knows";
        for (const auto& [budget, hit] : {std::pair{5, 0.7}, std::pair{24, 1.0}, std::pair{64, 0.9}}) {
            SCOPED_TRACE(testing::Message() << "round " << round << ", budget " << budget << ", hit " << hit);
            setting.budget = budget;
            setting.hit = hit;
            Trial guessed(setting);
            std::int64_t n_before_last = 0, n_last = 0;
            guessed.generate(max_tokens, stops, {.on_tokens = [&](std::int64_t n) {
                                 n_before_last = n_last;
                                 n_last = n;
                             }});
            EXPECT_EQ(guessed.result.stop_reason, plain.result.stop_reason);
            EXPECT_EQ(guessed.result.tokens, plain.result.tokens);
            EXPECT_EQ(guessed.text, plain.text);
            EXPECT_EQ(guessed.result.text_bytes, plain.result.text_bytes);
            if (n_last > n_before_last + 2) ++n_inside_a_pass;
        }
    }
    EXPECT_EQ(seen, (std::set{StopReason::EndToken, StopReason::StopString, StopReason::Length, StopReason::Context}));
    EXPECT_GT(n_inside_a_pass, 60) << "few of the last passes had more than two tokens";
}

TEST(TextGeneration, EndTokensEndTheTextUnshownInTheMiddleOfAPass) {
    const auto tokens = plain_tokens(kPlainTokens);
    const TokenId end = tokens[31];
    const auto n = std::find(tokens.begin(), tokens.end(), end) - tokens.begin();
    for (const std::int64_t budget : {1, 64}) {
        // Known to the loop, whose walk ends there; or to generate_text alone, which takes back the rest.
        for (const Setting& setting :
             {Setting{.budget = budget, .end_tokens = {end}}, Setting{.budget = budget, .more_end_tokens = {end}}}) {
            Trial run(setting);
            run.generate(-1);
            EXPECT_EQ(run.result.stop_reason, StopReason::EndToken);
            EXPECT_EQ(run.result.tokens, plain_tokens(n + 1));
            EXPECT_EQ(run.text, shown(plain_tokens(n)));
        }
    }
}

TEST(TextGeneration, WhatIsHeldBackComesOutAtTheEnd) {
    const std::string whole = shown(plain_tokens(30));
    for (const std::int64_t budget : {1, 16}) {
        // The text ends with the beginning of a stop.
        Trial run({.budget = budget});
        run.generate(30, {whole.substr(whole.size() - 3) + "and no more"});
        EXPECT_EQ(run.result.stop_reason, StopReason::Length);
        EXPECT_EQ(run.text, whole);
    }
    // The text ends inside of a character.
    const auto tokens = plain_tokens(kPlainTokens);
    const auto half = std::find_if(tokens.begin(), tokens.end(), [](TokenId id) { return id % 7 == 0 && id % 5 != 0; });
    ASSERT_NE(half, tokens.end());
    Trial run({.budget = 16});
    run.generate(half - tokens.begin() + 1);
    EXPECT_THAT(run.text, testing::EndsWith("\xef\xbf\xbd"));
    EXPECT_EQ(run.text, shown(plain_tokens(half - tokens.begin() + 1)));
}

TEST(TextGeneration, GivesAsManyTokensAsAskedFor) {
    for (const std::int64_t budget : {1, 33}) {
        for (const std::int64_t n : {0, 1, 2, 40}) {
            Trial run({.budget = budget});
            run.generate(n);
            EXPECT_EQ(run.result.stop_reason, StopReason::Length);
            EXPECT_EQ(run.result.tokens, plain_tokens(n)) << "budget " << budget;
            EXPECT_EQ(run.result.text_bytes == 0, n == 0);
        }
    }
    Trial none({});
    none.generate(0);
    EXPECT_EQ(none.cache().n_committed(), 0) << "nothing is computed for nothing";
    EXPECT_EQ(none.result.passes, 0);
}

TEST(TextGeneration, EndsWhereTheContextIsFull) {
    for (const std::int64_t budget : {1, 33}) {
        Trial run({.n_prompt = 250, .budget = budget, .context = 300});
        run.generate(-1);
        EXPECT_EQ(run.result.stop_reason, StopReason::Context);
        EXPECT_EQ(run.result.tokens, plain_tokens(50, 250));
        run.generate(-1);
        EXPECT_EQ(run.result.stop_reason, StopReason::Context);
        EXPECT_TRUE(run.result.tokens.empty());
        Trial exact({.n_prompt = 250, .budget = budget, .context = 300});
        exact.generate(50);
        EXPECT_EQ(exact.result.stop_reason, StopReason::Length) << "what was asked for is there";
    }
}

TEST(TextGeneration, CancelKeepsWhatThereIs) {
    std::atomic<bool> cancel{true};
    for (const std::int64_t n_prompt : {5, 600}) {  // in the pass of the first token, in the prompt before it
        Trial run({.n_prompt = n_prompt, .budget = 9});
        run.generate(40, {}, {.cancel = &cancel});
        EXPECT_EQ(run.result.stop_reason, StopReason::Interrupt);
        EXPECT_TRUE(run.result.tokens.empty());
        EXPECT_EQ(run.result.passes, 0);
        EXPECT_TRUE(run.continues_plainly());
    }
    for (const std::int64_t budget : {1, 9}) {
        cancel = false;
        Trial run({.budget = budget});
        run.generate(100, {}, {.on_tokens = [&](std::int64_t n) { cancel = n >= 20; }, .cancel = &cancel});
        EXPECT_EQ(run.result.stop_reason, StopReason::Interrupt);
        EXPECT_GE(run.result.tokens.size(), 20U);
        EXPECT_LT(run.result.tokens.size(), 100U);
        EXPECT_EQ(run.result.tokens, plain_tokens(std::ssize(run.result.tokens)));
        EXPECT_EQ(run.text, shown(run.result.tokens));
        EXPECT_TRUE(run.continues_plainly());
    }
}

TEST(TextGeneration, AnErrorOfACallbackEndsGenerationAndLeavesTheLoopWhole) {
    for (const std::int64_t budget : {1, 64}) {
        Trial run({.budget = budget});
        const auto fail = [&](std::string_view) {
            if (run.text.size() > 20) throw std::runtime_error("no space left");
        };
        EXPECT_THROW(run.generate(60, {}, {.on_text = fail}), std::runtime_error);
        EXPECT_EQ(run.cache().n_committed() + 1, std::ssize(run.loop().text()));
        EXPECT_TRUE(run.continues_plainly());
    }
}

TEST(TextGeneration, FiguresAreThoseOfThePasses) {
    Trial plain({});
    std::vector<std::int64_t> counts;
    plain.generate(40, {}, {.on_tokens = [&](std::int64_t n) { counts.push_back(n); }});
    EXPECT_EQ(std::ssize(counts), 40);
    EXPECT_EQ(plain.result.passes, 39) << "the pass over the prompt carried no guesses";
    EXPECT_EQ(plain.result.budget_mean, 1.0);

    Trial guessed({.budget = 16, .hit = 0.8});
    counts.clear();
    const TextGenerationResult& result =
        guessed.generate(60, {}, {.on_tokens = [&](std::int64_t n) { counts.push_back(n); }});
    EXPECT_EQ(counts.back(), 60);
    EXPECT_TRUE(std::is_sorted(counts.begin(), counts.end()));
    EXPECT_EQ(result.passes, std::ssize(counts));
    EXPECT_LT(result.passes, 40);
    EXPECT_EQ(result.passes, guessed.proposer().n_proposed);
    EXPECT_DOUBLE_EQ(result.budget_mean, static_cast<double>(guessed.proposer().nodes_proposed) /
                                             static_cast<double>(guessed.proposer().n_proposed));
    EXPECT_GT(result.budget_mean, 4.0);
    EXPECT_GT(result.prefill_seconds, 0.0);
    EXPECT_GT(result.decode_seconds, 0.0);
    EXPECT_DOUBLE_EQ(result.tokens_per_second, static_cast<double>(60 - counts.front()) / result.decode_seconds);
    const LoopSeconds& split = result.split;
    for (const double part : {split.draft, split.verify, split.sample, split.commit}) EXPECT_GT(part, 0.0);
    EXPECT_LE(split.draft + split.verify + split.sample + split.commit, result.decode_seconds);
}

TEST(TextGeneration, StopReasonsAreSpeltAsTheStatisticsSpellThem) {
    EXPECT_EQ(stop_reason_name(StopReason::EndToken), "eos");
    EXPECT_EQ(stop_reason_name(StopReason::StopString), "stop");
    EXPECT_EQ(stop_reason_name(StopReason::Length), "length");
    EXPECT_EQ(stop_reason_name(StopReason::Context), "context");
    EXPECT_EQ(stop_reason_name(StopReason::Interrupt), "interrupt");
}

}  // namespace
}  // namespace slipstream
