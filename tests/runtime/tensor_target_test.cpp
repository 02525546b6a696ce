// Matrices split among several devices: near one device in numbers, and of one split the same bits whatever streams and
// guesses, with cuts, cancelled and failed passes, and texts that are gone on with.
#include "runtime/ranks/rank_target.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu_faults.h"
#include "runtime/loop/generation_loop.h"
#include "runtime/ranks/rank_threads.h"
#include "tests/support/error_text.h"
#include "tests/support/named_faults.h"
#include "tests/support/scripted_proposer.h"
#include "tests/support/target_texts.h"
#include "tests/support/tensor_engine.h"
#include "tests/support/tiny_model.h"

namespace slipstream {
namespace {

TinyModelOptions three_heads(DType type) {
    return {.d_ff = 160,
            .n_layers = 4,
            .n_q_heads = 6,
            .n_kv_heads = 3,
            .window = 300,
            .weight_type = type,
            .biases = true,
            .output_bias = true,
            .head_norms = true};
}

/// Logits of every token of a text, in passes of up to `most`.
std::vector<float> forced_logits(Target& target, const std::vector<TokenId>& text, std::int64_t most) {
    std::vector<float> all;
    for (std::int64_t begin = 0; begin < std::ssize(text); begin += most) {
        const auto n = static_cast<std::size_t>(std::min(most, std::ssize(text) - begin));
        std::vector<NodeId> nodes;
        std::vector<std::int32_t> wanted;
        for (std::size_t i = 0; i < n; ++i) {
            nodes.push_back(target.add_node(i == 0 ? kCommittedTip : nodes.back()));
            wanted.push_back(static_cast<std::int32_t>(i));
        }
        const LogitRows rows = target.run({.tokens = std::span(text).subspan(static_cast<std::size_t>(begin), n),
                                           .nodes = nodes,
                                           .logit_tokens = wanted});
        for (std::size_t i = 0; i < n; ++i) {
            const auto row = rows.row(static_cast<std::int32_t>(i));
            all.insert(all.end(), row.begin(), row.end());
        }
        target.commit(nodes);
    }
    return all;
}

struct Likeness {
    double nmse = 0.0;
    double same_best = 0.0;  // of all rows
};
Likeness compare(const std::vector<float>& expected, const std::vector<float>& found) {
    CHECK(expected.size() == found.size());
    double squares = 0.0, errors = 0.0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        squares += double{expected[i]} * expected[i];
        errors += (double{found[i]} - expected[i]) * (double{found[i]} - expected[i]);
    }
    std::int64_t n_same = 0;
    const std::int64_t n_rows = std::ssize(expected) / kTinyVocab;
    for (std::int64_t row = 0; row < n_rows; ++row) {
        const auto best = [&](const std::vector<float>& logits) {
            return std::max_element(logits.begin() + row * kTinyVocab, logits.begin() + (row + 1) * kTinyVocab) -
                   logits.begin();
        };
        n_same += best(expected) == best(found) ? 1 : 0;
    }
    return {errors / squares, static_cast<double>(n_same) / static_cast<double>(n_rows)};
}

std::vector<float> as_floats(const std::vector<std::byte>& bytes) {
    std::vector<float> floats(bytes.size() / sizeof(float));
    std::memcpy(floats.data(), bytes.data(), bytes.size());
    return floats;
}

class TensorTargetTest : public testing::Test {
protected:
    std::unique_ptr<ModelFiles> files_ = make_tiny_model(three_heads(DType::BF16));
    const std::vector<std::vector<std::int64_t>> splits_{{2, 1}, {1, 2}, {1, 1, 1}};
};

TEST_F(TensorTargetTest, LogitsAndKvAreNearThoseOfOneDevice) {
    struct Bound {
        DType type;
        double nmse;
        double same_best;
    };
    const std::vector<TokenId> text = prompt_of(1000);
    for (const Bound& bound : {Bound{DType::F32, 1e-10, 0.999}, Bound{DType::Q8_0, 1e-5, 0.995}}) {
        TinyModelOptions options = three_heads(bound.type);
        options.head_dim = 32;  // whole blocks
        options.kv_dtype = DType::F32;
        const auto files = make_tiny_model(options);
        SplitEngine whole(*files, {4}, Streams::Nothing);
        RankTarget& one = *whole.target;
        const std::vector<float> expected = forced_logits(one, text, SplitEngine::kBudget);
        std::vector<float> expected_row(one.shape().kv.front().scratch_row_bytes() / sizeof(float) * 2 * 4);
        one.read_rows(one.add_node(kCommittedTip), reinterpret_cast<std::byte*>(expected_row.data()));
        for (const auto& split : splits_) {
            TensorEngine several(*files, split, Streams::Nothing);
            const Likeness logits = compare(expected, forced_logits(*several.target, text, SplitEngine::kBudget));
            EXPECT_LT(logits.nmse, bound.nmse) << dtype_name(bound.type) << testing::PrintToString(split);
            EXPECT_GE(logits.same_best, bound.same_best) << dtype_name(bound.type) << testing::PrintToString(split);
            // Heads stand where the whole model has them.
            EXPECT_TRUE(std::ranges::equal(several.target->shape().kv, one.shape().kv));
            EXPECT_LT(compare(as_floats(kv_of(one)), as_floats(kv_of(*several.target))).nmse, 10 * bound.nmse);
        }
    }
}

// E1 within a split.
TEST_F(TensorTargetTest, EveryPlacementAndSourceGivesTheBitsOfTheSplit) {
    for (const auto& split : splits_) {
        for (const std::int64_t n_prompt : {3, 700}) {
            const std::int64_t n_tokens = n_prompt == 3 ? 30 : 80;
            TensorEngine first(*files_, split, Streams::Nothing);
            const Generated plain = plainly(*first.target, prompt_of(n_prompt), n_tokens);
            const std::vector<std::byte> kv = kv_of(*first.target);
            for (const Streams streams : {Streams::Nothing, Streams::Weights, Streams::Kv, Streams::Both}) {
                if (n_prompt == 700 && streams != Streams::Both) continue;
                TensorEngine engine(*files_, split, streams);
                EXPECT_EQ(plainly(*engine.target, prompt_of(n_prompt), n_tokens), plain);
                engine.target->truncate(0);
                ScriptedProposer scripted(plain.text, 0.7, 3);
                EXPECT_EQ(generate(*engine.target, prompt_of(n_prompt), n_tokens, scripted, SplitEngine::kBudget,
                                   engine.plain),
                          plain)
                    << testing::PrintToString(split) << static_cast<int>(streams);
                EXPECT_EQ(kv_of(*engine.target), kv);
            }
        }
    }
}

// Passes of one token and of many.
TEST_F(TensorTargetTest, ATokensBitsDoNotDependOnItsPass) {
    TensorEngine one(*files_, {2, 1}, Streams::Nothing);
    TensorEngine many(*files_, {2, 1}, Streams::Both);
    EXPECT_EQ(forced_logits(*one.target, prompt_of(300), 1),
              forced_logits(*many.target, prompt_of(300), SplitEngine::kBudget));
}

// The same logits on both sides of a cut: the lowest id is taken.
TEST_F(TensorTargetTest, TiesAcrossTheCutGoToTheLowestId) {
    TinyModelOptions options = three_heads(DType::BF16);
    options.head_period = 40;
    const auto files = make_tiny_model(options);
    TensorEngine engine(*files, {2, 1}, Streams::Nothing);
    NoProposer nothing;
    const Generated text =
        logged_generation(*engine.target, prompt_of(9), 60, nothing, 1, {.temperature = 0.0}, kTinyVocab);
    ASSERT_EQ(std::ssize(text.text), 69);
    for (std::size_t i = 9; i < text.text.size(); ++i) EXPECT_LT(text.text[i], 40);
    for (std::size_t row = 0; row < text.logits.size(); row += kTinyVocab)
        for (std::size_t id = 40; id < kTinyVocab; ++id) ASSERT_EQ(text.logits[row + id], text.logits[row + id - 40]);
}

TEST_F(TensorTargetTest, ATextGoesOnOnTheSameSplit) {
    TensorEngine whole(*files_, {2, 1}, Streams::Nothing);
    const Generated expected = plainly(*whole.target, prompt_of(600), 160);
    TensorEngine first(*files_, {2, 1}, Streams::Both);
    const Generated begun = plainly(*first.target, prompt_of(600), 80);
    const std::int64_t n_chunks = first.target->n_committed() / kChunkTokens;
    for (const Streams streams : {Streams::Nothing, Streams::Kv}) {
        TensorEngine second(*files_, {2, 1}, streams);
        std::vector<std::pair<std::int64_t, std::int64_t>> read;
        const auto copy = [&](std::int64_t layer, std::int64_t chunk, std::byte* out) {
            read.emplace_back(chunk, layer);
            first.target->read_chunk(layer, chunk, out);
        };
        second.target->restore(0, kChunkTokens, copy);
        second.target->restore(kChunkTokens, n_chunks * kChunkTokens, copy);
        EXPECT_TRUE(std::ranges::is_sorted(read));
        EXPECT_EQ(std::ssize(read), n_chunks * 4) << "each chunk of each layer once";
        EXPECT_EQ(second.target->n_committed(), n_chunks * kChunkTokens);
        EXPECT_EQ(plainly(*second.target, begun.text, 80).text, expected.text);
    }
}

TEST_F(TensorTargetTest, ARestoreThatFailsLeavesNothing) {
    TensorEngine engine(*files_, {2, 1}, Streams::Kv);
    int n_read = 0;
    EXPECT_THROW(engine.target->restore(0, 2 * kChunkTokens,
                                        [&](std::int64_t, std::int64_t, std::byte*) {
                                            if (++n_read == 7) throw FormatError("a damaged block");
                                        }),
                 FormatError);
    EXPECT_EQ(engine.target->n_committed(), 0);
    TensorEngine other(*files_, {2, 1}, Streams::Nothing);
    EXPECT_EQ(plainly(*engine.target, prompt_of(3), 40), plainly(*other.target, prompt_of(3), 40));
}

// Ctrl-C between any two layers: all ranks stop behind the same one, and no state has changed.
TEST_F(TensorTargetTest, APassThatIsGivenUpAtAnyLayerLeavesNoTrace) {
    TensorEngine undisturbed(*files_, {1, 1, 1}, Streams::Nothing);
    const Generated expected = plainly(*undisturbed.target, prompt_of(40), 60);
    for (const Streams streams : {Streams::Nothing, Streams::Both}) {
        TensorEngine engine(*files_, {1, 1, 1}, streams);
        Sampler sampler(kTinySampling, kTinyVocab);
        ExactVerifier verifier(sampler);
        NoProposer nothing;
        Sequence sequence(*engine.target);
        GenerationLoop loop(sequence, verifier, nothing, {.budget = 1, .end_tokens = {}});
        loop.begin(prompt_of(40));
        std::mt19937 random(11);
        while (std::ssize(loop.text()) < 100) {
            std::atomic<bool> cancel{false};
            const std::vector<NodeId> nodes{engine.target->add_node(kCommittedTip)};
            const auto layer = static_cast<double>(random() % 4) / 4.0;  // 0: before the first
            if (engine.target->n_committed() > 0) {
                cancel = layer == 0.0;
                const PassControl control{.cancel = &cancel,
                                          .on_progress = [&](double done) { cancel = done >= layer; }};
                const std::vector<TokenId> token{5};
                const std::vector<std::int32_t> rows{0};
                EXPECT_TRUE(
                    engine.target->run({.tokens = token, .nodes = nodes, .logit_tokens = rows, .control = &control})
                        .empty());
            }
            engine.target->forget();
            ASSERT_FALSE(loop.step(1).empty());
        }
        EXPECT_EQ(loop.text(), expected.text);
    }
}

// What fails on one device ends the pass on all, is told in one line of that device, and leaves no trace.
TEST_F(TensorTargetTest, EveryKindOfFailureIsNamedAndThePassAfterItIsRight) {
    TensorEngine undisturbed(*files_, {2, 1}, Streams::Nothing);
    const Generated expected = plainly(*undisturbed.target, prompt_of(250), 30);
    expect_named<TensorEngine>(
        *files_, {2, 1}, expected,
        {{&CpuFaults::copies_until_stall, 3, Streams::Weights,
          "^device 2, (layer [0-3]|the LM head): weights: device 2, copies in: a copy of .* made no progress"},
         {&CpuFaults::copies_until_stall, 1, Streams::Kv,
          "^device 2, (layer [0-3]: )?KV: device 2, copies out: a copy of .* made no progress"},
         {&CpuFaults::copies_until_failure, 3, Streams::Weights, "^device 2, .*: weights: device 2, copies in"},
         {&CpuFaults::rows_until_failure, 3, Streams::Nothing, "^device 2, layer [0-3]: sums: device 2: a copy"},
         {&CpuFaults::ops_until_failure, 30, Streams::Nothing,
          "^device 2, (layer [0-3]|the LM head): (sums: )?device 2: a kernel"}});
}

TEST(RankThreads, ThrowWhatWasThrownFirstWhenAllAreBackAndServeAgain) {
    std::atomic<int> n_told{0};
    std::atomic<bool> failed{false};
    RankThreads threads(4, [&] {
        ++n_told;
        failed = true;
    });
    for (int round = 1; round <= 20; ++round) {
        std::atomic<int> n_back{0};
        failed = false;
        const std::string error = error_text<IoError>([&] {
            threads.run([&](std::size_t rank) {
                if (rank == 2) {
                    ++n_back;
                    throw IoError("the third");
                }
                while (!failed) std::this_thread::yield();
                ++n_back;
                throw IoError("another");
            });
        });
        EXPECT_EQ(error, "the third");
        EXPECT_EQ(n_back, 4);
        EXPECT_EQ(n_told, round);
        std::atomic<int> n_called{0};
        threads.run([&](std::size_t) { ++n_called; });
        EXPECT_EQ(n_called, 4);
    }
}

}  // namespace
}  // namespace slipstream
