#include "runtime/session/session_prompt.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <numeric>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <xxhash.h>

#include "kernels/attention.h"
#include "kernels/base/error.h"
#include "kernels/base/size_text.h"
#include "runtime/loop/sequence.h"
#include "runtime/session/session_kv.h"

namespace slipstream {

namespace {

// Assumed speed of the first checkpoint, in bytes per second, to choose its time; that of the others is measured. Less
// than what a hard disk writes.
constexpr double kWriteBytesPerSecond = 100e6;

// Least time between two checkpoints, in multiples of the time for which one holds up the prompt: that is 1 % of the
// time.
constexpr double kStallShare = 100;
// Least time between two checkpoints, in multiples of the time for which one is being written: that is a tenth of the
// time.
constexpr double kWriteShare = 10;

// Returns the position before which the KV of `state` is computed in `layer`.
std::int64_t kv_end(const PromptState& state, std::int64_t layer) {
    const std::int64_t n_passed = std::min(state.first_chunk_at(layer), state.n_prefill_chunks() - 1);
    return n_passed == 0 ? state.begin : (state.begin / kPrefillChunkTokens + n_passed) * kPrefillChunkTokens;
}

}  // namespace

SessionPrompt::SessionPrompt(SessionFile& session, Target& target, std::size_t hidden_row_bytes,
                             std::size_t limit_bytes, const Gaps& gaps)
    : session_(session), target_(target), hidden_row_bytes_(hidden_row_bytes), limit_bytes_(limit_bytes), gaps_(gaps) {
    checkpoints_.is_due = [this] { return is_due(); };
    checkpoints_.save = [this](const PromptState& state, const PromptReader& reader) { save(state, reader); };
    checkpoints_.await_read = [this](std::int64_t prefill_chunk) { await_read(prefill_chunk); };
    open();
}

SessionPrompt::~SessionPrompt() {
    if (writer_.joinable()) writer_.join();
}

PromptFileShape SessionPrompt::shape(std::int64_t begin) const {
    const std::vector<std::byte> first = encode_session_begin(session_.begin());
    PromptFileShape shape{.session_hash = XXH3_64bits(first.data(), first.size()),
                          .begin = begin,
                          .end = Sequence::prefill_border(n_prompt()),
                          .row_bytes = hidden_row_bytes_};
    shape.n_after = n_prompt() - shape.end;
    for (const KvLayout& layout : target_.shape().kv)
        shape.after_bytes.push_back(2 * static_cast<std::size_t>(shape.n_after) * layout.scratch_row_bytes());
    return shape;
}

// Returns whether the session has the KV of `state`, undamaged: what the target reads to be restored to its begin, and
// what layers with a sliding window then keep.
bool SessionPrompt::has_kv_of(const PromptState& state) {
    std::vector<std::byte> block;
    for (std::int64_t layer = 0; layer < session_.begin().n_layers(); ++layer) {
        const std::int64_t end = kv_end(state, layer);
        block.resize(session_.begin().kv_bytes[layer]);
        for (std::int64_t chunk = 0; chunk < end / kChunkTokens; ++chunk) {
            const std::int64_t position = chunk < state.begin / kChunkTokens ? state.begin : end;
            if (chunk < target_.first_restored_chunk(layer, position)) continue;
            if (!session_.has_kv(layer, chunk) || !session_.read_kv(layer, chunk, block.data())) return false;
        }
    }
    return true;
}

void SessionPrompt::open() {
    const std::filesystem::path& path = session_.path();
    std::error_code error;
    if (session_.begin().version == 1 || !std::filesystem::exists(PromptFile::path_of(path), error)) return;
    // The prompt was computed to its end.
    if (!session_.tokens().empty() || shape(0).end == 0) return PromptFile::remove(path);
    std::string refusal;
    try {
        file_ = PromptFile::open(path, shape(0));
        if (file_ && session_.is_intact())
            state_ = file_->read_state([&](const PromptState& state) { return has_kv_of(state); });
    } catch (const IoError& refused) {
        state_.reset();
        refusal = refused.what();
    }
    if (state_ && target_.takes_saved_prompt(state_->end)) {
        checkpoints_.saved = {
            .state = *state_,
            .hidden = [this](std::int64_t prefill_chunk, std::byte* out) { file_->read_hidden(prefill_chunk, out); },
            .kv =
                [this](std::int64_t layer, std::int64_t chunk, std::byte* out) {
                    if (!session_.read_kv(layer, chunk, out))
                        throw IoError(
                            fmt::format("{}: the session was changed meanwhile; run the "
                                        "same command again",
                                        session_.path().string()));
                },
            .rows_after = [this](std::int64_t layer, std::byte* out) { file_->read_rows_after(layer, out); }};
        return;
    }
    const std::string_view why =
        state_ ? "the hidden states of the prompt cannot be used, since the prompt cannot go layer by layer with these "
                 "devices and memory"
        : file_ ? "no checkpoint of the prompt is whole"
                : "the checkpoints of the prompt are damaged or of another session";
    if (refusal.empty()) refusal = fmt::format("{}: {}", PromptFile::path_of(path).string(), why);
    lost_ = refusal + "; the prompt goes on after the KV chunks that are whole";
    state_.reset();
    file_.reset();
    PromptFile::remove(path);
}

std::optional<std::string> SessionPrompt::prepare() {
    saved_at_ = asked_at_ = Clock::now();
    if (file_) {
        file_bytes_ = file_->shape().file_bytes();
    } else if (const auto reason = create()) {
        return reason;
    }
    save_seconds_ = Seconds(static_cast<double>(file_bytes_) / 2 / kWriteBytesPerSecond);
    if (!file_) return std::nullopt;
    try {
        save_windows();
    } catch (const IoError& refused) {
        file_.reset();
        state_.reset();
        PromptFile::remove(session_.path());
        return refused.what();
    }
    return std::nullopt;
}

// Saves the KV of layers with a sliding window that the prompt begins after. The first layers overwrite it before the
// last ones have read theirs, so no checkpoint could save it, and a restored prompt begins after it in all layers.
void SessionPrompt::save_windows() {
    const PromptFileShape& shape = file_->shape();
    std::vector<std::byte> block;
    for (std::int64_t layer = 0; layer < session_.begin().n_layers(); ++layer) {
        const std::int64_t first = target_.first_restored_chunk(layer, shape.begin);
        if (target_.first_restored_chunk(layer, shape.end) == first) continue;
        block.resize(session_.begin().kv_bytes[layer]);
        for (std::int64_t chunk = std::max(first, target_.first_kept_chunk(layer)); chunk < shape.begin / kChunkTokens;
             ++chunk) {
            if (session_.has_kv(layer, chunk)) continue;
            target_.read_chunk(layer, chunk, block.data());
            session_.append_kv(layer, chunk, block);
        }
    }
}

// Creates the side file if the prompt will go layer by layer. Returns why there is no room for what is to be kept; no
// value if there is room.
std::optional<std::string> SessionPrompt::create() {
    const PromptFileShape made = shape(target_.n_committed());
    if (made.end <= made.begin || !session_.tokens().empty()) return std::nullopt;
    const bool by_layer = target_.takes_prompt(made.end);
    if (by_layer && session_.begin().version == 1) return "it was begun by an older version";
    const std::vector<std::uint64_t>& sizes = session_.begin().kv_bytes;
    const std::uint64_t chunk_bytes = std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
    std::uint64_t n_bytes = chunk_bytes * static_cast<std::uint64_t>(made.end / kChunkTokens);
    if (by_layer) n_bytes += made.file_bytes();
    if (by_layer && n_bytes > limit_bytes_)
        return fmt::format("that takes {}, more than --session-limit {}", size_text(n_bytes), size_text(limit_bytes_));
    n_bytes = std::min<std::uint64_t>(n_bytes, limit_bytes_);
    n_bytes -= std::min(n_bytes, chunk_bytes * static_cast<std::uint64_t>(session_.n_kv_chunks()));
    std::error_code error;
    const std::filesystem::path folder = std::filesystem::absolute(session_.path(), error).parent_path();
    const std::filesystem::space_info space = std::filesystem::space(folder, error);
    if (!error && space.available < n_bytes)
        return fmt::format("that takes {}, and the disk has {}", size_text(n_bytes), size_text(space.available));
    if (!by_layer) return std::nullopt;
    try {
        file_ = PromptFile::create(session_.path(), made);
        file_bytes_ = made.file_bytes();
    } catch (const IoError& refused) {
        return refused.what();
    }
    return std::nullopt;
}

// Returns whether to save the prompt now. The next step is assumed to take as long as the last one.
bool SessionPrompt::is_due() {
    const Clock::time_point now = Clock::now();
    const Seconds step = now - std::exchange(asked_at_, now);
    if (!file_ || gaps_.longest == Seconds(0)) return file_.has_value();
    {
        const std::scoped_lock lock(mutex_);
        if (!is_written_) return false;
    }
    settle();
    const Seconds longest = std::max(gaps_.longest - save_seconds_ - std::min(step, gaps_.longest), save_seconds_);
    const Seconds wanted = std::max({gaps_.shortest, kStallShare * stall_seconds_, kWriteShare * save_seconds_});
    return file_ && now - saved_at_ >= std::min(longest, wanted);
}

void SessionPrompt::save(const PromptState& state, const PromptReader& reader) {
    settle();
    if (!file_) return;
    session_.release_kv();  // saved.kv was read when the pass began
    saved_at_ = Clock::now();
    try {
        save_kv(state, reader);
        file_->save_rows_after(state, reader);
    } catch (const IoError& error) {
        return refuse(error.what());
    }
    std::vector<const std::byte*> rows;
    for (std::int64_t chunk = 0; chunk < state.n_prefill_chunks(); ++chunk) rows.push_back(reader.hidden(chunk));
    {
        const std::scoped_lock lock(mutex_);
        is_read_.assign(rows.size(), false);
        awaited_ = Seconds(0);
        is_written_ = false;
    }
    written_state_ = state;
    try {
        writer_ = std::thread([this, rows] { write_hidden(written_state_, rows); });
    } catch (const std::system_error&) {  // the system starts no more threads
        write_hidden(written_state_, rows);
    }
    asked_at_ = Clock::now();
    stall_seconds_ = asked_at_ - saved_at_;
}

// Writes the hidden states of a checkpoint; runs on the writer's thread.
void SessionPrompt::write_hidden(const PromptState& state, const std::vector<const std::byte*>& rows) {
    std::string refusal;
    try {
        file_->save_hidden(
            state, [&](std::int64_t chunk) { return rows[chunk]; },
            [&](std::int64_t chunk) {
                {
                    const std::scoped_lock lock(mutex_);
                    is_read_[chunk] = true;
                }
                changed_.notify_all();
            });
    } catch (const std::exception& error) {  // IoError, or no memory
        refusal = error.what();
    }
    {
        const std::scoped_lock lock(mutex_);
        is_written_ = true;
        write_refusal_ = std::move(refusal);
        written_at_ = Clock::now();
    }
    changed_.notify_all();
}

void SessionPrompt::await_read(std::int64_t prefill_chunk) {
    const auto is_read = [&] { return is_written_ || is_read_[prefill_chunk]; };
    std::unique_lock lock(mutex_);
    if (is_read()) return;
    const Clock::time_point began = Clock::now();
    changed_.wait(lock, is_read);
    awaited_ += Clock::now() - began;
}

void SessionPrompt::settle() {
    {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return is_written_; });
    }
    if (writer_.joinable()) writer_.join();
    PromptState written = std::exchange(written_state_, {});
    if (written.n_layers.empty()) return;
    if (!write_refusal_.empty()) return refuse(write_refusal_);
    state_ = std::move(written);
    save_seconds_ = written_at_ - saved_at_;
    stall_seconds_ += awaited_;
    ++n_checkpoints_;
}

void SessionPrompt::refuse(const std::string& reason) {
    refusal_ = reason;
    file_.reset();
    state_.reset();
    PromptFile::remove(session_.path());
}

std::optional<std::string> SessionPrompt::take_refusal() {
    return std::exchange(refusal_, std::nullopt);
}

void SessionPrompt::save_kv(const PromptState& state, const PromptReader& reader) {
    std::vector<std::byte> block;
    for (std::int64_t layer = 0; layer < session_.begin().n_layers(); ++layer) {
        const std::int64_t end = kv_end(state, layer);
        block.resize(session_.begin().kv_bytes[layer]);
        for (std::int64_t chunk = target_.first_restored_chunk(layer, end); chunk < end / kChunkTokens; ++chunk) {
            if (session_.has_kv(layer, chunk)) continue;
            reader.kv(layer, chunk, block.data());
            session_.append_kv(layer, chunk, block);
        }
    }
}

std::int64_t SessionPrompt::n_kept() const {
    const std::int64_t n_restorable = restorable_chunks(session_, target_, n_prompt() / kChunkTokens) * kChunkTokens;
    if (!state_) return n_restorable;
    const std::int64_t n_steps = state_->n_prefill_chunks() * session_.begin().n_layers();
    return std::max(n_restorable, state_->begin + (n_prompt() - state_->begin) * state_->n_steps() / n_steps);
}

void SessionPrompt::finish() {
    if (target_.n_nodes() == 0) settle();
    if (!file_ || target_.n_nodes() > 0) return;
    const std::int64_t n_chunks = file_->shape().end / kChunkTokens;
    if (target_.n_committed() < file_->shape().end || restorable_chunks(session_, target_, n_chunks) < n_chunks) return;
    file_.reset();
    state_.reset();
    PromptFile::remove(session_.path());
}

}  // namespace slipstream
