#include "tools/engine/kept_prompt.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "kernels/attention.h"
#include "kernels/base/error.h"
#include "kernels/matmul.h"
#include "offload/atomic_file.h"
#include "runtime/loop/sequence.h"
#include "runtime/session/session_states.h"
#include "runtime/session/states_file.h"
#include "tools/base/amounts.h"
#include "tools/engine/engine.h"

namespace slipstream::tools {

namespace {

namespace fs = std::filesystem;

// Marks the session of a chat; one that a user made by `generate --session` does not have it.
constexpr std::string_view kChatMark = "chat prompt";

// Prompts that are computed within this time are not written to the disk, unless they are interrupted.
constexpr auto kFirstSave = std::chrono::seconds(10);

// Prompts of which fewer tokens must be computed before the last prefill chunk are not kept.
constexpr std::int64_t kLeastTokens = kChunkTokens;

// A prompt that goes layer by layer is kept only from a whole KV chunk on, so that up to 255 positions that the cache
// has are computed again. With fewer new tokens than this, that would cost more than what may be lost.
constexpr std::int64_t kLeastTokensByLayer = 4 * kPrefillChunkTokens;

bool is_of_chat(const SessionBegin& begin) {
    return begin.prompt_options.size() == 1 && begin.prompt_options.front() == kChatMark;
}

// Returns what differs between two sessions, as part of a sentence ("another model"); empty: nothing does.
std::string_view difference(const SessionBegin& kept, const SessionBegin& wanted) {
    if (kept.prompt != wanted.prompt) return "another prompt";
    if (kept.model_fingerprint != wanted.model_fingerprint || kept.vocab != wanted.vocab ||
        kept.n_layers() != wanted.n_layers())
        return "another model";
    if (kept.kv_dtype != wanted.kv_dtype) return "another KV type";
    if (kept.device_kind != wanted.device_kind || kept.instruction_form != wanted.instruction_form)
        return "other devices";
    if (kept.split != wanted.split) return "another split of the model";
    if (kept.context_tokens != wanted.context_tokens || kept.rope_fingerprint != wanted.rope_fingerprint)
        return "another context";
    if (kept.kv_bytes != wanted.kv_bytes || kept.program_version != wanted.program_version) return "another version";
    return {};
}

}  // namespace

fs::path KeptPrompt::path_of(const fs::path& chat) {
    fs::path path = chat;
    path += ".kv";
    return path;
}

void KeptPrompt::remove(const fs::path& chat) {
    const fs::path path = path_of(chat);
    std::error_code error;
    if (!fs::exists(path, error)) return;
    try {
        const std::optional<SessionFile> session = SessionFile::open(path);
        if (!session || !is_of_chat(session->begin())) return;
    } catch (const Error&) {  // not removed: it is no session, or another program has it open
        return;
    }
    PromptFile::remove(path);
    StatesFile::remove(path);
    static_cast<void>(::unlink(path.c_str()));
}

KeptPrompt::KeptPrompt(const fs::path& chat, std::size_t limit_bytes, EngineCallbacks callbacks)
    : chat_(chat), path_(path_of(chat)), limit_bytes_(limit_bytes), callbacks_(std::move(callbacks)) {
    remove_leftover_parts(path_);
}

void KeptPrompt::close() {
    if (generator_ != nullptr) generator_->save_prompts(nullptr);
    generator_ = nullptr;
    prompt_.reset();
    kv_.reset();
    session_.reset();
}

void KeptPrompt::remove() {
    close();
    remove(chat_);
}

// Opens session_ and returns true if the file holds a session that `wanted` can go on with. Otherwise returns false,
// reports why, and removes the session if it is one of this chat.
bool KeptPrompt::open(const SessionBegin& wanted) {
    std::error_code error;
    is_foreign_ = false;
    if (!fs::exists(path_, error)) return false;
    std::string damage;
    try {
        session_ = SessionFile::open(path_);
        if (!session_) return false;
        if (!is_of_chat(session_->begin())) {
            session_.reset();
            is_foreign_ = true;
            return false;
        }
        damage = difference(session_->begin(), wanted);
        if (damage.empty()) return true;
        damage = "it is of " + damage;
    } catch (const Error& refused) {  // its first record is damaged, it is no session, or another program has it
        is_foreign_ = true;
        callbacks_.note(fmt::format("{}; the prompt begins anew, and is not kept", refused.what()));
        return false;
    }
    session_.reset();
    callbacks_.note(fmt::format("{}: {}; the prompt begins anew", path_.string(), damage));
    remove(chat_);
    return false;
}

std::int64_t KeptPrompt::start(TextGenerator& generator, std::vector<TokenId> prompt) {
    close();
    n_resumed_ = 0;
    began_ = Clock::now();
    SessionBegin wanted = session_begin_of(generator.model());
    wanted.prompt = prompt;
    wanted.prompt_options = {std::string(kChatMark)};
    const std::int64_t border = Sequence::prefill_border(std::ssize(prompt));
    Sequence& sequence = generator.sequence();
    Target& target = sequence.target();
    const std::vector<TokenId>& held = sequence.tokens();
    const auto n_most = std::min({std::ssize(held), std::ssize(prompt), target.n_committed()});
    std::int64_t n_live = std::mismatch(held.begin(), held.begin() + n_most, prompt.begin()).first - held.begin();
    // The target has the KV of all prefill chunks already, so nothing is kept. Files of an earlier prompt of the same
    // answer stay.
    if (border <= n_live) return generator.start(std::move(prompt));
    const bool is_recurrent = generator.model().config().is_recurrent();
    if (is_recurrent) n_live = target.positions_after_cut(n_live);
    const auto n_restorable = [&] {
        const std::int64_t n_kv =
            restorable_chunks(*session_, target, (std::ssize(prompt) - 1) / kChunkTokens) * kChunkTokens;
        return is_recurrent ? SessionStates(*session_, target, SessionUse::Read).find(n_kv) : n_kv;
    };
    std::error_code error;
    if (open(wanted) && (fs::exists(PromptFile::path_of(path_), error) || n_restorable() > n_live)) {
        restore(generator, std::move(prompt));
        return n_resumed_;
    }
    std::int64_t n_reused = generator.start(std::move(prompt));
    const std::int64_t n_new = border - target.n_committed();
    if (n_new < kLeastTokens || is_foreign_) {
        session_.reset();
        return n_reused;
    }
    if (is_recurrent && target.takes_prompt(border)) {
        if (n_new >= kLeastTokensByLayer)
            callbacks_.note(
                "if the prompt is interrupted, it begins anew: it goes layer by layer, and the states of recurrent "
                "layers are those of a part of them");
        session_.reset();
        return n_reused;
    }
    if (target.takes_prompt(border) && n_reused % kChunkTokens != 0) {
        if (n_new < kLeastTokensByLayer) {
            session_.reset();
            return n_reused;
        }
        n_reused = n_reused / kChunkTokens * kChunkTokens;
        sequence.keep_computed(n_reused);
        n_reused = sequence.n_computed();
    }
    try {
        if (!session_) {
            StatesFile::remove(path_);  // of a session that was removed
            session_ = SessionFile::create(path_, std::move(wanted));
        }
        open_prompt(generator);
        attach(generator);
    } catch (const IoError& refused) {
        close();
        callbacks_.note(fmt::format("if the prompt is interrupted, it begins anew: {}", refused.what()));
    }
    return n_reused;
}

// Fills the target with the saved KV of at most `max_tokens` positions, and returns their number.
std::int64_t KeptPrompt::read_kv(std::int64_t max_tokens) {
    const WorkProgress progress = callbacks_.work("reading the KV of the prompt");
    return kv_->restore(
        [&](std::uint64_t done, std::uint64_t total) {
            progress(static_cast<double>(done), static_cast<double>(total), size_text(done));
        },
        max_tokens);
}

void KeptPrompt::restore(TextGenerator& generator, std::vector<TokenId> prompt) {
    generator.sequence().keep_computed(0);
    const auto n_prompt = std::ssize(prompt);
    open_prompt(generator);
    const std::optional<PromptState> saved = prompt_->saved();  // none if layers are recurrent
    n_resumed_ = prompt_->n_kept();
    const std::int64_t n_restored = read_kv(saved ? saved->begin : std::numeric_limits<std::int64_t>::max());
    if (!saved) n_resumed_ = n_restored;
    if (!prompt_->lost().empty()) callbacks_.note(prompt_->lost());
    if (!kv_->lost_states().empty()) callbacks_.note(kv_->lost_states());
    if (!session_->damage().empty()) callbacks_.note(fmt::format("{}: {}", path_.string(), session_->damage()));
    callbacks_.note(
        fmt::format("going on within the prompt: {} of {} are read", n_resumed_, counted(n_prompt, "prompt token")));
    generator.resume(std::move(prompt), n_prompt);
    attach(generator);
}

// Reads what the session and its side file hold of the prompt.
void KeptPrompt::open_prompt(TextGenerator& generator) {
    Target& target = generator.sequence().target();
    const std::size_t row_bytes = static_cast<std::size_t>(generator.model().config().d_model) * sizeof(float);
    kv_.emplace(*session_, target, limit_bytes_);
    prompt_ = std::make_unique<SessionPrompt>(*session_, target, row_bytes, kv_->states_bytes() > 0 ? 0 : limit_bytes_);
}

// Keeps the prompt from now on. Call after open_prompt(), when the KV that is kept is restored.
void KeptPrompt::attach(TextGenerator& generator) {
    const bool is_recurrent = kv_->states_bytes() > 0;
    if (const auto reason = is_recurrent ? std::nullopt : prompt_->prepare()) {
        callbacks_.note(fmt::format("if the prompt is interrupted, it begins anew: {}", *reason));
    } else if (kv_->max_tokens() < Sequence::prefill_border(std::ssize(session_->begin().prompt))) {
        callbacks_.note(fmt::format("if the prompt is interrupted, it begins anew after {} (--session-limit {})",
                                    counted(kv_->max_tokens(), "token"), size_text(limit_bytes_)));
    }
    generator_ = &generator;
    if (!is_recurrent) generator.save_prompts(&prompt_->checkpoints());
}

std::optional<std::string> KeptPrompt::save() {
    return prompt_ && Clock::now() - began_ >= kFirstSave ? save_now() : std::nullopt;
}

std::optional<std::string> KeptPrompt::save_now() {
    std::optional<std::string> refused = kv_->save();
    prompt_->finish();
    if (auto no_more = prompt_->take_refusal()) refused = std::move(no_more);
    if (refused) *refused += "; if the prompt is interrupted, it begins anew after the KV chunks that are whole";
    return refused ? refused : without_states(kv_->save_states());
}

// Adds to a refusal of states what it means.
std::optional<std::string> KeptPrompt::without_states(std::optional<std::string> refused) const {
    if (refused)
        *refused += fmt::format("; if the prompt is interrupted, it begins anew after {}",
                                counted(kv_->n_in_states(), "token"));
    return refused;
}

std::optional<std::int64_t> KeptPrompt::interrupt() {
    if (!prompt_) return std::nullopt;
    if (const auto refused = save_now()) callbacks_.note(*refused);
    prompt_->settle();
    session_->sync();
    if (kv_->states_bytes() == 0) return prompt_->n_kept();
    if (const auto refused = without_states(kv_->save_last_states())) callbacks_.note(*refused);
    return kv_->n_in_states();
}

}  // namespace slipstream::tools
