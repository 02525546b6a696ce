// Finds the part of the KV cache that a new prompt can reuse: the longest prefix that it shares with a sequence
// computed before. One sequence is kept, the last one.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/loop/sequence.h"

namespace slipstream::tools {

class PrefixStore {
public:
    /// `sequence` must outlive this object.
    explicit PrefixStore(Sequence& sequence) : sequence_(&sequence) {}

    /// Keeps the positions of the sequence's KV cache that `prompt` (not empty) can reuse, drops the others, and
    /// returns their number. It is less than the length of the prompt, since the logits of its last token are needed.
    /// The rest of the prompt gets the same bits as if it were computed from an empty cache.
    std::int64_t reuse(std::span<const TokenId> prompt);

private:
    Sequence* sequence_;
};

}  // namespace slipstream::tools
