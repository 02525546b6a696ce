#include "runtime/session/session_kv.h"

#include <algorithm>

#include "kernels/base/check.h"

namespace slipstream {

SessionKv::SessionKv(SessionFile& session, KvCache& cache, ExecRef exec, std::size_t limit_bytes)
    : session_(session), cache_(cache), exec_(exec), block_(cache.shape().chunk_bytes()) {
    CHECK(session.begin().n_layers == cache.n_layers() && session.begin().kv_chunk_bytes == block_.size(),
          "{} layers of {} bytes, a cache of {} and {}", session.begin().n_layers, session.begin().kv_chunk_bytes,
          cache.n_layers(), block_.size());
    max_chunks_ = static_cast<std::int64_t>(limit_bytes / block_.size()) / cache.n_layers();
}

std::int64_t SessionKv::restore(const std::function<void(std::int64_t, std::int64_t)>& on_progress) {
    const std::int64_t n_layers = cache_.n_layers();
    const std::int64_t n_chunks =
        std::min(session_.n_kv_blocks() / n_layers, (session_.text_tokens() - 1) / kChunkTokens);
    if (n_chunks > 0)
        cache_.restore(exec_, n_chunks * kChunkTokens, [&](std::int64_t layer, std::int64_t chunk, std::byte* out) {
            session_.read_kv_block(chunk * n_layers + layer, out);
            if (on_progress) on_progress(chunk * n_layers + layer + 1, n_chunks * n_layers);
        });
    session_.release_kv();
    return n_chunks * kChunkTokens;
}

void SessionKv::save() {
    if (cache_.n_nodes() > 0) return;
    const std::int64_t n_tokens = std::min(cache_.n_committed(), session_.text_tokens());
    const std::int64_t n_layers = cache_.n_layers();
    const std::int64_t n_wanted = std::min(n_tokens / kChunkTokens, max_chunks_) * n_layers;
    for (std::int64_t block = session_.n_kv_blocks(); block < n_wanted; block = session_.n_kv_blocks()) {
        cache_.read_chunk(exec_, block % n_layers, block / n_layers, block_.data());
        session_.append_kv_block(block_);
    }
}

}  // namespace slipstream
