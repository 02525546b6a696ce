// A program that generates a text with a session, for tests: a tiny model, a loop, and a tokenizer some of whose tokens
// are halves of a character. It can be stopped after any number of tokens and begun anew.
#pragma once

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/cpu_device.h"
#include "runtime/loop/generation_loop.h"
#include "runtime/loop/loop_needs.h"
#include "runtime/loop/text_generation.h"
#include "runtime/pass/pass_stream.h"
#include "runtime/ranks/model_runner.h"
#include "runtime/session/session_kv.h"
#include "tests/runtime/session_samples.h"
#include "tests/support/scripted_proposer.h"
#include "tests/support/tiny_model.h"

namespace slipstream::session_program {

inline constexpr std::int64_t kContext = 2048;
inline constexpr std::int64_t kVocab = 97;
inline constexpr std::size_t kNoLimit = std::size_t{1} << 40;

// Two letters a token; some tokens are halves of a character.
class HalfCharacters final : public Tokenizer {
public:
    HalfCharacters() {
        for (TokenId id = 0; id < kVocab; ++id)
            pieces_.push_back(id % 5 == 0 ? "\xac" : id % 7 == 0 ? "\xe2\x82" : two_letters(id));
    }
    [[nodiscard]] std::string_view kind() const override { return "halves"; }
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
    static std::string two_letters(TokenId id) {
        return {static_cast<char>('A' + id / 10), static_cast<char>('a' + id % 10)};
    }
    std::vector<std::string> pieces_;
};

inline const HalfCharacters kTokenizer;

struct Case {
    std::int64_t n_prompt = 5;
    std::int64_t n_tokens = 60;
    std::int64_t budget = 1;
    std::vector<std::string> stops{};
    std::size_t kv_limit = kNoLimit;
    std::vector<std::int64_t> resident_chunks{};  // empty: nothing streams
    bool weights_stream = false;
    bool delta_nets = false;  // four layers: delta net, delta net, attention, delta net
};

struct Told {
    std::string text;
    std::string damage;  // of the session, as it is told
    std::vector<TokenId> tokens;
    StopReason reason = StopReason::Interrupt;
    std::int64_t fed_again = 0;
};

// One run of a program: a model, a loop, and a session in `path` where it is not empty.
class Program {
public:
    explicit Program(const Case& made)
        : case_(made),
          files_(made.delta_nets ? make_tiny_model({.n_layers = 4,
                                                    .vocab = kVocab,
                                                    .context_tokens = kContext,
                                                    .head_norms = true,
                                                    .delta_nets = true})
                                 : make_tiny_model({.vocab = kVocab, .context_tokens = kContext})),
          arena_({.limit_bytes = std::size_t{64} << 20, .page_lock = PageLock::Pageable}),
          device_({.n_threads = 1}),
          model_(*files_, device_, {.context_tokens = kContext, .placement = placement()}),
          runner_({{.model = &model_,
                    .kv = {.resident_chunks = made.resident_chunks, .arena = &arena_},
                    .ring_bytes = std::size_t{1} << 20}},
                  {.text_tokens = kContext,
                   .forward = forward_limits_for(made.budget),
                   .scratch_nodes = scratch_nodes_for(made.budget)},
                  &arena_),
          sampler_({.temperature = 0.9, .repeat_penalty = 1.2, .seed = 11}, kVocab),
          verifier_(sampler_) {}

    // Generates until `n_cut` tokens are there, or to the end; throws Cut in the middle of a callback then.
    struct Cut {};
    Told tell(const std::filesystem::path& path, std::int64_t n_cut, const std::vector<TokenId>& future) {
        std::optional<SessionFile> session;
        if (!path.empty()) {
            session = SessionFile::open(path);
            if (!session) session = SessionFile::create(path, begin());
        }
        // A program times passes, which makes programs of passes ahead, before it reads a session.
        RankTarget& target = runner_.target();
        static_cast<void>(target.run(
            {.tokens = std::vector<TokenId>{1}, .nodes = std::vector<NodeId>{target.add_node(kCommittedTip)}}));
        target.forget();
        std::optional<SessionKv> kv;
        std::vector<TokenId> text = prompt();
        TextGenerationOptions options{.max_tokens = case_.n_tokens, .stops = case_.stops};
        Told told;
        if (session) {
            kv.emplace(*session, target, case_.kv_limit);
            text.insert(text.end(), session->tokens().begin(), session->tokens().end());
            options.n_resumed = std::ssize(session->tokens());
            const ReplayedText replayed = replay_text(kTokenizer, StreamingDetokenizer::Start::Continued, {}, options,
                                                      session->tokens(), kContext - std::ssize(text));
            told.text = replayed.shown;
            if (replayed.ended) return {told.text, session->damage(), session->tokens(), *replayed.ended, 0};
            const std::int64_t n_restored = kv->restore();
            told.fed_again = std::ssize(text) - n_restored;
            told.damage = session->damage() + kv->lost_states();
        }
        ScriptedProposer proposer(future, 0.7, 3);
        NoProposer none;
        GenerationLoop loop(runner_.sequence(), verifier_, case_.budget > 1 ? static_cast<Proposer&>(proposer) : none,
                            {.budget = case_.budget, .end_tokens = {}});
        loop.resume(std::move(text), case_.n_prompt);
        const auto save = [&] {
            if (kv) {
                EXPECT_EQ(kv->save(), std::nullopt);
                EXPECT_EQ(kv->save_states(), std::nullopt);
            }
        };
        const TextGenerationResult result =
            generate_text(loop, kTokenizer, StreamingDetokenizer::Start::Continued,
                          {.budget = case_.budget, .end_tokens = {}}, options,
                          {.on_prefill = [&](std::int64_t, std::int64_t) { save(); },
                           .on_text = [&](std::string_view piece) { told.text += piece; },
                           .on_commit =
                               [&](std::span<const TokenId> tokens) {
                                   if (session) session->append_tokens(tokens);
                               },
                           .on_tokens =
                               [&](std::int64_t n) {
                                   save();
                                   if (n >= n_cut) throw Cut();
                               }});
        EXPECT_EQ(result.text_bytes, std::ssize(told.text));
        EXPECT_EQ(result.resumed_tokens, options.n_resumed);
        told.tokens = result.tokens;
        told.reason = result.stop_reason;
        return told;
    }

private:
    WeightPlacement placement() {
        if (!case_.weights_stream) return {};
        const std::size_t n = cut_weight_items(files_->weights(), WeightRounding::None, kUncutItems).size();
        return {.streams = std::vector<bool>(n, true), .arena = &arena_};
    }
    [[nodiscard]] std::vector<TokenId> prompt() const {
        std::vector<TokenId> prompt;
        for (std::int64_t i = 0; i < case_.n_prompt; ++i)
            prompt.push_back(static_cast<TokenId>((i * 31 + i / 9) % kVocab));
        return prompt;
    }
    [[nodiscard]] SessionBegin begin() const {
        SessionBegin begin = sample_begin();
        begin.context_tokens = kContext;
        begin.kv_bytes = session_kv_bytes(model_.kv_layouts());
        begin.prompt = prompt();
        return begin;
    }

    Case case_;
    std::unique_ptr<ModelFiles> files_;
    PinnedArena arena_;
    CpuDevice device_;
    Model model_;
    ModelRunner runner_;
    Sampler sampler_;
    ExactVerifier verifier_;
};

// What an uninterrupted run says, without a session; and the whole text as tokens, for guesses.
struct Expected {
    Told told;
    std::vector<TokenId> future;
};
inline Expected expected_of(const Case& made) {
    Case plain = made;
    plain.budget = 1;
    plain.resident_chunks.clear();
    plain.weights_stream = false;
    Expected expected;
    expected.told = Program(plain).tell({}, std::int64_t{1} << 40, {});
    Case longer = plain;
    longer.stops.clear();
    longer.n_tokens += 40;
    const Told more = Program(longer).tell({}, std::int64_t{1} << 40, {});
    for (std::int64_t i = 0; i < made.n_prompt; ++i)
        expected.future.push_back(static_cast<TokenId>((i * 31 + i / 9) % kVocab));
    expected.future.insert(expected.future.end(), more.tokens.begin(), more.tokens.end());
    return expected;
}

}  // namespace slipstream::session_program
