// Prompts of sessions that are cut off while they go layer by layer, at every step and within checkpoints: the next run
// goes on where the checkpoint was, on the same or another placement, with the text of one run in one go.
#include "runtime/session/session_prompt.h"

#include <fstream>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "runtime/loop/generation_loop.h"
#include "runtime/session/session_kv.h"
#include "tests/runtime/session_samples.h"
#include "tests/support/file_limit.h"
#include "tests/support/split_engine.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace slipstream {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr std::int64_t kTinyVocab = 97;
constexpr std::int64_t kLayers = 4;
constexpr std::int64_t kPromptTokens = 2300;  // four prefill chunks, and 252 tokens after them
constexpr std::int64_t kSteps = 5 * kLayers;
constexpr std::size_t kRing = std::size_t{1} << 19;  // holds the KV of a layer
constexpr std::size_t kSmallRing = 220 * 1024;       // does not, beside no weights
constexpr std::size_t kTinyRing = 90 * 1024;         // holds not even that of a prefill chunk
constexpr double kNoGap = 1e9;                       // seconds: a checkpoint only where the prompt is cancelled
// Runs over several devices are repeated up to so often: their threads may make all steps between two looks of the
// caller, which then neither kills nor cancels.
constexpr int kTries = 30;
constexpr std::int64_t kTokens = 4;
constexpr std::size_t kNoLimit = std::size_t{1} << 40;
constexpr std::int64_t kNever = 1 << 20;

// A model, and where it is.
struct Place {
    std::vector<std::int64_t> parts;  // layers of each device
    Streams streams = Streams::Both;
    std::size_t ring_bytes = kRing;
};

// When a run ends as if it were killed.
struct Killed {};
struct Kill {
    std::int64_t before_step = kNever;  // of this run
    std::int64_t in_save = kNever;      // the number of the chunk of hidden states, counted over all checkpoints
    std::int64_t cancel_at = kNever;    // not killed but cancelled before this step
    std::int64_t n_live = 0;            // positions of the prompt whose KV the cache has from an earlier prompt
    std::int64_t again_from = kNever;   // at its end, positions from here on are computed again, and one token more
};

struct Ran {
    std::vector<TokenId> tokens;  // generated
    std::int64_t n_saved = 0;     // steps that were saved before this run
    std::int64_t n_restored = 0;  // positions of KV
    std::int64_t n_steps = 0;     // steps of the prompt in this run
    std::int64_t n_kept = 0;      // at its end
    std::int64_t n_awaited = 0;   // calls of await_read
    std::string lost;
    std::optional<std::string> anew;
    bool killed = false;
};

class SessionPromptTest : public testing::Test {
protected:
    SessionPromptTest() : files_(make_tiny_model({.n_layers = kLayers, .context_tokens = SplitEngine::kContext})) {
        set_prompt(kPromptTokens);
    }
    void set_prompt(std::int64_t n_tokens) {
        prompt_.clear();
        for (std::int64_t i = 0; i < n_tokens; ++i)
            prompt_.push_back(static_cast<TokenId>((i * 31 + i / 9) % kTinyVocab));
    }

    // Without a path: no session.
    Ran run(const Place& place, const fs::path& path, const Kill& kill = {}, double gap = 0,
            std::size_t limit = kNoLimit) {
        SplitEngine engine(*files_, SplitKind::Layers, place.parts, place.streams, windowed_kv_, context_tokens_,
                           place.ring_bytes);
        RankTarget& target = *engine.target;
        std::optional<SessionFile> session;
        std::optional<SessionPrompt> prompt;
        std::optional<SessionKv> kv;
        std::atomic<bool> cancel = false;
        std::int64_t n_asked = 0;
        std::int64_t n_hidden = 0;
        std::atomic<std::int64_t> n_awaited = 0;  // by the threads of all devices
        Ran ran;
        Sampler sampler({.temperature = 0.9, .seed = 11}, kTinyVocab);
        ExactVerifier verifier(sampler);
        NoProposer none;
        GenerationLoop loop(engine.runner->sequence(), verifier, none, {.budget = 1, .end_tokens = {}});
        std::vector<TokenId> text = prompt_;
        if (kill.n_live > 0) {
            loop.resume({prompt_.begin(), prompt_.begin() + kill.n_live + 1}, kill.n_live + 1);
            static_cast<void>(loop.step(1, &cancel));
            engine.runner->sequence().keep_computed(kill.n_live);
        }
        if (!path.empty()) {
            session = SessionFile::open(path);
            if (!session) session = SessionFile::create(path, begin(target));
            text.insert(text.end(), session->tokens().begin(), session->tokens().end());
            kv.emplace(*session, target, limit);
            prompt.emplace(*session, target, static_cast<std::size_t>(files_->config().d_model) * sizeof(float), limit,
                           SessionPrompt::Gaps{SessionPrompt::Seconds(gap), SessionPrompt::Seconds(gap)});
            ran.lost = prompt->lost();
            if (const auto saved = prompt->saved()) {
                ran.n_saved = saved->n_steps();
                ran.n_restored = kv->restore({}, saved->begin);
            } else {
                ran.n_restored = kv->restore();
            }
            ran.anew = prompt->prepare();
            PromptCheckpoints& checkpoints = prompt->checkpoints();
            checkpoints.is_due = [&, due = checkpoints.is_due] {
                if (++n_asked == kill.before_step) throw Killed();
                if (n_asked == kill.cancel_at) cancel = true;
                return due();
            };
            checkpoints.save = [&, save = checkpoints.save](const PromptState& state, const PromptReader& reader) {
                PromptReader counted = reader;
                counted.hidden = [&](std::int64_t chunk) {
                    if (++n_hidden == kill.in_save) throw Killed();
                    return reader.hidden(chunk);
                };
                save(state, counted);
            };
            checkpoints.await_read = [&, await = checkpoints.await_read](std::int64_t chunk) {
                ++n_awaited;
                await(chunk);
            };
            loop.save_prompts(&checkpoints);
        }
        const auto n_prompt = std::ssize(prompt_);
        loop.resume(text, n_prompt);
        try {
            while (std::ssize(loop.text()) < n_prompt + kTokens) {
                const auto fresh = loop.step(n_prompt + kTokens - std::ssize(loop.text()), &cancel);
                if (cancel) break;
                if (!session) continue;
                session->append_tokens(fresh);
                EXPECT_EQ(kv->save(), std::nullopt);
                prompt->finish();
            }
            if (kill.again_from < kNever) {
                engine.runner->sequence().keep_computed(kill.again_from);
                EXPECT_EQ(loop.step(1, &cancel).size(), 1U);
            }
        } catch (const Killed&) {
            ran.killed = true;
        } catch (const RankFailed&) {
            ran.killed = true;
        }
        ran.tokens.assign(loop.text().begin() + n_prompt, loop.text().end());
        ran.n_steps = n_asked;
        ran.n_awaited = n_awaited;
        if (prompt) prompt->settle();
        if (prompt) ran.n_kept = prompt->n_kept();
        return ran;
    }

    [[nodiscard]] SessionBegin begin(const Target& target) const {
        SessionBegin begin = sample_begin();
        begin.context_tokens = context_tokens_;
        begin.vocab = kTinyVocab;
        begin.end_tokens.clear();
        begin.kv_bytes = session_kv_bytes(target.shape().kv);
        begin.prompt = prompt_;
        return begin;
    }
    [[nodiscard]] std::int64_t n_files() const {
        return std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator());
    }

    std::unique_ptr<ModelFiles> files_;
    std::vector<TokenId> prompt_;
    std::int64_t context_tokens_ = SplitEngine::kContext;
    WindowedKv windowed_kv_ = WindowedKv::Whole;
    TempFolder folder_;
    const fs::path path_ = folder_.path() / "s";
    const fs::path side_ = folder_.path() / "s.prompt";
};

// On one device and on two, with weights, with KV, with both streaming; KV of a layer at once, or chunk by chunk.
std::vector<Place> places() {
    return {{{kLayers}, Streams::Weights},        {{kLayers}, Streams::Kv}, {{kLayers}, Streams::Both},
            {{kLayers}, Streams::Kv, kSmallRing}, {{2, 2}, Streams::Both},  {{1, 3}, Streams::Weights}};
}

TEST_F(SessionPromptTest, KilledBeforeEachStepItGoesOn) {
    const Ran expected = run({{kLayers}, Streams::Nothing}, {});
    for (std::size_t i = 0; i < places().size(); ++i) {
        const Place place = places()[i];
        const bool is_one_device = place.parts.size() == 1;
        std::int64_t n_killed = 0;
        std::int64_t n_most = 0;  // steps that were saved
        const auto kill_before_each_step = [&] {
            for (std::int64_t step = 2; step < kSteps; ++step) {
                fs::remove(path_);
                const Ran killed = run(place, path_, {.before_step = step});
                if (!killed.killed) break;
                ++n_killed;
                EXPECT_EQ(fs::status(side_).permissions(), fs::perms::owner_read | fs::perms::owner_write);
                const Ran resumed = run(place, path_);
                EXPECT_EQ(resumed.tokens, expected.tokens) << i << " " << step;
                EXPECT_EQ(resumed.lost, "");
                n_most = std::max(n_most, resumed.n_saved);
                if (is_one_device) {
                    EXPECT_EQ(resumed.n_saved, step - 1) << i;
                } else {
                    EXPECT_GT(resumed.n_saved, 0) << i;
                }
                EXPECT_EQ(n_files(), 1) << "the side file is removed";
            }
        };
        kill_before_each_step();
        for (int tries = 1; !is_one_device && n_most <= kSteps / 2 + 1 && tries < kTries; ++tries)
            kill_before_each_step();
        EXPECT_GT(n_killed, is_one_device ? kLayers : 1) << i;
        EXPECT_GT(n_most, kSteps / 2 + 1) << i << ": the caller's thread also saves what other threads compute";
    }
}

// A prompt that one device began goes on over several, which may have no layer left to compute, or only the tokens
// after the last prefill chunk in their last one. What they keep can be read, cut off and computed again.
TEST_F(SessionPromptTest, CancelledOnOneDeviceItGoesOnOverSeveral) {
    const std::int64_t within_chunk = 1000;
    const Ran expected = run({{kLayers}, Streams::Nothing}, {}, {.again_from = within_chunk});
    const std::vector<Place> several{{{1, 3}, Streams::Weights},
                                     {{2, 2}, Streams::Both},
                                     {{2, 2}, Streams::Kv, kSmallRing},
                                     {{1, 2, 1}, Streams::Both}};
    for (const std::int64_t n_steps : {4, 5, 9, 10, 12, 14, 15, 17, 19}) {
        for (std::size_t i = 0; i < several.size(); ++i) {
            fs::remove(path_);
            EXPECT_EQ(run(places()[2], path_, {.cancel_at = n_steps - 1}, kNoGap).tokens.size(), 0U);
            const Ran resumed = run(several[i], path_, {.again_from = within_chunk});
            EXPECT_EQ(resumed.tokens, expected.tokens) << n_steps << " " << i;
            EXPECT_EQ(resumed.n_saved, n_steps) << i;
            EXPECT_EQ(resumed.lost, "");
            EXPECT_EQ(n_files(), 1);
        }
    }
}

// Layers that keep rings of nine KV chunks of the twelve of the prompt: checkpoints have the chunks that are kept.
TEST_F(SessionPromptTest, RingsOfWindowedLayersGoOn) {
    context_tokens_ = 3400;
    files_ = make_tiny_model({.n_layers = kLayers, .context_tokens = context_tokens_, .window = 40});
    set_prompt(3200);
    const Ran expected = run({{kLayers}, Streams::Nothing}, {});
    windowed_kv_ = WindowedKv::Ring;
    for (const Place& place : {Place{{kLayers}, Streams::Both}, Place{{kLayers}, Streams::Kv, kSmallRing},
                               Place{{kLayers}, Streams::Weights}, Place{{2, 2}, Streams::Both}}) {
        for (const std::int64_t step : {4, 8, 13, 20, 27}) {
            fs::remove(path_);
            const Ran killed = run(place, path_, {.before_step = step});
            if (!killed.killed) break;
            const Ran resumed = run(place, path_);
            EXPECT_EQ(resumed.tokens, expected.tokens) << step;
            EXPECT_EQ(resumed.lost, "");
            EXPECT_GT(resumed.n_saved, 0);
            if (place.parts.size() == 1) {
                EXPECT_EQ(resumed.n_saved, step - 1);
            }
            EXPECT_EQ(n_files(), 1) << "the side file is removed";
        }
        // Killed again and again, which ends with a prompt that begins after KV of an earlier one.
        fs::remove(path_);
        for (int i = 0; i < 20; ++i) {
            const Ran ran = run(place, path_, {.before_step = 5});
            EXPECT_EQ(ran.lost, "");
            if (ran.killed) continue;
            EXPECT_EQ(ran.tokens, expected.tokens);
            break;
        }
    }
}

// The prompt begins after the KV of an earlier one, which the first layers overwrite: it is saved before.
TEST_F(SessionPromptTest, RingsKeepWhatAPromptBeginsAfter) {
    context_tokens_ = 3400;
    files_ = make_tiny_model({.n_layers = kLayers, .context_tokens = context_tokens_, .window = 40});
    set_prompt(3200);
    const Ran expected = run({{kLayers}, Streams::Nothing}, {});
    windowed_kv_ = WindowedKv::Ring;
    for (const Streams streams : {Streams::Both, Streams::Weights}) {
        fs::remove(path_);
        // Saved only when it is cancelled, within the third layer.
        EXPECT_EQ(run({{kLayers}, streams}, path_, {.cancel_at = 10, .n_live = 1536}, kNoGap).tokens.size(), 0U);
        const Ran resumed = run({{kLayers}, streams}, path_);
        EXPECT_EQ(resumed.lost, "");
        EXPECT_GE(resumed.n_saved, 10);
        EXPECT_EQ(resumed.tokens, expected.tokens);
        EXPECT_EQ(n_files(), 1);
    }
}

// Each run is killed after two more steps, on another placement than the last: devices and memory are free.
TEST_F(SessionPromptTest, KilledOftenItEnds) {
    const Ran expected = run({{kLayers}, Streams::Nothing}, {});
    std::int64_t n_saved = 0;
    std::size_t n_runs = 0;
    for (;; ++n_runs) {
        ASSERT_LT(n_runs, 40U);
        const Ran ran = run(places()[n_runs % places().size()], path_, {.before_step = 3});
        EXPECT_EQ(ran.lost, "");
        EXPECT_GE(ran.n_saved, n_saved);
        n_saved = ran.n_saved;
        if (ran.killed) continue;
        EXPECT_EQ(ran.tokens, expected.tokens);
        break;
    }
    EXPECT_GT(n_runs, 3U);
    EXPECT_EQ(n_files(), 1);
}

// Between writing a slot and naming it: the slot before it counts.
TEST_F(SessionPromptTest, KilledWithinACheckpointTheOneBeforeCounts) {
    const Ran expected = run({{kLayers}, Streams::Nothing}, {});
    for (const Place& place : {places()[2], places()[4]}) {
        for (std::int64_t at = 1; at < 40; at += 5) {
            fs::remove(path_);
            if (!run(place, path_, {.in_save = at}).killed) {
                EXPECT_GT(at, 5);  // checkpoints are made between two steps of the caller
                break;
            }
            const Ran resumed = run(place, path_);
            EXPECT_EQ(resumed.tokens, expected.tokens) << at;
            EXPECT_EQ(resumed.n_saved > 0, at > 5) << at;
            EXPECT_EQ(resumed.lost.empty(), at > 5);
        }
    }
}

// A cancelled prompt is saved whether a checkpoint is due or not.
TEST_F(SessionPromptTest, CancelledItKeepsAllSteps) {
    const Ran expected = run({{kLayers}, Streams::Nothing}, {});
    for (const Place& place : places()) {
        Ran cancelled;
        for (int tries = 0; tries == 0 || (tries < kTries && place.parts.size() > 1 && !cancelled.tokens.empty());
             ++tries) {
            fs::remove(path_);
            cancelled = run(place, path_, {.cancel_at = 2}, kNoGap);
        }
        EXPECT_EQ(cancelled.tokens.size(), 0U);
        EXPECT_GE(cancelled.n_kept, kPromptTokens * 2 / kSteps);
        EXPECT_LT(cancelled.n_kept, kPromptTokens);
        const Ran resumed = run(place, path_, {}, kNoGap);
        EXPECT_EQ(resumed.tokens, expected.tokens);
        EXPECT_GE(resumed.n_saved, 2);
        EXPECT_EQ(n_files(), 1);
    }
}

// Before the first checkpoint the prompt begins anew; and checkpoints are made by time, not at each step.
TEST_F(SessionPromptTest, BeforeTheFirstCheckpointItBeginsAnew) {
    const Ran expected = run({{kLayers}, Streams::Nothing}, {});
    EXPECT_TRUE(run(places()[2], path_, {.before_step = 7}, kNoGap).killed);
    const Ran resumed = run(places()[2], path_, {}, kNoGap);
    EXPECT_EQ(resumed.n_saved, 0);
    EXPECT_THAT(resumed.lost, HasSubstr("s.prompt: no checkpoint of the prompt is whole"));
    EXPECT_EQ(resumed.tokens, expected.tokens);
    EXPECT_EQ(n_files(), 1);
}

// Any byte of the side file may be wrong, and its end missing: the text is the same, and one line says it.
TEST_F(SessionPromptTest, DamageCostsOnlyTheResume) {
    const Ran expected = run({{kLayers}, Streams::Nothing}, {});
    EXPECT_TRUE(run(places()[2], path_, {.before_step = 8}).killed);
    const std::vector<std::byte> session = file_bytes(path_);
    const std::vector<std::byte> side = file_bytes(side_);
    std::int64_t n_used = 0;
    std::int64_t n_lost = 0;
    for (std::size_t at = 0; at < side.size(); at += at < 80 ? 8 : side.size() / 12) {
        for (const bool is_cut : {false, true}) {
            std::vector<std::byte> damaged = side;
            if (is_cut) {
                damaged.resize(at);
            } else {
                damaged[at] ^= std::byte{0x10};
            }
            write_bytes(path_, session);
            write_bytes(side_, damaged);
            const bool is_foreign = at < 8;
            const Ran ran = run(places()[2], path_);
            EXPECT_EQ(ran.tokens, expected.tokens) << at << " " << is_cut;
            EXPECT_EQ(ran.n_saved == 0, !ran.lost.empty()) << at;
            EXPECT_EQ(ran.lost.find('\n'), std::string::npos);
            if (is_foreign) {  // a file of the user
                EXPECT_EQ(file_bytes(side_), damaged);
                EXPECT_THAT(ran.anew.value_or(""), HasSubstr("File exists"));
                fs::remove(side_);
            }
            EXPECT_EQ(n_files(), 1);
            ++(ran.n_saved > 0 ? n_used : n_lost);
        }
    }
    EXPECT_GT(n_used, 2);
    EXPECT_GT(n_lost, 10);
    // A session that lacks KV of the state, and one with another prompt.
    write_bytes(path_, std::span(session).first(session.size() / 2));
    write_bytes(side_, side);
    EXPECT_EQ(run(places()[2], path_).tokens, expected.tokens);
    fs::remove(path_);
    write_bytes(side_, side);
    prompt_[7] = 1;
    EXPECT_EQ(run(places()[2], path_).n_saved, 0);
    EXPECT_EQ(n_files(), 1);
}

// Where all is resident, prompts of their own do not go layer by layer on one device, but saved ones do; and they are
// saved again.
TEST_F(SessionPromptTest, WithoutStreamingItGoesOn) {
    const Ran expected = run({{kLayers}, Streams::Nothing}, {});
    for (const std::vector<std::int64_t>& parts : {std::vector<std::int64_t>{kLayers}, {2, 2}}) {
        bool is_resumed = false;
        for (int tries = 0; tries < kTries && !is_resumed; ++tries) {
            fs::remove(path_);
            EXPECT_TRUE(run(places()[2], path_, {.before_step = 8}).killed);
            const Ran killed = run({parts, Streams::Nothing}, path_, {.before_step = 4});
            EXPECT_EQ(killed.n_saved, 7);
            EXPECT_EQ(killed.lost, "");
            if (!killed.killed) continue;
            const Ran cancelled = run({parts, Streams::Nothing}, path_, {.cancel_at = 1}, kNoGap);
            EXPECT_GT(cancelled.n_saved, 7);
            if (!cancelled.tokens.empty()) continue;
            const Ran resumed = run({parts, Streams::Nothing}, path_);
            EXPECT_EQ(resumed.tokens, expected.tokens);
            EXPECT_GT(resumed.n_saved, cancelled.n_saved);
            EXPECT_EQ(n_files(), 1);
            is_resumed = true;
        }
        EXPECT_TRUE(is_resumed);
        fs::remove(path_);
    }
}

// The ring holds no KV of a layer: prompts cannot go layer by layer, and what was saved cannot be used.
TEST_F(SessionPromptTest, WithoutRoomItGoesOnAfterWholeChunks) {
    const Ran expected = run({{kLayers}, Streams::Nothing}, {});
    EXPECT_TRUE(run(places()[2], path_, {.before_step = 8}).killed);
    const Ran resumed = run({{kLayers}, Streams::Kv, kTinyRing}, path_);
    EXPECT_EQ(resumed.tokens, expected.tokens);
    EXPECT_EQ(resumed.n_saved, 0);
    EXPECT_THAT(resumed.lost, HasSubstr("cannot go layer by layer"));
    EXPECT_EQ(n_files(), 1);
}

// A slot of which everything but its head is written is not read: the one before it counts.
TEST_F(SessionPromptTest, ASlotThatWasNotNamedIsNotRead) {
    const PromptFileShape shape{
        .session_hash = 1, .begin = 0, .end = 1024, .n_after = 3, .row_bytes = 8, .after_bytes = {24, 24, 24}};
    std::vector<std::byte> rows(512 * 8);
    const auto hidden = [&](std::int64_t) { return rows.data(); };
    const auto on_read = [](std::int64_t) {};
    const PromptReader reader{
        .hidden = {}, .kv = {}, .rows_after = [](std::int64_t, std::byte* out) { std::fill_n(out, 24, std::byte{5}); }};
    const auto state = [&](std::vector<std::int64_t> n_layers) {
        return PromptState{.begin = 0, .end = 1024, .n_after = 3, .n_layers = std::move(n_layers)};
    };
    const auto read = [&] {
        auto file = PromptFile::open(path_, shape);
        return file ? file->read_state([](const PromptState&) { return true; }) : std::nullopt;
    };
    PromptFile file = PromptFile::create(path_, shape);
    EXPECT_EQ(read(), std::nullopt);
    std::vector<PromptState> saved;
    for (const PromptState& next : {state({1, 1, 1}), state({2, 2, 1}), state({2, 2, 2})}) {
        file.save_rows_after(next, reader);
        std::ranges::fill(rows, static_cast<std::byte>(next.n_steps()));
        std::int64_t n_read = 0;
        // Killed after the last hidden states are read and before they are named.
        EXPECT_THROW(file.save_hidden(next, hidden,
                                      [&](std::int64_t) {
                                          if (++n_read == 3) throw Killed();
                                      }),
                     Killed);
        EXPECT_EQ(read(), saved.empty() ? std::nullopt : std::optional(saved.back()));
        file.save_hidden(next, hidden, on_read);
        saved.push_back(next);
        EXPECT_EQ(read(), next);
    }
    EXPECT_EQ(fs::file_size(side_), shape.file_bytes());
    const auto head = PromptFile::read_head(path_);
    ASSERT_TRUE(head);
    EXPECT_EQ(head->file_bytes, shape.file_bytes());
    EXPECT_EQ(head->n_layers, 3);
}

// Before a step overwrites hidden states, it waits until the checkpoint has read them.
TEST_F(SessionPromptTest, HiddenStatesAreReadBeforeTheyAreOverwritten) {
    const Ran expected = run({{kLayers}, Streams::Nothing}, {});
    for (const Place& place : {places()[2], places()[4]}) {
        fs::remove(path_);
        const Ran ran = run(place, path_);
        EXPECT_EQ(ran.tokens, expected.tokens);
        EXPECT_GE(ran.n_awaited, ran.n_steps);
    }
}

TEST_F(SessionPromptTest, WhatDoesNotFitIsSaidAtTheStart) {
    EXPECT_THAT(run(places()[2], path_, {}, 0, 10000).anew.value_or(""), HasSubstr("more than --session-limit"));
    EXPECT_EQ(n_files(), 1);
    fs::remove(path_);
    const Ran enough = run(places()[2], path_, {.before_step = 8});
    EXPECT_EQ(enough.anew, std::nullopt);
    const std::size_t n_bytes = fs::file_size(side_);
    fs::remove(path_);
    fs::remove(side_);
    const FileLimit limit(n_bytes - 1);
    EXPECT_THAT(run(places()[2], path_, {.before_step = 8}).anew.value_or(""), HasSubstr("cannot be kept"));
}

// The side file of a session whose prompt was computed, and which was killed before it removed the file.
TEST_F(SessionPromptTest, AStaleSideFileIsRemoved) {
    EXPECT_TRUE(run(places()[2], path_, {.before_step = 8}).killed);
    const std::vector<std::byte> side = file_bytes(side_);
    const Ran whole = run(places()[2], path_);
    write_bytes(side_, side);
    EXPECT_EQ(run(places()[2], path_).tokens, whole.tokens);
    EXPECT_EQ(n_files(), 1);
}

}  // namespace
}  // namespace slipstream
