// The KV cache of a session: chunks are saved as they fill, all layers of one before the next, and read back when the
// text is gone on with. The last chunk, which is not full, is never saved: the loop computes it again. Where chunks
// would take more than a limit, no more are saved, and what stands behind them is computed again, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/loop/target.h"
#include "runtime/session/session_file.h"

namespace slipstream {

class SessionKv {
public:
    /// `session` and `target` outlive this, and are of one shape (CHECKed).
    SessionKv(SessionFile& session, Target& target, std::size_t limit_bytes);

    /// Positions that the limit leaves room for.
    [[nodiscard]] std::int64_t max_tokens() const { return max_chunks_ * kChunkTokens; }

    /// Fills the empty target with what was saved, but for the session's last token, which the next pass feeds; returns
    /// the positions. A damaged block, and what follows it, is dropped (SessionFile::damage()). `on_progress` is called
    /// with blocks done and in all, and anew from the first one after a damaged one; it may throw: the target is empty
    /// then.
    std::int64_t restore(const std::function<void(std::int64_t, std::int64_t)>& on_progress = {});

    /// Saves the chunks that have filled, as far as the session has their tokens. Between passes; does nothing while
    /// one is under way. If the file cannot be written, returns the reason and saves no more from then on. Throws what
    /// the target throws for a chunk that cannot be read; the next call tries that chunk again.
    [[nodiscard]] std::optional<std::string> save();

private:
    SessionFile& session_;
    Target& target_;
    std::int64_t n_layers_;
    std::int64_t max_chunks_;
    std::vector<std::byte> block_;  // on its way out
};

}  // namespace slipstream
