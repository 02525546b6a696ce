// A text whose passes are cancelled again and again while a slow link copies.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "runtime/loop/generation_loop.h"
#include "tests/support/split_engine.h"
#include "tests/support/target_texts.h"

namespace slipstream {

struct InterruptedText {
    std::vector<TokenId> text;
    int n_given_up = 0;  // passes that were cancelled before they ended
};

/// Generates `n_tokens` tokens after `prompt`. `cancel`, which the faults of the engine's device must name as their
/// stop, is raised `delay()` after the begin of each pass; a pass that is given up is run again, undisturbed.
inline InterruptedText interrupted_text(SplitEngine& engine, const std::vector<TokenId>& prompt, std::int64_t n_tokens,
                                        std::atomic<bool>& cancel,
                                        const std::function<std::chrono::milliseconds()>& delay) {
    InterruptedText result;
    Sampler sampler(kTinySampling, kTinyVocab);
    ExactVerifier verifier(sampler);
    NoProposer none;
    Sequence sequence(*engine.target);
    GenerationLoop loop(sequence, verifier, none, {.budget = 1, .end_tokens = {}});
    loop.begin(prompt);
    for (std::int64_t left = n_tokens; left > 0;) {
        cancel = false;
        std::thread stop([&cancel, after = delay()] {
            std::this_thread::sleep_for(after);
            cancel = true;
        });
        const std::size_t n = loop.step(left, &cancel).size();
        stop.join();
        left -= static_cast<std::int64_t>(n);
        if (n > 0) continue;
        ++result.n_given_up;
        cancel = false;
        left -= std::ssize(loop.step(left, &cancel));
    }
    result.text = loop.text();
    return result;
}

}  // namespace slipstream
