// Slots, positions and paths of the tokens of a pass. The path of a token is the list of scratch rows that it attends
// to, from the child of the committed tip down to the token itself. RoPE uses positions in the text, attention uses
// slots.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/cache/pass_kv.h"

namespace slipstream {

class PassPaths {
public:
    /// Allocates memory for passes of up to `max_tokens` tokens.
    explicit PassPaths(std::int64_t max_tokens);

    /// Sets the tokens to those at `nodes` of `kv`.
    void trace(const PassKv& kv, std::span<const NodeId> nodes);
    /// Sets the tokens to a chain of `n`, in scratch rows 0 to n - 1, each the child of the one before; slots and
    /// positions begin at `begin`. All paths begin at rows()[0].
    void trace_chain(std::int64_t begin, std::int64_t n);

    [[nodiscard]] const std::vector<std::int32_t>& slots() const { return slots_; }
    [[nodiscard]] const std::vector<std::int32_t>& positions() const { return positions_; }
    [[nodiscard]] const std::vector<std::int32_t>& begin() const { return begin_; }
    [[nodiscard]] const std::vector<std::int32_t>& rows() const { return rows_; }

private:
    void clear();

    std::vector<std::int32_t> slots_;      // [n_tokens]
    std::vector<std::int32_t> positions_;  // [n_tokens]
    std::vector<std::int32_t> begin_;      // [n_tokens]: where each token's path begins in rows_
    std::vector<std::int32_t> rows_;       // paths of all tokens, one after the other; in a chain they overlap
};

}  // namespace slipstream
