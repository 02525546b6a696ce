// The KV cache of a draft model: the first tokens of the sequence (sinks) and the last ones, in consecutive KV slots,
// so that a model trained on short texts works at any position. (StreamingLLM, Xiao et al. 2023, arXiv 2309.17453,
// section 3.2; TriForce, Sun et al. 2024, arXiv 2404.11912, section 4.3 and its code.)
//
// A sequence that fits is kept whole. When the slots are full, everything after the sinks is dropped at once, and the
// last `recent` tokens are fed again after the sinks. So keys have the bits that a fresh pass gives them, and nothing
// is kept beside the cache: a window holds as many tokens as its bytes allow. (StreamingLLM and TriForce's code rotate
// the keys that they have instead, whose rows contain traces of what was dropped.)
//
// Invariant: slot s holds position s of the sequence, or s + n_dropped() for slots after the sinks.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/cache/kv_cache.h"
#include "runtime/model/model.h"

namespace slipstream::draft {

/// Sizes of a window, all in tokens.
struct WindowShape {
    std::int64_t sinks = 16;    // first tokens of the sequence, never dropped
    std::int64_t recent = 112;  // last tokens that are kept when others are dropped, at least 1
    std::int64_t slots = 240;   // most committed tokens in the cache
};

/// Room for nodes that are not committed yet.
struct WindowLimits {
    std::int64_t max_rows = 1;   // most KV rows of nodes that are not committed
    std::int64_t max_depth = 1;  // most positions past the committed tokens that uncommitted nodes take
};

/// The KV cache of one draft model, on the model's device.
class WindowKv {
public:
    /// Allocates the memory once, on the model's device. Throws OutOfBudget. The shape must be consistent: sinks +
    /// recent < slots (CHECKed).
    WindowKv(const Model& model, const WindowShape& shape, const WindowLimits& limits);

    [[nodiscard]] const WindowShape& shape() const { return shape_; }
    [[nodiscard]] KvCache& cache() { return cache_; }
    [[nodiscard]] const KvCache& cache() const { return cache_; }
    /// Returns the number of tokens at the start of the sequence that are committed or were dropped.
    [[nodiscard]] std::int64_t n_tokens() const { return cache_.n_committed() + n_dropped_; }
    /// Returns the number of tokens that were dropped.
    [[nodiscard]] std::int64_t n_dropped() const { return n_dropped_; }
    /// Returns the number of committed tokens after the sinks.
    [[nodiscard]] std::int64_t n_recent() const;

    /// Drops everything after the sinks, which must all be there (CHECKed). The next token to be committed is position
    /// `next` of the sequence; it must not be one of the sinks (CHECKed).
    void jump(std::int64_t next);
    /// Cuts the sequence to its first `n_tokens` tokens, at most n_tokens() (CHECKed). If the cut is among dropped
    /// ones, only sinks are left.
    void truncate(std::int64_t n_tokens);

private:
    WindowShape shape_;
    KvCache cache_;
    std::int64_t n_dropped_ = 0;  // tokens dropped between the sinks and the rest
};

}  // namespace slipstream::draft
