// Which part of the KV cache a new prompt may reuse: the longest beginning that it shares with a text computed before.
// One sequence is kept: the last one.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/loop/sequence.h"

namespace slipstream::tools {

class PrefixStore {
public:
    /// `sequence` outlives this.
    explicit PrefixStore(Sequence& sequence) : sequence_(&sequence) {}

    /// Keeps the positions of the sequence's KV cache that `prompt` (not empty) may reuse, drops the others, and
    /// returns their number: less than the prompt has tokens, since the logits of its last token are needed. What the
    /// prompt computes from there on is what it would compute from an empty cache, bit for bit.
    std::int64_t reuse(std::span<const TokenId> prompt);

private:
    Sequence* sequence_;
};

}  // namespace slipstream::tools
