#include "runtime/session/session_states.h"

#include <algorithm>
#include <new>
#include <system_error>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "kernels/matmul.h"

namespace slipstream {

namespace {

// Least time between two saves, in multiples of the time that one takes.
constexpr int kSaveShare = 100;

}  // namespace

SessionStates::SessionStates(const SessionFile& session, Target& target, SessionUse use, Clock::duration least_gap)
    : session_(session), target_(target), shape_(session.begin(), target.shape().kv), least_gap_(least_gap) {
    const std::filesystem::path path = StatesFile::path_of(session.path());
    std::error_code error;
    if (!std::filesystem::exists(path, error)) {
        if (session.n_kv_chunks() * kChunkTokens >= kPrefillChunkTokens)
            lost_ = fmt::format(
                "{}: the states of recurrent layers are missing; the text is computed again; if the session was moved "
                "or copied, move this file with it",
                path.string());
        return;
    }
    std::string reason;
    try {
        file_ = StatesFile::open(session.path(), shape_, use);
        if (file_ && file_->choose(session.text_tokens()) > 0) return;
        reason = fmt::format("{}: {}", path.string(),
                             file_ ? "no states of recurrent layers within the text are whole"
                                   : "the states of recurrent layers are damaged or of another session");
    } catch (const IoError& refused) {
        reason = refused.what();
    }
    lost_ = reason + "; the text is computed again";
    file_.reset();
    if (use == SessionUse::GoOn) StatesFile::remove(session.path());
}

std::int64_t SessionStates::find(std::int64_t max_tokens) {
    position_ = 0;
    if (!file_ || max_tokens == 0) return 0;
    try {
        position_ = file_->choose(max_tokens);
    } catch (const IoError& refused) {
        lost_ = fmt::format("{}; the text is computed again", refused.what());
        file_.reset();
    }
    return position_;
}

bool SessionStates::restore() {
    try {
        target_.restore_states(position_, [&](std::int64_t layer, std::byte* out) { file_->read_state(layer, out); });
        return true;
    } catch (const IoError& refused) {
        lost_ = fmt::format("{}; the text is computed again", refused.what());
        position_ = 0;
        file_.reset();
        return false;
    }
}

std::optional<std::string> SessionStates::refuse(const char* reason) {
    is_refused_ = true;
    return fmt::format("{}: the states of recurrent layers cannot be saved: {}; run the same command again",
                       StatesFile::path_of(session_.path()).string(), reason);
}

std::optional<std::string> SessionStates::save(std::int64_t n_kv_tokens) {
    if (is_refused_ || n_kv_tokens <= position_) return std::nullopt;
    if (saved_at_ && Clock::now() - *saved_at_ < std::max(least_gap_, kSaveShare * save_time_)) return std::nullopt;
    try {
        const std::int64_t position = target_.last_state(n_kv_tokens, kPrefillChunkTokens);
        if (position > position_) write(position);
    } catch (const IoError& refused) {
        is_refused_ = true;
        return refused.what();
    } catch (const Error& failed) {  // of a device, or of the memory
        return refuse(failed.what());
    } catch (const std::bad_alloc&) {
        return refuse("there is no memory for a copy");
    }
    return std::nullopt;
}

std::optional<std::string> SessionStates::save_last(std::int64_t n_kv_tokens) {
    saved_at_.reset();
    if (auto refused = save(n_kv_tokens)) return refused;
    try {
        if (file_ && !is_refused_) file_->sync();
    } catch (const IoError& refused) {
        return refused.what();
    }
    return std::nullopt;
}

void SessionStates::write(std::int64_t position) {
    const Clock::time_point began = Clock::now();
    if (!file_) file_ = StatesFile::create(session_.path(), shape_);
    file_->save(position, [&](std::int64_t layer, std::byte* out) { target_.read_state(layer, position, out); });
    position_ = position;
    saved_at_ = Clock::now();
    save_time_ = *saved_at_ - began;
}

}  // namespace slipstream
