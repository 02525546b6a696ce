// A text that is gone on with from a session is the text of a run without end: stopped behind any number of tokens,
// with KV saved or computed again, guesses or none, everything resident or streamed, stop texts and halves of
// characters across the border.
#include <algorithm>
#include <cstring>

#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/cpu_device.h"
#include "runtime/loop/device_target.h"
#include "runtime/loop/generation_loop.h"
#include "runtime/loop/text_generation.h"
#include "runtime/pass/pass_stream.h"
#include "runtime/session/session_kv.h"
#include "tests/runtime/session_samples.h"
#include "tests/support/scripted_proposer.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace slipstream {
namespace {

constexpr std::int64_t kContext = 2048;
constexpr std::int64_t kVocab = 97;
constexpr std::size_t kNoLimit = std::size_t{1} << 40;

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
    [[nodiscard]] std::string_view piece(TokenId id) const override { return pieces_[static_cast<std::size_t>(id)]; }
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

const HalfCharacters kTokenizer;

struct Case {
    std::int64_t n_prompt = 5;
    std::int64_t n_tokens = 60;
    std::int64_t budget = 1;
    std::vector<std::string> stops{};
    std::size_t kv_limit = kNoLimit;
    std::vector<std::int64_t> resident_chunks{};  // empty: nothing streams
    bool weights_stream = false;
};

struct Told {
    std::string text;
    std::vector<TokenId> tokens;
    StopReason reason = StopReason::Interrupt;
    std::int64_t fed_again = 0;
};

// One run of a program: a model, a loop, and a session in `path` where it is not empty.
class Program {
public:
    explicit Program(const Case& made)
        : case_(made),
          files_(make_tiny_model({.vocab = kVocab, .context_tokens = kContext})),
          arena_({.limit_bytes = std::size_t{64} << 20, .page_lock = PageLock::Pageable}),
          device_({.n_threads = 1}),
          model_(*files_, device_, {.context_tokens = kContext, .placement = placement()}),
          cache_(device_, model_.kv_shape(), model_.config().n_layers, kContext, scratch_nodes_for(made.budget),
                 {.resident_chunks = made.resident_chunks, .arena = &arena_}),
          sampler_({.temperature = 0.9, .repeat_penalty = 1.2, .seed = 11}, kVocab),
          verifier_(sampler_) {
        if (PassReads{&model_, &cache_}.streams())
            pass_ =
                std::make_unique<PassStream>(std::vector{PassReads{&model_, &cache_}}, arena_, std::size_t{1} << 20);
        forward_ = std::make_unique<Forward>(model_, forward_limits_for(made.budget), pass_.get());
    }

    // Generates until `n_cut` tokens are there, or to the end; throws Cut in the middle of a callback then.
    struct Cut {};
    Told tell(const std::filesystem::path& path, std::int64_t n_cut, const std::vector<TokenId>& future) {
        std::optional<SessionFile> session;
        if (!path.empty()) {
            session = SessionFile::open(path);
            if (!session) session = SessionFile::create(path, begin());
        }
        // A program times passes, which makes programs of passes ahead, before it reads a session.
        static_cast<void>(
            forward_->run(cache_, std::vector<TokenId>{1}, std::vector<NodeId>{cache_.add_node(kCommittedTip)}, {}));
        cache_.forget();
        DeviceTarget target(*forward_, cache_);
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
            if (replayed.ended) return {told.text, session->tokens(), *replayed.ended, 0};
            const std::int64_t n_restored = kv->restore();
            told.fed_again = std::ssize(text) - n_restored;
        }
        ScriptedProposer proposer(future, 0.7, 3);
        NoProposer none;
        GenerationLoop loop(target, verifier_, case_.budget > 1 ? static_cast<Proposer&>(proposer) : none,
                            {.budget = case_.budget, .end_tokens = {}});
        loop.resume(std::move(text), case_.n_prompt);
        const auto save = [&] {
            if (kv) kv->save();
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
        begin.n_layers = model_.config().n_layers;
        begin.kv_chunk_bytes = model_.kv_shape().chunk_bytes();
        begin.prompt = prompt();
        return begin;
    }

    Case case_;
    std::unique_ptr<ModelFiles> files_;
    PinnedArena arena_;
    CpuDevice device_;
    Model model_;
    KvCache cache_;
    std::unique_ptr<PassStream> pass_;
    std::unique_ptr<Forward> forward_;
    Sampler sampler_;
    ExactVerifier verifier_;
};

// What an uninterrupted run says, without a session; and the whole text as tokens, for guesses.
struct Expected {
    Told told;
    std::vector<TokenId> future;
};
Expected expected_of(const Case& made) {
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

// Stops at each of `cuts` in turn, always in a new program, and goes on to the end.
void expect_the_same(const Case& made, const std::vector<std::int64_t>& cuts, const Expected& expected) {
    const TempFolder folder;
    const std::filesystem::path path = folder.path() / "s";
    for (const std::int64_t cut : cuts) {
        try {
            static_cast<void>(Program(made).tell(path, cut, expected.future));
        } catch (const Program::Cut&) {
            continue;
        }
    }
    for (int again = 0; again < 2; ++again) {  // the second time the session has ended
        const Told told = Program(made).tell(path, std::int64_t{1} << 40, expected.future);
        ASSERT_EQ(told.tokens, expected.told.tokens);
        ASSERT_EQ(told.text, expected.told.text);
        ASSERT_EQ(told.reason, expected.told.reason);
    }
}

TEST(SessionResume, BehindEveryToken) {
    for (const std::int64_t budget : {1, 8}) {
        const Case made{.budget = budget};
        const Expected expected = expected_of(made);
        ASSERT_EQ(std::ssize(expected.told.tokens), made.n_tokens);
        for (std::int64_t cut = 1; cut <= made.n_tokens; ++cut) expect_the_same(made, {cut}, expected);
        expect_the_same(made, {1, 2, 9, 10, 33}, expected);
    }
}

TEST(SessionResume, AtStopTextsAndHalfCharacters) {
    const Expected whole = expected_of({});
    // Stops out of the middle of the text, of one byte and more, across tokens.
    for (const std::size_t at : {9U, 31U, 58U}) {
        for (const std::size_t length : {1U, 5U}) {
            for (const std::int64_t budget : {1, 8}) {
                const Case made{.budget = budget, .stops = {whole.told.text.substr(at, length), "never there"}};
                const Expected expected = expected_of(made);
                EXPECT_EQ(expected.told.reason, StopReason::StopString);
                const std::int64_t n = std::ssize(expected.told.tokens);
                for (std::int64_t cut = std::max<std::int64_t>(1, n - 3); cut <= n; ++cut)
                    expect_the_same(made, {cut}, expected);
            }
        }
    }
}

TEST(SessionResume, WithKvReadOrComputedAgain) {
    // Around the borders of chunks and of pieces of prompt.
    for (const std::int64_t n_prompt : {200, 256, 500, 513, 1100}) {
        for (const std::size_t limit : {std::size_t{0}, kNoLimit}) {
            for (const std::int64_t budget : {1, 8}) {
                const Case made{.n_prompt = n_prompt, .n_tokens = 90, .budget = budget, .kv_limit = limit};
                expect_the_same(made, {20, 57, 70}, expected_of(made));
            }
        }
    }
}

TEST(SessionResume, WhereWeightsAndKvStream) {
    for (const std::int64_t n_prompt : {250, 600, 1100}) {
        for (const std::size_t limit : {std::size_t{0}, kNoLimit}) {
            for (const bool weights_stream : {false, true}) {
                const Case made{.n_prompt = n_prompt,
                                .n_tokens = 60,
                                .budget = 8,
                                .kv_limit = limit,
                                .resident_chunks = {0, 1},
                                .weights_stream = weights_stream};
                expect_the_same(made, {10, 31, 45}, expected_of(made));
            }
        }
    }
}

// One run may stream what the other has resident.
TEST(SessionResume, OnAnotherPlacement) {
    const Case resident{.n_prompt = 600, .n_tokens = 60, .budget = 8};
    Case streamed = resident;
    streamed.resident_chunks = {1, 0};
    streamed.weights_stream = true;
    const Expected expected = expected_of(resident);
    for (const auto& [first, second] : {std::pair(resident, streamed), std::pair(streamed, resident)}) {
        const TempFolder folder;
        EXPECT_THROW(static_cast<void>(Program(first).tell(folder.path() / "s", 25, expected.future)), Program::Cut);
        const Told told = Program(second).tell(folder.path() / "s", 1000, expected.future);
        EXPECT_EQ(told.tokens, expected.told.tokens);
        EXPECT_EQ(told.text, expected.told.text);
    }
}

TEST(SessionResume, ALimitKeepsTheFirstChunks) {
    const std::size_t chunk = 2 * KvShape{2, 16, DType::F16}.chunk_bytes();  // of both layers
    const Case made{.n_prompt = 900, .n_tokens = 40, .kv_limit = 2 * chunk + chunk / 2};
    const Expected expected = expected_of(made);
    const TempFolder folder;
    EXPECT_THROW(static_cast<void>(Program(made).tell(folder.path() / "s", 10, {})), Program::Cut);
    const Told told = Program(made).tell(folder.path() / "s", 1000, {});
    EXPECT_EQ(told.tokens, expected.told.tokens);
    EXPECT_EQ(told.fed_again, 910 - 512);
}

// Sessions of a length that was reached go on where more is asked for, as if it had been asked at once.
TEST(SessionResume, MoreMayBeAskedForLater) {
    Case made{.n_tokens = 30, .budget = 8};
    const Expected longer = expected_of({.n_tokens = 60});
    const TempFolder folder;
    const Told first = Program(made).tell(folder.path() / "s", 1000, longer.future);
    EXPECT_EQ(first.reason, StopReason::Length);
    made.n_tokens = 60;
    const Told second = Program(made).tell(folder.path() / "s", 1000, longer.future);
    EXPECT_EQ(second.tokens, longer.told.tokens);
    EXPECT_EQ(second.text, longer.told.text);
}

// A damaged block of KV is found, and the cache is empty then.
TEST(SessionResume, DamagedKvIsRefused) {
    const Case made{.n_prompt = 600, .n_tokens = 40};
    const TempFolder folder;
    const std::filesystem::path path = folder.path() / "s";
    EXPECT_THROW(static_cast<void>(Program(made).tell(path, 10, {})), Program::Cut);
    std::vector<std::byte> bytes = file_bytes(path);
    const SessionContents contents = read_session(bytes, "s");
    ASSERT_EQ(contents.kv_chunks.size(), 4U);
    bytes[static_cast<std::size_t>(contents.kv_chunks[2].payload.data() - bytes.data()) + 100] ^= std::byte{1};
    write_bytes(path, bytes);
    EXPECT_THROW(static_cast<void>(Program(made).tell(path, 1000, {})), FormatError);
    EXPECT_EQ(file_bytes(path), bytes);
}

}  // namespace
}  // namespace slipstream
