// Where the tokens of a pass stand: the slot of each, its position in the text, and the scratch rows that it sees, from
// the committed tip down to itself. Rope turns by positions, attention goes by slots.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/cache/pass_kv.h"

namespace slipstream {

class PassPaths {
public:
    /// For passes of up to `max_tokens`; memory is taken here.
    explicit PassPaths(std::int64_t max_tokens);

    /// Of tokens at nodes of `kv`.
    void trace(const PassKv& kv, std::span<const NodeId> nodes);
    /// Of scratch rows 0 to `n`, each below the one before, from slot and position `begin` on: every path is the
    /// beginning of the last one.
    void trace_chain(std::int64_t begin, std::int64_t n);

    [[nodiscard]] const std::vector<std::int32_t>& slots() const { return slots_; }
    [[nodiscard]] const std::vector<std::int32_t>& positions() const { return positions_; }
    [[nodiscard]] const std::vector<std::int32_t>& begin() const { return begin_; }
    [[nodiscard]] const std::vector<std::int32_t>& rows() const { return rows_; }

private:
    void clear();

    std::vector<std::int32_t> slots_;      // [n_tokens]
    std::vector<std::int32_t> positions_;  // [n_tokens]
    std::vector<std::int32_t> begin_;      // [n_tokens]: of each token's path in rows_
    std::vector<std::int32_t> rows_;
};

}  // namespace slipstream
