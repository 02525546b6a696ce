// Layers with a sliding window that keep a ring of their last KV chunks: texts, logits and KV are those of a cache that
// keeps everything, wherever KV and weights are, and after cuts, cancelled prompts, and restores.
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/cpu_device.h"
#include "runtime/cache/cache_fill.h"
#include "runtime/cache/kv_ring.h"
#include "runtime/pass/pass_schedule.h"
#include "runtime/pass/prompt_kv_areas.h"
#include "runtime/session/session_kv.h"
#include "tests/runtime/session_samples.h"
#include "tests/support/scripted_proposer.h"
#include "tests/support/split_engine.h"
#include "tests/support/target_texts.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"
#include "tests/support/viewed_model.h"

namespace slipstream {
namespace {

constexpr std::int64_t kLayers = 5;
constexpr std::int64_t kLongContext = 4096;
constexpr std::int64_t kSeveral = 60;  // generated tokens
constexpr std::size_t kSmallRing = std::size_t{1} << 17;
constexpr std::size_t kLargeRing = std::size_t{2} << 20;

std::unique_ptr<ModelFiles> windowed_model(std::int64_t window) {
    return make_tiny_model({.n_layers = kLayers, .context_tokens = kLongContext, .window = window, .gemma = true});
}

class Engine : public SplitEngine {
public:
    Engine(const ModelFiles& files, WindowedKv kv, Streams streams = Streams::Nothing,
           const std::vector<std::int64_t>& parts = {kLayers}, SplitKind kind = SplitKind::Layers,
           std::size_t ring = kSmallRing)
        : SplitEngine(files, kind, parts, streams, kv, kLongContext, ring) {}
    Engine(const ModelFiles& files, WindowedKv kv, Streams streams, std::size_t ring)
        : Engine(files, kv, streams, {kLayers}, SplitKind::Layers, ring) {}
};

void expect_same(const Generated& found, const Generated& expected, const char* what) {
    EXPECT_EQ(found.text, expected.text) << what;
    EXPECT_TRUE(same_bits(found.logits, expected.logits)) << what;
}

TEST(KvRing, KeepsTheWindowTheSlackAndTwoPrefillChunks) {
    // ceil((window + 1024 + 511) / 256) + 2
    EXPECT_EQ(kept_chunks(1, 1000), 8);
    EXPECT_EQ(kept_chunks(256, 1000), 9);
    EXPECT_EQ(kept_chunks(257, 1000), 9);
    EXPECT_EQ(kept_chunks(258, 1000), 10);
    EXPECT_EQ(kept_chunks(512, 1000), 10);
    EXPECT_EQ(kept_chunks(1024, 512), 12);
    EXPECT_EQ(kept_chunks(4096, 128), 24);
    EXPECT_EQ(kept_chunks(1024, 12), 12);
    EXPECT_EQ(kept_chunks(1024, 5), 5);
    EXPECT_EQ(kept_chunks(0, 512), 512);
    EXPECT_EQ(kept_chunks(INT64_MAX, 512), 512);
    EXPECT_EQ(kept_chunks(1024, 0), 0);
}

// Device and host memory, to the byte.
TEST(WindowedKv, TakesTheBytesOfTheRings) {
    const KvLayout layout{2, 16, DType::F16};
    const std::vector<KvLayout> layouts(3, layout);
    const std::vector<std::int64_t> windows{512, 0, 512};
    const std::size_t chunk = layout.chunk_bytes();
    const std::size_t scratch = 3 * 2 * 4 * layout.scratch_row_bytes();
    CpuDevice device({.n_threads = 1});
    {
        KvCache resident(device, layouts, 40 * kChunkTokens, 4, {.windows = windows});
        EXPECT_EQ(device.budget().used_bytes(MemoryTag::Kv), (10 + 40 + 10) * chunk + scratch);
        EXPECT_EQ(KvCache::device_bytes(layouts, 40 * kChunkTokens, 4, {}, windows), (10 + 40 + 10) * chunk + scratch);
        EXPECT_FALSE(resident.streams());
        EXPECT_EQ(resident.chunks(0)[3], resident.chunks(0)[33]);
        EXPECT_NE(resident.chunks(1)[3], resident.chunks(1)[33]);
    }
    // A ring with fewer resident chunks than it has streams as a whole.
    PinnedArena arena({.limit_bytes = std::size_t{64} << 20, .page_lock = PageLock::Pageable});
    const std::vector<std::int64_t> some{9, 9, 10};
    KvCache cache(device, layouts, 40 * kChunkTokens, 4,
                  {.resident_chunks = some, .arena = &arena, .windows = windows});
    EXPECT_EQ(device.budget().used_bytes(MemoryTag::Kv), (3 + 9 + 3 + 10) * chunk + scratch);
    EXPECT_EQ(KvCache::device_bytes(layouts, 40 * kChunkTokens, 4, some, windows), (3 + 9 + 3 + 10) * chunk + scratch);
    EXPECT_EQ(arena.used_bytes(), (10 + 31) * chunk);
    cache.host()->extents().wait(40);
    EXPECT_EQ(cache.host()->extents().brought_bytes(), (10 + 31) * chunk);
    EXPECT_EQ(cache.host()->chunk(0, 3), cache.host()->chunk(0, 33));
    EXPECT_EQ(cache.host()->extents().end_of_extent(0, 33), 40) << "a copy ends where the ring does";
    EXPECT_EQ(cache.host()->extents().end_of_extent(0, 30), 40);
    EXPECT_EQ(cache.host()->extents().end_of_extent(0, 29), 30);
    EXPECT_EQ(cache.host()->extents().end_of_extent(1, 10), 25);
}

// Windows and texts around chunk borders.
TEST(WindowedKv, TextsOfAnyLengthAreThoseOfTheWholeCache) {
    for (const std::int64_t window : {1, 255, 256, 257, 511, 512, 513}) {
        const auto files = windowed_model(window);
        Engine whole(*files, WindowedKv::Whole);
        Engine ring(*files, WindowedKv::Ring);
        Engine streamed(*files, WindowedKv::Ring, Streams::Both);
        for (const std::int64_t n_prompt : {255, 256, 257, 511, 512, 513, 2303, 2560}) {
            for (Engine* engine : {&whole, &ring, &streamed}) engine->target->truncate(0);
            const Generated expected = plainly(*whole.target, prompt_of(n_prompt), kSeveral);
            for (Engine* engine : {&ring, &streamed}) {
                expect_same(plainly(*engine->target, prompt_of(n_prompt), kSeveral), expected,
                            fmt::format("window {}, prompt {}", window, n_prompt).c_str());
                EXPECT_EQ(kv_of(*engine->target, *engine->target), kv_of(*whole.target, *engine->target));
            }
        }
    }
}

// The same in both splits, of texts that end around the window.
TEST(WindowedKv, SplitsGiveTheTextsOfTheWholeCacheAroundTheWindow) {
    struct Split {
        SplitKind kind;
        std::vector<std::int64_t> parts;
    };
    for (const std::int64_t window : {256, 512}) {
        const auto files = windowed_model(window);
        for (const Split& split : {Split{SplitKind::Layers, {2, 3}}, Split{SplitKind::Tensor, {1, 1}}}) {
            Engine whole(*files, WindowedKv::Whole, Streams::Nothing, split.parts, split.kind);
            Engine ring(*files, WindowedKv::Ring, Streams::Nothing, split.parts, split.kind);
            Engine streamed(*files, WindowedKv::Ring, Streams::Both, split.parts, split.kind);
            for (const std::int64_t n_prompt : {window - 1, window, window + 1}) {
                for (Engine* engine : {&whole, &ring, &streamed}) engine->target->truncate(0);
                const Generated expected = plainly(*whole.target, prompt_of(n_prompt), 20);
                for (Engine* engine : {&ring, &streamed}) {
                    expect_same(plainly(*engine->target, prompt_of(n_prompt), 20), expected,
                                fmt::format("window {}, prompt {}", window, n_prompt).c_str());
                    EXPECT_EQ(kv_of(*engine->target, *engine->target), kv_of(*whole.target, *engine->target));
                }
            }
        }
    }
}

// Plain decoding across the whole ring, chunk by chunk.
TEST(WindowedKv, DecodingGoesRoundTheRing) {
    for (const std::int64_t window : {255, 256, 257}) {
        const auto files = windowed_model(window);
        Engine whole(*files, WindowedKv::Whole);
        const Generated expected = plainly(*whole.target, prompt_of(5), 3000);
        for (const Streams streams : {Streams::Nothing, Streams::Kv}) {
            Engine ring(*files, WindowedKv::Ring, streams);
            expect_same(plainly(*ring.target, prompt_of(5), 3000), expected, "from 5 to 3005");
            EXPECT_EQ(ring.target->first_kept_chunk(1), 12 - 9);
            EXPECT_EQ(ring.target->first_kept_chunk(0), 0);
        }
    }
}

// Both splits, all placements, trees that a self-check computes again.
TEST(WindowedKv, EverySplitAndPlacementGivesTheTextLogitsAndKvOfTheWholeCache) {
    const auto files = windowed_model(256);
    struct Split {
        SplitKind kind;
        std::vector<std::int64_t> parts;
    };
    const Split splits[] = {{SplitKind::Layers, {kLayers}},
                            {SplitKind::Layers, {3, 2}},
                            {SplitKind::Layers, {1, 4}},
                            {SplitKind::Tensor, {1, 1}}};
    for (const Split& split : splits) {
        Engine whole(*files, WindowedKv::Whole, Streams::Nothing, split.parts, split.kind);
        for (const std::int64_t n_prompt : {513, 3300}) {
            whole.target->truncate(0);
            const Generated expected = plainly(*whole.target, prompt_of(n_prompt), kSeveral);
            for (const Streams streams : {Streams::Nothing, Streams::Weights, Streams::Kv, Streams::Both}) {
                Engine ring(*files, WindowedKv::Ring, streams, split.parts, split.kind);
                for (const bool trees : {false, true}) {
                    ring.target->truncate(0);
                    NoProposer nothing;
                    ScriptedProposer scripted(expected.text, 0.7, 3);
                    Proposer& proposer = trees ? static_cast<Proposer&>(scripted) : nothing;
                    expect_same(generate(*ring.target, prompt_of(n_prompt), kSeveral, proposer, trees ? 9 : 1,
                                         trees ? ring.plain : nullptr),
                                expected, fmt::format("prompt {}, {}", n_prompt, static_cast<int>(streams)).c_str());
                    EXPECT_EQ(kv_of(*ring.target, *ring.target), kv_of(*whole.target, *ring.target));
                }
            }
        }
    }
}

// A prompt layer by layer: a layer's KV in an area of the transfer ring, or read again for each prefill chunk.
TEST(WindowedKv, APromptByLayersKeepsTheRing) {
    const auto files = windowed_model(300);
    Engine whole(*files, WindowedKv::Whole);
    const auto by_layers = [&](Engine& engine, std::int64_t begin) {
        return engine.runner->forward().runs_by_layer(engine.runner->cache(), begin, 3584, kPrefillChunkTokens);
    };
    std::size_t least = kSmallRing;
    for (;; least += std::size_t{1} << 13) {
        Engine engine(*files, WindowedKv::Ring, Streams::Both, least);
        if (by_layers(engine, 0)) break;
    }
    for (const bool is_small : {false, true}) {
        const std::size_t bytes = is_small ? least : kLargeRing;
        Engine ring(*files, WindowedKv::Ring, Streams::Both, bytes);
        ASSERT_TRUE(by_layers(ring, 0));
        const std::size_t area = PromptKvAreas::area_bytes(ring.runner->cache(), 3584 / kChunkTokens);
        ASSERT_EQ(is_small, area > bytes) << "an area of " << area << " in " << bytes;
        // In one go; on from inside a KV chunk, with a cut inside the slack before it; and on from a border.
        for (const std::int64_t begin : {0, 700, 2500, 3072}) {
            for (Engine* engine : {&whole, &ring}) {
                engine->target->truncate(0);
                if (begin > 0) static_cast<void>(plainly(*engine->target, prompt_of(begin + 100), 2));
                engine->target->truncate(begin);
                ASSERT_EQ(engine->target->n_committed(), begin);
            }
            const Generated expected = plainly(*whole.target, prompt_of(3600), 9);
            expect_same(plainly(*ring.target, prompt_of(3600), 9), expected, fmt::format("from {}", begin).c_str());
            EXPECT_EQ(kv_of(*ring.target, *ring.target), kv_of(*whole.target, *ring.target));
        }
    }
}

// A window that reaches over the end of a ring takes two copies.
TEST(WindowedKv, SchedulesStayWithinTheirBounds) {
    const auto files = windowed_model(300);
    Engine ring(*files, WindowedKv::Ring, Streams::Kv, kLargeRing);
    KvCache& cache = ring.runner->cache();
    const PassReads reads{ring.models.front().get(), &cache};
    const std::int64_t most = most_scheduled_items(reads, kLargeRing);
    std::vector<ScheduleItem> items;
    std::vector<TransferItem> copies;
    std::int64_t n_longest = 0;
    for (std::int64_t n = 2400; n < 3000; n += 20) {
        fill_cache(cache, ring.runner->forward().exec(), n, 3);
        make_schedule(reads, cache.host()->n_chunks(), kLargeRing, items, copies);
        EXPECT_LE(std::ssize(items), most) << n;
        n_longest = std::max(n_longest, std::ssize(items));
    }
    EXPECT_EQ(n_longest, 1 + 3 * 2);  // of the layer without a window, and of three rings that stream
}

TEST(WindowedKv, ACutWithinTheSlackKeepsThePositions) {
    const auto files = windowed_model(257);
    Engine whole(*files, WindowedKv::Whole);
    for (const Streams streams : {Streams::Nothing, Streams::Kv, Streams::Both}) {
        for (const std::vector<std::int64_t>& parts : {std::vector<std::int64_t>{kLayers}, {2, 3}}) {
            Engine ring(*files, WindowedKv::Ring, streams, parts);
            for (const std::int64_t cut : {1, 256, 700, 1024}) {
                for (Engine* engine : {&whole, &ring}) {
                    engine->target->truncate(0);
                    static_cast<void>(plainly(*engine->target, prompt_of(3200), 50));
                    const std::int64_t left = engine->target->n_committed() - cut;
                    ASSERT_EQ(engine->target->positions_after_cut(left), left);
                    engine->target->truncate(left);
                    ASSERT_EQ(engine->target->n_committed(), left);
                }
                std::vector<TokenId> other = prompt_of(3249 - cut);
                other.resize(3249 - cut + 30, 11);
                const Generated expected = plainly(*whole.target, other, 40);
                expect_same(plainly(*ring.target, other, 40), expected, fmt::format("cut {}", cut).c_str());
                EXPECT_EQ(kv_of(*ring.target, *ring.target), kv_of(*whole.target, *ring.target));
            }
        }
    }
}

// Also a sequence that was cut to fewer tokens goes on as if nothing had been cut.
TEST(WindowedKv, ADeeperCutKeepsNothingAndTheTextIsTheSame) {
    const auto files = windowed_model(256);
    Engine whole(*files, WindowedKv::Whole);
    const Generated expected = plainly(*whole.target, prompt_of(1000), 2500);
    for (const Streams streams : {Streams::Nothing, Streams::Kv}) {
        for (const std::vector<std::int64_t>& parts : {std::vector<std::int64_t>{kLayers}, {1, 4}}) {
            Engine ring(*files, WindowedKv::Ring, streams, parts);
            Sampler sampler(kTinySampling, kTinyVocab);
            ExactVerifier verifier(sampler);
            NoProposer nothing;
            Sequence sequence(*ring.target);
            GenerationLoop loop(sequence, verifier, nothing, {.budget = 1, .end_tokens = {}});
            loop.begin(prompt_of(1000));
            while (std::ssize(loop.text()) < 3500) static_cast<void>(loop.step(3500 - std::ssize(loop.text())));
            ASSERT_EQ(loop.text(), expected.text);
            EXPECT_EQ(ring.target->positions_after_cut(1199), 0);
            loop.truncate(1200);
            EXPECT_EQ(sequence.n_computed(), 0);
            EXPECT_EQ(sequence.n_prefilled(), 0);
            while (std::ssize(loop.text()) < 3500) static_cast<void>(loop.step(3500 - std::ssize(loop.text())));
            EXPECT_EQ(loop.text(), expected.text);
            EXPECT_EQ(kv_of(*ring.target, *ring.target), kv_of(*whole.target, *ring.target));
        }
    }
}

// A cancelled prompt that ran by layers has overwritten the window of the positions before it, in some layers.
TEST(WindowedKv, ACancelledPromptKeepsOnlyWhatIsIntact) {
    const auto files = windowed_model(256);
    Engine whole(*files, WindowedKv::Whole);
    const Generated expected = plainly(*whole.target, prompt_of(3600), 20);
    for (const std::vector<std::int64_t>& parts : {std::vector<std::int64_t>{kLayers}, {2, 3}}) {
        for (const std::int64_t begin : {600, 3000}) {
            Engine ring(*files, WindowedKv::Ring, Streams::Both, parts, SplitKind::Layers, kLargeRing);
            static_cast<void>(plainly(*ring.target, prompt_of(begin), 1));
            ASSERT_EQ(ring.target->n_committed(), begin);
            Sampler sampler(kTinySampling, kTinyVocab);
            ExactVerifier verifier(sampler);
            NoProposer nothing;
            Sequence sequence(*ring.target);
            GenerationLoop loop(sequence, verifier, nothing, {.budget = 1, .end_tokens = {}});
            std::atomic<bool> cancel = false;
            int n_calls = 0;
            loop.begin(prompt_of(3600));
            const auto on_progress = [&](std::int64_t, std::int64_t) { cancel = ++n_calls > 2; };
            EXPECT_TRUE(loop.step(1, &cancel, on_progress).empty());
            ASSERT_GT(n_calls, 2);
            // 3,584 positions in rings of nine chunks: from 600 on the window is lost, from 3,000 on it is not.
            EXPECT_EQ(ring.target->n_committed(), begin == 600 ? 0 : begin);
            expect_same(plainly(*ring.target, prompt_of(3600), 20), expected, "after a cancelled prompt");
            EXPECT_EQ(kv_of(*ring.target, *ring.target), kv_of(*whole.target, *ring.target));
        }
    }
}

// restore() reads the chunks of a ring from which the sequence can be continued, and cut within the slack.
TEST(WindowedKv, IsRestoredFromTheChunksThatItKeeps) {
    const auto files = windowed_model(257);
    for (const Streams streams : {Streams::Nothing, Streams::Kv}) {
        for (const std::vector<std::int64_t>& parts : {std::vector<std::int64_t>{kLayers}, {2, 3}}) {
            Engine first(*files, WindowedKv::Ring, streams, parts);
            const Generated expected = plainly(*first.target, prompt_of(3300), 60);
            first.target->truncate(3328);
            Engine second(*files, WindowedKv::Ring, streams, parts);
            const auto read = [&](std::int64_t layer, std::int64_t chunk, std::byte* out) {
                ASSERT_GE(chunk, second.target->first_restored_chunk(layer, 3328));
                first.target->read_chunk(layer, chunk, out);
            };
            second.target->restore(0, 3328, read);
            EXPECT_EQ(second.target->first_kept_chunk(0), 0);
            EXPECT_EQ(second.target->first_kept_chunk(1), (3328 - 1024 + 1 - 257) / kChunkTokens);
            EXPECT_EQ(second.target->positions_after_cut(3328 - 1024), 3328 - 1024);
            EXPECT_EQ(second.target->positions_after_cut(1000), 0);
            second.target->truncate(3328 - 1024);
            expect_same(plainly(*second.target, prompt_of(3300), 60), expected, "restored and cut");
            // A read that fails loses all positions whose window it has begun to overwrite.
            second.target->truncate(0);
            EXPECT_THROW(second.target->restore(0, 3328,
                                                [&](std::int64_t layer, std::int64_t chunk, std::byte* out) {
                                                    if (chunk == 12) throw IoError("damaged");
                                                    read(layer, chunk, out);
                                                }),
                         Error);
            EXPECT_EQ(second.target->n_committed(), 0);
            EXPECT_EQ(second.target->first_kept_chunk(1), 0);
            expect_same(plainly(*second.target, prompt_of(3300), 60), expected, "after a failed restore");
        }
    }
}

SessionBegin begin_of(const Target& target, const std::vector<TokenId>& prompt, std::uint32_t version) {
    SessionBegin begin = sample_begin();
    begin.version = version;
    begin.context_tokens = kLongContext;
    begin.kv_bytes = session_kv_bytes(target.shape().kv, version);
    begin.prompt = prompt;
    return begin;
}

/// Begins a session of either version with a text of the target, and saves its KV. Returns what save() returns.
std::optional<std::string> save_to(const std::filesystem::path& path, Target& target, const Generated& text,
                                   std::int64_t n_prompt, std::uint32_t version) {
    const std::span<const TokenId> tokens(text.text);
    SessionFile session =
        SessionFile::create(path, begin_of(target, {tokens.begin(), tokens.begin() + n_prompt}, version));
    session.append_tokens(tokens.subspan(static_cast<std::size_t>(n_prompt)));
    return SessionKv(session, target, std::size_t{1} << 30).save();
}

// A session has the chunks that rings kept when it was saved; sessions of caches without rings have all and go on, too.
TEST(WindowedKv, SessionsGoOn) {
    const auto files = windowed_model(257);
    const TempFolder folder;
    Engine whole(*files, WindowedKv::Whole);
    const Generated all = plainly(*whole.target, prompt_of(3300), 90);
    for (const Streams streams : {Streams::Nothing, Streams::Kv}) {
        const auto path = folder.path() / fmt::format("session{}", static_cast<int>(streams));
        Engine first(*files, WindowedKv::Ring, streams, {2, 3});
        const Generated begun = plainly(*first.target, prompt_of(3300), 60);
        EXPECT_EQ(save_to(path, *first.target, begun, 3300, kSessionVersion), std::nullopt);
        const auto go_on = [&](Engine& engine, std::int64_t n_restored) {
            auto session = SessionFile::open(path);
            std::int64_t done = 0;
            std::int64_t total = 0;
            EXPECT_EQ(SessionKv(*session, *engine.target, std::size_t{1} << 30)
                          .restore([&](std::int64_t n, std::int64_t n_all) { done = n, total = n_all; }),
                      n_restored);
            EXPECT_EQ(done, total);
            NoProposer nothing;
            EXPECT_EQ(generate(*engine.target, begun.text, 30, nothing, 1).text, all.text);
        };
        Engine second(*files, WindowedKv::Ring, streams, {4, 1});
        go_on(second, 13 * kChunkTokens);
        // A cut within the slack keeps its positions after a restore.
        EXPECT_EQ(second.target->positions_after_cut(13 * kChunkTokens - 1000), 13 * kChunkTokens - 1000);
        // A cache that keeps everything lacks the first chunks and computes the text again.
        Engine third(*files, WindowedKv::Whole, streams);
        go_on(third, 0);
    }
    for (const std::uint32_t version : {1, 2}) {
        const auto path = folder.path() / fmt::format("old{}", version);
        Engine old(*files, WindowedKv::Whole);
        const Generated begun = plainly(*old.target, prompt_of(700), 10);
        EXPECT_EQ(save_to(path, *old.target, begun, 700, version), std::nullopt);
        auto session = SessionFile::open(path);
        Engine ring(*files, WindowedKv::Ring);
        SessionKv kv(*session, *ring.target, std::size_t{1} << 30);
        EXPECT_EQ(kv.restore(), 2 * kChunkTokens);
        NoProposer nothing;
        const Generated longer = generate(*ring.target, begun.text, 2600, nothing, 1);
        session->append_tokens(std::span(longer.text).subspan(begun.text.size()));
        // Only now: version 1 has its blocks in order, and the first of them are gone.
        const std::string refused = kv.save().value_or("");
        EXPECT_EQ(refused.find("older version") != std::string::npos, version == 1) << refused;
        EXPECT_EQ(kv.save(), std::nullopt);
    }
}

// A lost block of a window leaves the chunks before it, if the windows of these are there.
TEST(WindowedKv, ASessionWithALostBlockGoesBackToAWholeWindow) {
    const auto files = windowed_model(40);
    const TempFolder folder;
    const auto path = folder.path() / "session";
    Engine ring(*files, WindowedKv::Ring);
    {
        const Generated text = plainly(*ring.target, prompt_of(3300), 40);
        EXPECT_EQ(save_to(path, *ring.target, text, 3300, kSessionVersion), std::nullopt);
    }
    // Chunks 13 - 9 + 1 = 5 to 12 of each ring are there; 12 chunks need those from (3072 - 1063) / 256 = 7 on.
    for (const auto& [lost, n_chunks] : {std::pair(12, 12), std::pair(10, 10), std::pair(7, 13)}) {
        auto session = SessionFile::open(path);
        session->drop_damaged_kv(3, lost);
        ring.target->truncate(0);
        EXPECT_EQ(SessionKv(*session, *ring.target, std::size_t{1} << 30).restore(), n_chunks * kChunkTokens) << lost;
    }
    auto session = SessionFile::open(path);
    session->drop_damaged_kv(3, 9);
    session->drop_damaged_kv(0, 2);
    ring.target->truncate(0);
    EXPECT_EQ(SessionKv(*session, *ring.target, std::size_t{1} << 30).restore(), 0);
}

// A view of the whole text copies groups of a ring that are overwritten, too: they are outside every window. Built from
// resident and streamed rings; on after commits and cuts within the slack; invalid after a deeper cut.
TEST(WindowedKv, AViewGivesTheBitsOfTheCache) {
    const auto files = windowed_model(257);
    const ViewOptions whole{.budget_tokens = kLongContext, .rebuild_tokens = 100, .growth_tokens = 128};
    const std::vector<std::int64_t> windows = layer_windows(files->config());
    for (const std::vector<std::int64_t>& resident :
         {std::vector<std::int64_t>{}, {0, 0, 99, 0, 0}, {3, 99, 99, 99, 99}}) {
        CpuDevice device({.n_threads = 1});
        ViewedModel viewed(*files, device, whole, resident, windows, kLongContext);
        viewed.feed(3000);
        ASSERT_GT(viewed.cache.first_kept_chunk(1), 0);
        viewed.run_until_built();
        EXPECT_TRUE(viewed.same_logits());
        viewed.run(6, 3);  // grown by rows of the cache's scratch
        EXPECT_TRUE(viewed.same_logits());
        viewed.target->truncate(viewed.cache.n_committed() - 2);
        EXPECT_TRUE(viewed.same_logits());
        viewed.target->truncate(700);
        EXPECT_EQ(viewed.cache.n_committed(), 0);
        EXPECT_EQ(viewed.view.n_text(), 0);
    }
}

}  // namespace
}  // namespace slipstream
