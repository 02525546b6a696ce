// Faults of one of two devices: each is reported in one error message, and generation then continues with the same
// tokens and logits as without the fault.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu_faults.h"
#include "runtime/formats/model_files.h"
#include "runtime/loop/generation_loop.h"
#include "runtime/ranks/rank.h"
#include "tests/support/error_text.h"
#include "tests/support/logged_generation.h"
#include "tests/support/split_engine.h"
#include "tests/support/target_texts.h"

namespace slipstream {

/// A fault of the second device, at its `nth` occasion from now on.
struct NamedFault {
    std::atomic<std::int64_t> CpuFaults::*fault;
    std::int64_t nth;
    Streams streams;
    const char* told;  // regular expression for the error message
};

/// Generates 30 tokens after prompt_of(250) with each of the faults in turn. Expects one error message for each fault,
/// and then `expected`, the text and logits without a fault. `Engine`: SplitEngine or TensorEngine, made with `parts`.
template <class Engine>
void expect_named(const ModelFiles& files, const std::vector<std::int64_t>& parts, const Generated& expected,
                  std::initializer_list<NamedFault> all) {
    for (const NamedFault& named : all) {
        CpuFaults faults{.stall_after = std::chrono::milliseconds(200)};
        Engine engine(files, parts, named.streams, {{.name = "device 1"}, {.name = "device 2", .faults = &faults}});
        Sampler sampler(kTinySampling, kTinyVocab);
        ExactVerifier verifier(sampler);
        NoProposer nothing;
        LogitLog log(nothing);
        Sequence sequence(*engine.target);
        GenerationLoop loop(sequence, verifier, log, {.budget = 1, .end_tokens = {}});
        loop.begin(prompt_of(250));
        std::vector<std::string> told;
        faults.*named.fault = named.nth;
        while (std::ssize(loop.text()) < 280) {
            const auto began = std::chrono::steady_clock::now();
            const std::string error = error_text<RankFailed>([&] { ASSERT_FALSE(loop.step(1).empty()); });
            EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
            if (error != "nothing thrown") told.push_back(error);
            ASSERT_LE(told.size(), 2U) << testing::PrintToString(told);
        }
        EXPECT_THAT(told, testing::ElementsAre(testing::ContainsRegex(named.told)));
        EXPECT_EQ((Generated{loop.text(), log.rows}), expected) << named.told;
    }
}

}  // namespace slipstream
