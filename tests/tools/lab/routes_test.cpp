// Traces of routes, what they say, and policies for slots: known answers on hand-made traces, damaged files, and the
// program on models of random weights.
#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "runtime/model/rope.h"
#include "tests/support/error_text.h"
#include "tests/support/split_engine.h"
#include "tests/support/target_texts.h"
#include "tests/support/tiny_model.h"
#include "tests/tools/run_program.h"
#include "tests/tools/temporary_folder.h"
#include "tools/lab/random_model/random_model_file.h"
#include "tools/lab/routes/route_figures.h"
#include "tools/lab/routes/route_recording.h"
#include "tools/lab/routes/route_trace.h"
#include "tools/lab/routes/slot_policies.h"

namespace slipstream::tools {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

RoutedLayer layer_of(std::int64_t n_experts, const std::vector<std::vector<std::uint16_t>>& chosen) {
    RoutedLayer layer{.n_experts = n_experts, .n_chosen = std::ssize(chosen.front())};
    for (const auto& ids : chosen) layer.ids.insert(layer.ids.end(), ids.begin(), ids.end());
    return layer;
}

SlotFigures replayed(SlotPolicy policy, const RoutedLayer& layer, std::int64_t n_slots) {
    return replay_slots(policy, layer, std::ssize(layer.ids) / layer.n_chosen, n_slots);
}

std::string bytes_of(const RouteTrace& trace) {
    std::string bytes;
    write_routes(trace, [&](std::span<const std::byte> some) {
        bytes.append(reinterpret_cast<const char*>(some.data()), some.size());
    });
    return bytes;
}

RouteTrace random_trace(std::uint32_t seed, std::int64_t n_tokens = 40) {
    std::mt19937 random(seed);
    RouteTrace trace{.model = "a model", .n_tokens = n_tokens};
    for (const auto& [layer, n_experts, n_chosen] : {std::tuple{1, 16, 3}, {2, 9, 9}, {5, 300, 1}}) {
        RoutedLayer& routed =
            trace.layers.emplace_back(RoutedLayer{.layer = layer, .n_experts = n_experts, .n_chosen = n_chosen});
        std::vector<std::uint16_t> all(static_cast<std::size_t>(n_experts));
        for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
        for (std::int64_t token = 0; token < n_tokens; ++token)
            std::ranges::sample(all, std::back_inserter(routed.ids), n_chosen, random);  // keeps the order
    }
    return trace;
}

/// `n_chosen` different experts a token, drawn with probabilities 1 / (rank + 1); expert and rank are not the same.
RoutedLayer zipf_layer(std::int64_t n_experts, std::int64_t n_chosen, std::int64_t n_tokens, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<double> weights;
    for (std::int64_t i = 0; i < n_experts; ++i)
        weights.push_back(1.0 / static_cast<double>((i * 7 + 3) % n_experts + 1));
    std::discrete_distribution<int> draw(weights.begin(), weights.end());
    std::vector<std::vector<std::uint16_t>> all;
    for (std::int64_t token = 0; token < n_tokens; ++token) {
        std::vector<std::uint16_t>& chosen = all.emplace_back();
        while (std::ssize(chosen) < n_chosen) {
            const auto expert = static_cast<std::uint16_t>(draw(random));
            if (std::ranges::find(chosen, expert) == chosen.end()) chosen.push_back(expert);
        }
        std::ranges::sort(chosen);
    }
    return layer_of(n_experts, all);
}

TEST(RouteTrace, ComesBackAsItWasWritten) {
    for (std::uint32_t seed = 0; seed < 10; ++seed) {
        const RouteTrace trace = random_trace(seed, 1 + 13 * seed);
        EXPECT_EQ(parse_routes(bytes_of(trace), "t"), trace);
    }
}

/// Parses and checks that an error is one line with the file's name, and that a trace is sound.
bool is_refused(std::string_view bytes) {
    try {
        const RouteTrace trace = parse_routes(bytes, "name");
        EXPECT_GE(trace.n_tokens, 1);
        for (const RoutedLayer& layer : trace.layers) {
            EXPECT_EQ(std::ssize(layer.ids), trace.n_tokens * layer.n_chosen);
            for (std::int64_t token = 0; token < trace.n_tokens; ++token) {
                const auto chosen = layer.chosen(token);
                EXPECT_EQ(std::ranges::adjacent_find(chosen, std::ranges::greater_equal()), chosen.end());
                EXPECT_LT(chosen.back(), layer.n_experts);
            }
        }
        static_cast<void>(routes_table(route_figures(trace)));
        return false;
    } catch (const FormatError& error) {
        const std::string what = error.what();
        EXPECT_THAT(what, testing::StartsWith("name"));
        EXPECT_EQ(std::ranges::count(what, '\n'), 0) << what;
        return true;
    }
}

std::string damaged(std::string bytes, std::mt19937& random) {
    const auto at = [&] { return random() % bytes.size(); };
    switch (random() % 4) {
        case 0:
            bytes.resize(at());
            break;
        case 1:
            bytes[at()] ^= static_cast<char>(1U << (random() % 8));
            break;
        case 2:
            for (std::size_t i = at(), n = 0; i < bytes.size() && n < 4; ++i, ++n) bytes[i] = '\xff';
            break;
        default:
            bytes.insert(at(), 1 + random() % 9, static_cast<char>(random()));
    }
    return bytes;
}

TEST(RouteTrace, DamagedFilesGiveOneLine) {
    std::mt19937 random(5);
    const std::string whole = bytes_of(random_trace(1));
    for (int i = 0; i < 500; ++i) {
        const std::string bytes = damaged(whole, random);
        if (bytes == whole) continue;
        EXPECT_TRUE(is_refused(bytes)) << i;
    }
}

// The container's checksum is right, so that the fields themselves are checked.
TEST(RouteTrace, DamagedSectionsGiveOneLine) {
    std::mt19937 random(6);
    const std::string whole = bytes_of(random_trace(2));
    const auto file = [](std::span<const std::byte> fields) {
        std::string bytes;
        const draft::TableSection section{"routes", draft::TableWriter(fields)};
        draft::write_table_bytes({&section, 1}, [&](std::span<const std::byte> some) {
            bytes.append(reinterpret_cast<const char*>(some.data()), some.size());
        });
        return bytes;
    };
    const std::string fields = whole.substr(64);
    ASSERT_EQ(file(std::as_bytes(std::span(fields))), whole);
    int n_refused = 0;
    for (int i = 0; i < 500; ++i) {
        std::string changed = fields;
        if (i % 2 == 0) {
            changed = damaged(fields, random);
        } else {  // of the numbers before the ids
            changed[random() % 128] ^= static_cast<char>(1U << (random() % 8));
        }
        n_refused += is_refused(file(std::as_bytes(std::span(changed)))) ? 1 : 0;
    }
    EXPECT_GT(n_refused, 300);
}

TEST(RouteTrace, SaysWhatIsWrong) {
    const auto wrong = [](const auto& change) {
        RouteTrace trace = random_trace(3);
        change(trace);
        return error_text<FormatError>([&] { static_cast<void>(parse_routes(bytes_of(trace), "t")); });
    };
    EXPECT_THAT(wrong([](RouteTrace& t) { t.layers[0].ids[5] = 16; }),
                HasSubstr("t, section routes: token 1 chose expert 16 of the 16 of layer 1"));
    EXPECT_THAT(wrong([](RouteTrace& t) { t.layers[0].ids[4] = t.layers[0].ids[5]; }),
                HasSubstr("the experts of token 1 in layer 1 do not ascend"));
    EXPECT_THAT(wrong([](RouteTrace& t) { t.layers[1].layer = 1; }), HasSubstr("layer 1 after layer 1"));
    EXPECT_THAT(wrong([](RouteTrace& t) { t.layers[1].n_chosen = 10; }), HasSubstr("10 of 9 experts in layer 2"));
    EXPECT_THAT(wrong([](RouteTrace& t) { t.layers.clear(); }), HasSubstr("0 layers with experts"));
    EXPECT_THAT(wrong([](RouteTrace& t) { t.n_tokens = 41; }), HasSubstr("520 choices of 41 tokens"));
    EXPECT_THAT(wrong([](RouteTrace& t) { t.n_tokens = std::int64_t{1} << 62; }), HasSubstr("520 choices of"));
    EXPECT_THAT(error_text<FormatError>([] { static_cast<void>(parse_routes("GGUF", "t")); }),
                HasSubstr("t: not a table file"));
    EXPECT_THAT(error_text<FormatError>([] { static_cast<void>(parse_routes("", "t")); }), HasSubstr("t"));
}

TEST(PublicRoutes, AreReadAsTokensThatAllLayersHave) {
    const std::string text = file_text(source_path("tests/tools/lab/routes.csv"));
    const RouteTrace trace = parse_routes(text, "routes.csv");
    EXPECT_EQ(trace.model, "made-by-hand.gguf");
    EXPECT_EQ(trace.n_tokens, 8);
    EXPECT_EQ(trace.n_left_out, 1) << "the prompt's first token has no rows in the last layer";
    ASSERT_EQ(trace.layers.size(), 2U);
    EXPECT_EQ(trace.layers[0].layer, 0);
    EXPECT_EQ(trace.layers[1].layer, 3);
    EXPECT_EQ(trace.layers[0], (layer_of(4, {{0, 1}, {0, 1}, {0, 1}, {0, 1}, {0, 1}, {0, 1}, {0, 1}, {0, 1}})));
    EXPECT_EQ(trace.layers[1].ids, (layer_of(4, {{1, 2}, {2, 3}, {0, 3}, {0, 1}, {1, 2}, {2, 3}, {0, 3}, {0, 1}}).ids));
    RouteTrace stored = trace;
    stored.n_left_out = 0;
    EXPECT_EQ(parse_routes(bytes_of(trace), "t"), stored);

    std::mt19937 random(7);
    for (int i = 0; i < 500; ++i) {
        const std::string bytes = damaged(text, random);
        if (bytes.starts_with(kPublicRoutes)) is_refused(bytes);
    }
    const auto wrong = [&](const std::string& from, const std::string& to) {
        std::string changed = text;
        changed.replace(changed.find(from), from.size(), to);
        return error_text<FormatError>([&] { static_cast<void>(parse_routes(changed, "r")); });
    };
    EXPECT_EQ(wrong("0,1,2,0,0,1,", "0,1,2,0,0,4,"), "r:12: expert is no number from 0 to 3");
    EXPECT_EQ(wrong("0,1,2,0,0,1,", "0,1,2,0,0,0,"), "r: turn 0, step 2, layer 0: expert 0 twice");
    EXPECT_EQ(wrong("0,1,2,0,0,1,", "0,1,2,3,0,1,"), "r: turn 0, step 2, layer 0: it has not 2 experts");
    EXPECT_EQ(wrong("0,1,2,0,0,1,0.5", "0,1,2,0,0,1,0.5,0.5"), "r:12: a row of more than 9 fields");
    EXPECT_EQ(wrong("0,1,2,0,0,1,0.5,0,1", "0,1,2"), "r:12: a row of 3 fields, not 9");
    EXPECT_EQ(wrong("n_expert_used=2", "n_expert_used=5"), "r:2: 5 of 4 experts");
    EXPECT_THAT(wrong("model=", "mode="), HasSubstr("r:6: a row before the line '# model="));
    EXPECT_EQ(error_text<FormatError>([] { static_cast<void>(parse_routes(kPublicRoutes, "r")); }),
              "r: a trace of routes without rows");
}

TEST(RouteFigures, CountTheExpertsOfNeighbours) {
    // In brackets what is new in windows of 2: {2}, {0}, {}, {3}.
    const RoutedLayer layer = layer_of(4, {{0, 1}, {1, 2}, {0, 2}, {0, 2}, {2, 3}});
    const NeighbourFigures two = neighbour_figures(layer, 5, 2);
    EXPECT_DOUBLE_EQ(two.distinct, (3 + 3 + 2 + 3) / 4.0 / 2.0);
    EXPECT_DOUBLE_EQ(two.fresh, 3.0 / 8.0);
    EXPECT_DOUBLE_EQ(two.even, 4.0 * (1.0 - 0.25) / 2.0);
    const NeighbourFigures four = neighbour_figures(layer, 5, 4);
    EXPECT_DOUBLE_EQ(four.distinct, (3 + 4) / 2.0 / 2.0);
    EXPECT_DOUBLE_EQ(four.fresh, 1.0 / 4.0);

    // By brute force on random routes.
    const RouteTrace trace = random_trace(9, 70);
    for (const RoutedLayer& random : trace.layers)
        for (const std::int64_t n : kNeighbours) {
            std::int64_t distinct = 0;
            std::int64_t fresh = 0;
            for (std::int64_t begin = 0; begin + n <= 70; ++begin) {
                std::vector<int> seen(static_cast<std::size_t>(random.n_experts));
                for (std::int64_t token = begin; token < begin + n; ++token)
                    for (const std::uint16_t expert : random.chosen(token)) {
                        if (token == begin + n - 1 && seen[expert] == 0) ++fresh;
                        distinct += seen[expert]++ == 0 ? 1 : 0;
                    }
            }
            const double of_all = static_cast<double>((70 - n + 1) * random.n_chosen);
            EXPECT_DOUBLE_EQ(neighbour_figures(random, 70, n).distinct, static_cast<double>(distinct) / of_all);
            EXPECT_DOUBLE_EQ(neighbour_figures(random, 70, n).fresh, static_cast<double>(fresh) / of_all);
        }
}

TEST(RouteFigures, LeaveOutWindowsThatTheTextIsTooShortFor) {
    const RouteFigures figures = route_figures(random_trace(4, 9));
    ASSERT_EQ(figures.all.neighbours.size(), 3U);
    EXPECT_EQ(figures.all.neighbours.back().tokens, 8);
    EXPECT_EQ(figures.layers[1].neighbours.back().distinct, 1.0) << "all experts are chosen";
    EXPECT_EQ(figures.layers[1].neighbours.back().even, 1.0);
    EXPECT_EQ(figures.layers[1].neighbours.back().fresh, 0.0);
    EXPECT_THAT(routes_table(figures), AllOf(HasSubstr("3 layers with experts"), HasSubstr("9 tokens")));
    const RouteFigures one = route_figures(random_trace(4, 1));
    EXPECT_TRUE(one.all.neighbours.empty());
    EXPECT_EQ(one.all.slots[0][0].n_tokens, 0);
}

TEST(SlotPolicies, AllRowsToOneExpertHitFromTheSecondTokenOn) {
    const RoutedLayer layer = layer_of(5, std::vector<std::vector<std::uint16_t>>(10, {3}));
    for (const auto& [name, policy] : kSlotPolicies) {
        const SlotFigures figures = replayed(policy, layer, 1);
        EXPECT_EQ(figures.chosen, 5) << name;
        EXPECT_EQ(figures.hits, 5) << name;
        EXPECT_EQ(figures.copied, 0) << name;
    }
}

TEST(SlotPolicies, ATokenThatNeedsMoreThanThereAreSlots) {
    const RoutedLayer layer = layer_of(4, std::vector<std::vector<std::uint16_t>>(8, {0, 1, 2, 3}));
    for (const auto& [name, policy] : kSlotPolicies)
        for (const std::int64_t n_slots : {1, 3, 4}) {
            const SlotFigures figures = replayed(policy, layer, n_slots);
            EXPECT_EQ(figures.hits, 4 * n_slots) << name;  // no victim that the token needs: those that are there stay
            EXPECT_EQ(figures.copied, 0) << name;
        }
}

// Two slots, three experts in turn: LRU loses each before it comes again; counts and a fixed set keep two of them; who
// knows the future has a hit every second token.
TEST(SlotPolicies, ACycleThatIsOneTooLong) {
    std::vector<std::vector<std::uint16_t>> chosen;
    for (std::uint16_t i = 0; i < 24; ++i) chosen.push_back({static_cast<std::uint16_t>(i % 3)});
    const RoutedLayer layer = layer_of(3, chosen);
    EXPECT_EQ(replayed(SlotPolicy::Lru, layer, 2).hits, 0);
    EXPECT_EQ(replayed(SlotPolicy::Lru, layer, 2).copied, 12);
    EXPECT_EQ(replayed(SlotPolicy::Fixed, layer, 2).hits, 8);
    EXPECT_EQ(replayed(SlotPolicy::Fixed, layer, 2).copied, 0);
    EXPECT_EQ(replayed(SlotPolicy::Best, layer, 2).hits, 8) << "a miss may leave what is there, so two of three";
    EXPECT_EQ(replayed(SlotPolicy::Counts, layer, 2).hits, 8);
}

TEST(SlotPolicies, TiesGoToTheLowerId) {
    // The slots are full of 1 and 2, which were last used together; 3 takes the slot of 1.
    const RoutedLayer layer = layer_of(4, {{1, 2}, {1, 2}, {0, 3}, {2, 3}});
    EXPECT_EQ(replayed(SlotPolicy::Lru, layer, 2).hits, 1) << "0 and 3 took both slots";
    EXPECT_EQ(replayed(SlotPolicy::Lru, layer, 3).hits, 2) << "0 took the free one, 3 that of 1";
    EXPECT_EQ(replayed(SlotPolicy::Fixed, layer, 1).hits, 0) << "1, not 2";
    EXPECT_EQ(replayed(SlotPolicy::Fixed, layer, 2).hits, 1);
}

/// Most hits in the second half, from any slots at its beginning, of all that may be held after each token: what was
/// held and what was chosen. By trying all sets of the layer's few experts.
std::int64_t most_hits(const RoutedLayer& layer, std::int64_t n_tokens, std::int64_t n_slots) {
    std::vector<std::int64_t> most(std::size_t{1} << layer.n_experts);  // by what is held before the next token
    for (std::int64_t token = n_tokens - 1; token >= n_tokens / 2; --token) {
        std::uint32_t chosen = 0;
        for (const std::uint16_t expert : layer.chosen(token)) chosen |= 1U << expert;
        std::vector<std::int64_t> before(most.size());
        for (std::uint32_t held = 0; held < most.size(); ++held) {
            if (std::popcount(held) > n_slots) continue;
            for (std::uint32_t next = 0; next < most.size(); ++next)
                if (std::popcount(next) <= n_slots && (next & ~(held | chosen)) == 0)
                    before[held] = std::max(before[held], std::popcount(held & chosen) + most[next]);
        }
        most = before;
    }
    return std::ranges::max(most);
}

TEST(SlotPolicies, BestIsTheBestOfAllThatTakeWhatATokenChose) {
    std::mt19937 random(11);
    for (int i = 0; i < 50; ++i) {
        std::vector<std::vector<std::uint16_t>> all;
        for (int token = 0; token < 24; ++token) {
            std::vector<std::uint16_t> ids{0, 1, 2, 3, 4};
            std::vector<std::uint16_t>& chosen = all.emplace_back();
            std::ranges::sample(ids, std::back_inserter(chosen), 2, random);
        }
        const RoutedLayer layer = layer_of(5, all);
        for (const std::int64_t n_slots : {1, 2, 3, 4}) {
            const std::int64_t most = most_hits(layer, 24, n_slots);
            EXPECT_EQ(replayed(SlotPolicy::Best, layer, n_slots).hits, most);
            for (const auto& [name, policy] : kSlotPolicies)
                EXPECT_LE(replayed(policy, layer, n_slots).hits, most) << name;
        }
    }
}

// The bar of the design: hits of LRU less 0.01 at most, for half of its copies. With half of all experts in slots, LRU
// misses so seldom that its copies are only more.
TEST(SlotPolicies, CountsHitAsOftenAsLruForHalfTheCopiesWhereExpertsAreUsedByZipf) {
    for (const auto& [n_experts, n_chosen] : {std::pair{128, 8}, {128, 4}, {32, 4}, {60, 6}}) {
        const RoutedLayer layer = zipf_layer(n_experts, n_chosen, 1000, 3);
        for (const double share : {0.125, 0.25, 0.33, 0.5}) {
            const std::int64_t n_slots = slots_of(share, n_experts);
            const SlotFigures lru = replayed(SlotPolicy::Lru, layer, n_slots);
            const SlotFigures counts = replayed(SlotPolicy::Counts, layer, n_slots);
            EXPECT_EQ(lru.copied, lru.chosen - lru.hits) << "each miss takes a slot";
            EXPECT_GE(counts.hit_share(), lru.hit_share() - 0.01) << n_experts << " " << share;
            EXPECT_LE(counts.copied, share < 0.5 ? lru.copied / 2 : lru.copied) << n_experts << " " << share;
            EXPECT_GE(replayed(SlotPolicy::Best, layer, n_slots).hits, counts.hits);
        }
    }
}

TEST(SlotPolicies, SlotsAreAShareOfTheExperts) {
    EXPECT_EQ(slots_of(0.25, 128), 32);
    EXPECT_EQ(slots_of(0.33, 128), 42);
    EXPECT_EQ(slots_of(0.0625, 8), 1);
    EXPECT_EQ(slots_of(0.0625, 4), 1);
}

TEST(RecordedRoutes, AreTheSameWhereverTheModelLies) {
    const auto files = make_tiny_model(
        {.n_layers = 4, .weight_type = DType::BF16, .n_experts = 9, .n_chosen = 3, .shared_expert = true});
    const std::vector<TokenId> tokens = prompt_of(150);  // three passes, the last one short
    const auto recorded = [&](const std::vector<std::int64_t>& parts, Streams streams) {
        SplitEngine engine(*files, parts, streams);
        const std::vector<ModelShard> shards = deal_parts(SplitKind::Layers, files->config(), files->weights(), parts);
        std::vector<RoutedRank> ranks;
        for (std::size_t rank = 0; rank < parts.size(); ++rank)
            ranks.push_back({&engine.models[rank]->config(), shards[rank].layers});
        std::vector<std::int64_t> progress;
        RouteTrace trace = record_routes(*engine.runner, ranks, tokens, [&](std::int64_t n) { progress.push_back(n); });
        EXPECT_THAT(progress, testing::ElementsAre(64, 128, 150));
        EXPECT_EQ(engine.target->n_committed(), 150);
        trace.model = "tiny";
        return trace;
    };
    const RouteTrace whole = recorded({4}, Streams::Nothing);
    EXPECT_EQ(whole.n_tokens, 150);
    ASSERT_EQ(whole.layers.size(), 3U) << "the first layer is dense";
    for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(whole.layers[i].layer, static_cast<std::int64_t>(i) + 1);
        EXPECT_EQ(whole.layers[i].n_experts, 9);
        EXPECT_EQ(whole.layers[i].n_chosen, 3);
    }
    EXPECT_EQ(parse_routes(bytes_of(whole), "t"), whole);
    EXPECT_NE(whole.layers[0].ids, whole.layers[1].ids);
    for (const std::vector<std::int64_t>& parts : {std::vector<std::int64_t>{4}, {1, 3}, {2, 2}})
        for (const Streams streams : {Streams::Nothing, Streams::Weights, Streams::Both})
            EXPECT_EQ(recorded(parts, streams), whole);
}

json routes_of(const std::vector<std::string>& more) {
    ProgramRun run;
    run.shell = "exec '" SLIPSTREAM_LAB_PROGRAM "' routes --json --no-config \"$@\"";
    run.arguments = more;
    const ProgramResult result = run_program(run);
    EXPECT_EQ(result.code, 0) << result.err;
    const bool limited = std::ranges::find(more, "--device-memory") != more.end();
    EXPECT_EQ(result.err.find(" on the device") != std::string::npos, limited) << result.err;
    return json::parse(result.out, nullptr, false);
}

std::string error_of_routes(const std::vector<std::string>& more, int code) {
    ProgramRun run;
    run.shell = "exec '" SLIPSTREAM_LAB_PROGRAM "' routes -q --no-config \"$@\"";
    run.arguments = more;
    const ProgramResult result = run_program(run);
    EXPECT_EQ(result.code, code) << result.err;
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
    return result.err;
}

TEST(RoutesProgram, RecordsTheSameRoutesWhereverTheModelLies) {
    const TemporaryFolder folder;
    const std::string path = (folder.path() / "model.gguf").string();
    RandomModelOptions options{.config = *find_shape("gpt-oss-20b", 3), .quantisation = Quantisation::MXFP4};
    options.config.vocab = 512;
    options.config.d_model = 256;
    for (LayerConfig& layer : options.config.layers) {
        layer.feed_forward.experts.n_experts = 24;
        layer.feed_forward.experts.d_ff = 1024;
    }
    write_random_model(path, options);
    const std::string text = source_path("tools/lab/README.md");
    const auto recorded = [&](const std::string& name, const std::vector<std::string>& more) {
        const std::string trace = (folder.path() / name).string();
        std::vector<std::string> arguments{"-m", path, "-f",    text,  "-n",      "100",
                                           "-t", "1",  "--ctx", "512", "--trace", trace};
        arguments.insert(arguments.end(), more.begin(), more.end());
        const json figures = routes_of(arguments);
        EXPECT_EQ(figures["tokens"], 100);
        EXPECT_EQ(figures["layers"].size(), 3U);
        EXPECT_EQ(figures["all"]["experts"], 24);
        EXPECT_EQ(figures["all"]["chosen"], 4);
        EXPECT_EQ(figures["all"]["neighbours"].size(), kNeighbours.size());
        EXPECT_EQ(routes_of({"--replay", trace}), figures);
        return file_text(trace);
    };
    const std::string whole = recorded("whole", {});
    EXPECT_EQ(recorded("two", {"--devices", "cpu,cpu"}), whole);
    EXPECT_EQ(recorded("some", {"--devices", "cpu", "--device-memory", "40M"}), whole);
    EXPECT_EQ(recorded("most", {"--devices", "cpu", "--device-memory", "30M"}), whole);

    EXPECT_THAT(error_of_routes({"-m", path, "-f", text, "-n", "9", "--replay", "x"}, 2),
                HasSubstr("has no effect on a trace that is read (--replay)"));
    EXPECT_THAT(error_of_routes({"-m", path}, 2), HasSubstr("--file is missing"));
    EXPECT_THAT(error_of_routes({"-m", path, "-f", text, "-n", "600", "--ctx", "512"}, 1),
                HasSubstr("a context of 512: fewer than the 600 to feed"));
    EXPECT_THAT(error_of_routes({"-m", path, "-f", text, "--trace", text}, 2), HasSubstr("name the same file"));
    EXPECT_THAT(error_of_routes({"--replay", path}, 1), HasSubstr("not a table file"));
}

TEST(RoutesProgram, RefusesAModelWithoutExperts) {
    const TemporaryFolder folder;
    const std::string trace = (folder.path() / "trace").string();
    EXPECT_THAT(
        error_of_routes(
            {"-m", source_path("tools/demo_model/target"), "-f", source_path("README.md"), "--trace", trace}, 1),
        HasSubstr("the model has no experts"));
    EXPECT_FALSE(std::filesystem::exists(trace));
}

}  // namespace
}  // namespace slipstream::tools
