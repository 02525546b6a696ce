// The KV cache of a draft model: the first tokens of the text (sinks) and the last ones, in consecutive slots, so that
// a model trained on short texts works at any position. (StreamingLLM, Xiao et al. 2023, arXiv 2309.17453, section 3.2;
// TriForce, Sun et al. 2024, arXiv 2404.11912, section 4.3 and its code.)
//
// A text that fits is kept whole. When the slots are full, all behind the sinks goes at once and the last `recent`
// tokens are fed again behind them: keys have the bits that a fresh pass gives them, and nothing is kept beside the
// cache, so that a window holds as many tokens as its bytes allow. (StreamingLLM and TriForce's code turn the keys that
// they have instead, whose rows know a little of what was dropped.)
//
// Invariant: slot s holds text position s, or s + n_dropped() for slots behind the sinks.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/cache/kv_cache.h"
#include "runtime/model/model.h"

namespace slipstream::draft {

struct WindowShape {
    std::int64_t sinks = 16;    // first tokens of the text, never dropped
    std::int64_t recent = 112;  // last tokens that stay when others are dropped, at least 1
    std::int64_t slots = 240;   // committed tokens in all, at most
};

struct WindowLimits {
    std::int64_t max_rows = 1;   // scratch rows of nodes that are not committed
    std::int64_t max_depth = 1;  // positions behind the slots that such nodes may take
};

class WindowKv {
public:
    /// Memory is taken once, on the model's device. Throws OutOfBudget.
    WindowKv(const Model& model, const WindowShape& shape, const WindowLimits& limits);

    [[nodiscard]] const WindowShape& shape() const { return shape_; }
    [[nodiscard]] KvCache& cache() { return cache_; }
    [[nodiscard]] const KvCache& cache() const { return cache_; }
    /// Tokens at the text's beginning that are committed or were dropped.
    [[nodiscard]] std::int64_t n_tokens() const { return cache_.n_committed() + n_dropped_; }
    [[nodiscard]] std::int64_t n_dropped() const { return n_dropped_; }
    /// Tokens behind the sinks.
    [[nodiscard]] std::int64_t n_recent() const;

    /// Drops all behind the sinks (which are full, CHECKed); the next token to be committed stands at text position
    /// `next`, at or behind the sinks.
    void jump(std::int64_t next);
    /// Takes the text back to its first `n_tokens`; where they end among dropped ones only sinks are left.
    void truncate(std::int64_t n_tokens);

private:
    WindowShape shape_;
    KvCache cache_;
    std::int64_t n_dropped_ = 0;  // tokens between the sinks and the rest
};

}  // namespace slipstream::draft
