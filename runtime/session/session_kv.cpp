#include "runtime/session/session_kv.h"

#include <algorithm>
#include <optional>

#include "kernels/base/check.h"
#include "kernels/base/error.h"

namespace slipstream {

SessionKv::SessionKv(SessionFile& session, Target& target, std::size_t limit_bytes)
    : session_(session),
      target_(target),
      layouts_(target.shape().kv),
      n_layers_(target.shape().n_layers),
      block_(session_block_bytes(layouts_)) {
    CHECK(session.begin().n_layers == n_layers_ && session.begin().kv_chunk_bytes == block_.size(),
          "{} layers of {} bytes, a target of {} and {}", session.begin().n_layers, session.begin().kv_chunk_bytes,
          n_layers_, block_.size());
    max_chunks_ = static_cast<std::int64_t>(limit_bytes / block_.size()) / n_layers_;
}

std::int64_t SessionKv::restore(const std::function<void(std::int64_t, std::int64_t)>& on_progress) {
    std::int64_t n_chunks = 0;
    std::optional<std::int64_t> damaged;
    do {
        n_chunks = std::min(session_.n_kv_blocks() / n_layers_, (session_.text_tokens() - 1) / kChunkTokens);
        damaged.reset();
        std::int64_t n_read = 0;
        try {
            if (n_chunks > 0)
                target_.restore(0, n_chunks * kChunkTokens,
                                [&](std::int64_t layer, std::int64_t chunk, std::byte* out) {
                                    const std::int64_t block = chunk * n_layers_ + layer;
                                    const bool is_padded = chunk_bytes(layer) < block_.size();
                                    if (!session_.read_kv_block(block, is_padded ? block_.data() : out)) {
                                        damaged = block;
                                        throw FormatError("damaged KV");
                                    }
                                    if (is_padded) std::copy_n(block_.data(), chunk_bytes(layer), out);
                                    if (on_progress) on_progress(++n_read, n_chunks * n_layers_);
                                });
        } catch (const Error&) {
            if (!damaged) throw;
            session_.drop_damaged_kv(*damaged);  // fewer blocks in each round
        }
    } while (damaged);
    session_.release_kv();
    return n_chunks * kChunkTokens;
}

std::optional<std::string> SessionKv::save() {
    if (target_.n_nodes() > 0) return std::nullopt;
    const std::int64_t n_tokens = std::min(target_.n_committed(), session_.text_tokens());
    const std::int64_t n_wanted = std::min(n_tokens / kChunkTokens, max_chunks_) * n_layers_;
    for (std::int64_t block = session_.n_kv_blocks(); block < n_wanted; block = session_.n_kv_blocks()) {
        const std::int64_t layer = block % n_layers_;
        target_.read_chunk(layer, block / n_layers_, block_.data());
        std::fill(block_.begin() + static_cast<std::ptrdiff_t>(chunk_bytes(layer)), block_.end(), std::byte{});
        try {
            session_.append_kv_block(block_);
        } catch (const IoError& error) {
            max_chunks_ = std::min(max_chunks_, session_.n_kv_blocks() / n_layers_);
            return error.what();
        }
    }
    return std::nullopt;
}

}  // namespace slipstream
