#include "runtime/session/session_kv.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/check.h"
#include "kernels/base/error.h"
#include "kernels/matmul.h"
#include "runtime/cache/recurrent_states.h"

namespace slipstream {

SessionKv::SessionKv(SessionFile& session, Target& target, std::size_t limit_bytes, SessionUse use)
    : session_(session), target_(target), layouts_(target.shape().kv), n_layers_(target.shape().n_layers) {
    const SessionBegin& begin = session.begin();
    CHECK(begin.kv_bytes == session_kv_bytes(layouts_, begin.version), "a session of {} layers, a target of {}",
          begin.n_layers(), n_layers_);
    block_.resize(*std::ranges::max_element(begin.kv_bytes));
    const std::uint64_t chunk_bytes = std::accumulate(begin.kv_bytes.begin(), begin.kv_bytes.end(), std::uint64_t{0});
    if (RecurrentStates::state_bytes(layouts_) > 0) {
        states_bytes_ = StatesFileShape(begin, layouts_).file_bytes();
        limit_bytes -= std::min<std::uint64_t>(limit_bytes, states_bytes_);
        states_.emplace(session, target, use);
    }
    max_chunks_ = static_cast<std::int64_t>(limit_bytes / chunk_bytes);
    if (states_) max_chunks_ -= max_chunks_ % (kPrefillChunkTokens / kChunkTokens);  // KV after states is of no use
}

std::int64_t restorable_chunks(const SessionFile& session, const Target& target, std::int64_t max_chunks) {
    const std::int64_t n_layers = session.begin().n_layers();
    // [layers]: the KV chunks from this one on, below n_chunks, are saved.
    std::vector<std::int64_t> first_saved(n_layers, 0);
    std::int64_t most = 0;
    for (std::int64_t n_chunks = 1; n_chunks <= max_chunks; ++n_chunks) {
        bool has_all = true;
        for (std::int64_t layer = 0; layer < n_layers; ++layer) {
            if (!session.has_kv(layer, n_chunks - 1)) first_saved[layer] = n_chunks;
            has_all = has_all && first_saved[layer] <= target.first_restored_chunk(layer, n_chunks * kChunkTokens);
        }
        if (has_all) most = n_chunks;
    }
    return most;
}

std::int64_t SessionKv::restore(const std::function<void(std::uint64_t, std::uint64_t)>& on_progress,
                                std::int64_t max_tokens) {
    const bool is_recurrent = RecurrentStates::state_bytes(layouts_) > 0;
    std::int64_t n_chunks = 0;
    std::optional<std::pair<std::int64_t, std::int64_t>> damaged;  // layer, chunk
    do {
        n_chunks =
            restorable_chunks(session_, target_, std::min(session_.text_tokens() - 1, max_tokens) / kChunkTokens);
        if (is_recurrent) n_chunks = states_ ? states_->find(n_chunks * kChunkTokens) / kChunkTokens : 0;
        damaged.reset();
        std::uint64_t n_read = 0;  // bytes
        std::uint64_t n_bytes_in_all = 0;
        for (std::int64_t layer = 0; layer < n_layers_; ++layer) {
            const std::int64_t first = target_.first_restored_chunk(layer, n_chunks * kChunkTokens);
            n_bytes_in_all += static_cast<std::uint64_t>(n_chunks - first) * session_.begin().kv_bytes[layer];
        }
        try {
            if (n_chunks > 0 && is_recurrent && !states_->restore()) n_chunks = 0;
            if (n_chunks > 0)
                target_.restore(0, n_chunks * kChunkTokens,
                                [&](std::int64_t layer, std::int64_t chunk, std::byte* out) {
                                    const std::size_t n_bytes = layouts_[layer].chunk_bytes();
                                    const bool is_padded = n_bytes < session_.begin().kv_bytes[layer];
                                    if (!session_.read_kv(layer, chunk, is_padded ? block_.data() : out)) {
                                        damaged.emplace(layer, chunk);
                                        throw FormatError("damaged KV");
                                    }
                                    if (is_padded) std::copy_n(block_.data(), n_bytes, out);
                                    n_read += session_.begin().kv_bytes[layer];
                                    if (on_progress) on_progress(n_read, n_bytes_in_all);
                                });
        } catch (const Error&) {
            if (!damaged) throw;
            session_.drop_damaged_kv(damaged->first,
                                     damaged->second);  // so that the next round restores fewer KV chunks
        }
    } while (damaged);
    if (max_tokens == std::numeric_limits<std::int64_t>::max()) session_.release_kv();
    return n_chunks * kChunkTokens;
}

std::optional<std::string> SessionKv::save() {
    if (target_.n_nodes() > 0) return std::nullopt;
    const std::int64_t n_tokens = std::min(target_.n_committed(), session_.text_tokens());
    const std::int64_t n_chunks = std::min(n_tokens / kChunkTokens, max_chunks_);
    for (; n_saved_ < n_chunks; ++n_saved_) {
        for (std::int64_t layer = 0; layer < n_layers_; ++layer) {
            if (session_.has_kv(layer, n_saved_)) continue;  // a recurrent layer, too
            if (n_saved_ < target_.first_kept_chunk(layer)) {
                if (session_.begin().version > 1) continue;
                max_chunks_ = n_saved_;
                return fmt::format(
                    "{}: a session begun by an older version cannot leave out KV that layers with a sliding window "
                    "have dropped",
                    session_.path().string());
            }
            if (const auto refused = save_block(layer, n_saved_)) return refused;
        }
    }
    return std::nullopt;
}

std::optional<std::string> SessionKv::save_states() {
    if (!states_ || max_chunks_ == 0 || target_.n_nodes() > 0) return std::nullopt;
    return states_->save(n_saved_ * kChunkTokens);
}

std::optional<std::string> SessionKv::save_last_states() {
    if (!states_ || max_chunks_ == 0 || target_.n_nodes() > 0) return std::nullopt;
    return states_->save_last(n_saved_ * kChunkTokens);
}

std::optional<std::string> SessionKv::save_block(std::int64_t layer, std::int64_t chunk) {
    const std::span<std::byte> block(block_.data(), session_.begin().kv_bytes[layer]);
    target_.read_chunk(layer, chunk, block.data());
    std::ranges::fill(block.subspan(layouts_[layer].chunk_bytes()), std::byte{});
    try {
        session_.append_kv(layer, chunk, block);
    } catch (const IoError& error) {
        max_chunks_ = std::min(max_chunks_, chunk);
        return error.what();
    }
    return std::nullopt;
}

}  // namespace slipstream
