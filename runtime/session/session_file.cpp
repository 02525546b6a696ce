#include "runtime/session/session_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <set>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "kernels/attention.h"
#include "kernels/base/check.h"
#include "kernels/base/error.h"
#include "kernels/base/size_text.h"
#include "offload/atomic_file.h"

namespace slipstream {

namespace {

namespace fs = std::filesystem;

constexpr auto kSyncEvery = std::chrono::seconds(30);

[[noreturn]] void refuse(const fs::path& path, std::string_view what, int error) {
    throw IoError(fmt::format("{}: the session {}: {}", path.string(), what, std::strerror(error)));
}

constexpr AtomicFileOptions kNewSession{
    .new_mode = kOwnerOnlyMode, .existing = ExistingFile::Refuse, .refusal = "the session cannot be made"};

// Returns a copy of the descriptor of `file`. AtomicFile closes its own on commit(); the copy keeps the file open, and
// with it the lock.
FileHandle shared_handle(const AtomicFile& file) {
    return FileHandle(::fcntl(file.descriptor(), F_DUPFD_CLOEXEC, 0));
}

std::int64_t layer_of(std::uint64_t index) {
    return static_cast<std::int64_t>(index & 0xFFFFFFFFU);
}
std::int64_t chunk_of(std::uint64_t index) {
    return static_cast<std::int64_t>(index >> 32);
}

// Combines records into the contents of the session.
class SessionReader {
public:
    SessionReader(const SessionRecords& records, std::size_t n_bytes, const std::string& name)
        : records_(records), n_bytes_(n_bytes), name_(name) {}

    SessionContents read() {
        if (records_.records.empty() || records_.records.front().kind != RecordKind::Begin)
            refuse("its first record, from which its text is computed, is lost");
        contents_.begin = decode_session_begin(records_.records.front().payload, records_.version, name_);
        contents_.max_tokens = contents_.begin.max_tokens;
        contents_.valid_bytes = records_.valid_bytes;
        contents_.chain = records_.chain;
        contents_.is_intact = records_.is_intact;
        for (const SessionRecord& record : std::span(records_.records).subspan(1)) take(record);
        if (contents_.valid_bytes < n_bytes_)
            contents_.damage = fmt::format(
                "the last {} bytes are damaged or incomplete and are left out; the text goes on after {} generated "
                "tokens",
                n_bytes_ - contents_.valid_bytes, contents_.tokens.size());
        else if (!contents_.is_intact)
            contents_.damage = "some bytes are damaged, but all generated tokens are recovered";
        return std::move(contents_);
    }

private:
    [[noreturn]] void refuse(std::string_view what) const {
        throw FormatError(fmt::format("{}: a damaged session ({}); it is left as it is, begin another", name_, what));
    }
    [[nodiscard]] std::int64_t text_tokens() const {
        return std::ssize(contents_.begin.prompt) + std::ssize(contents_.tokens);
    }

    // Adds a record to the contents. Throws FormatError if the record, which is intact, contradicts those before it.
    void take(const SessionRecord& record) {
        switch (record.kind) {
            case RecordKind::MaxTokens:
                return take_max_tokens(record);
            case RecordKind::Tokens:
                return take_tokens(record);
            case RecordKind::KvChunk:
                return take_kv(record);
            default:
                refuse("a record of an unknown kind");
        }
    }
    void take_max_tokens(const SessionRecord& record) {
        const auto max_tokens = static_cast<std::int64_t>(record.index);
        if (max_tokens < -1) refuse("a length that cannot be");
        contents_.max_tokens = max_tokens;
    }

    void take_tokens(const SessionRecord& record) {
        const std::size_t n = record.payload.size() / sizeof(TokenId);
        if (record.payload.size() % sizeof(TokenId) != 0 ||
            static_cast<std::int64_t>(n) > contents_.begin.context_tokens - text_tokens())
            refuse("more tokens than its context holds");
        const std::size_t before = contents_.tokens.size();
        contents_.tokens.resize(before + n);
        if (n > 0) std::memcpy(contents_.tokens.data() + before, record.payload.data(), record.payload.size());
        for (const TokenId token : std::span(contents_.tokens).subspan(before))
            if (token < 0 || token >= contents_.begin.vocab) refuse("a token outside of the vocabulary");
    }

    void take_kv(const SessionRecord& record) {
        const SessionBegin& begin = contents_.begin;
        const std::int64_t layer = layer_of(record.index);
        const std::int64_t chunk = chunk_of(record.index);
        const bool is_next = begin.version > 1 || record.index == kv_record_index(n_blocks_ % begin.n_layers(),
                                                                                  n_blocks_ / begin.n_layers());
        if (!is_next || layer >= begin.n_layers() || (chunk + 1) * kChunkTokens > text_tokens())
            refuse("a KV block out of order");
        if (begin.kv_bytes[layer] == 0) refuse("a KV block of a layer that has no KV");
        const bool has_size = record.payload.size() == begin.kv_bytes[layer];
        if (!has_size && is_whole(record, record.payload)) refuse("a KV block of another size");
        if (!indices_.insert(record.index).second) refuse("a KV block that is there twice");
        // In version 1, KV after a damaged block cannot be used: blocks are appended in order.
        const bool is_usable = begin.version > 1 || n_blocks_ == std::ssize(contents_.kv_chunks);
        if (has_size && is_usable) contents_.kv_chunks.push_back(record);
        ++n_blocks_;
    }

    const SessionRecords& records_;
    std::size_t n_bytes_;  // of the file
    const std::string& name_;
    SessionContents contents_;
    std::int64_t n_blocks_ = 0;        // KV blocks, damaged ones included
    std::set<std::uint64_t> indices_;  // of KV blocks
};

}  // namespace

SessionContents read_session(std::span<const std::byte> bytes, const std::string& name) {
    const SessionRecords records = read_session_records(bytes, name);
    return SessionReader(records, bytes.size(), name).read();
}

std::optional<SessionFile> SessionFile::open(const fs::path& path, SessionUse use) {
    if (use == SessionUse::GoOn && is_write_protected(path))
        throw IoError(fmt::format("{}: the session is write-protected; allow writing (chmod u+w), or name another",
                                  path.string()));
    for (;;) {
        const int flags = (use == SessionUse::Read ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NONBLOCK;
        FileHandle file(retry_interrupted([&] { return ::open(path.c_str(), flags); }));
        if (file.get() < 0) {
            if (errno == ENOENT && !fs::is_symlink(path)) return std::nullopt;
            refuse(path, "cannot be opened", errno);
        }
        struct stat status {};
        if (::fstat(file.get(), &status) != 0) refuse(path, "cannot be opened", errno);
        if (!S_ISREG(status.st_mode))
            throw IoError(fmt::format("{}: a session must be a regular file; name another", path.string()));
        lock_session(file.get(), path, use);
        if (!is_file_of_name(file.get(), path)) continue;  // another program has replaced a damaged session
        SessionFile session(path, std::move(file));
        session.mapping_.emplace(path);
        session.contents_ = read_session(session.mapping_->bytes(), path.string());
        for (const SessionRecord& record : session.contents_.kv_chunks) session.kv_.emplace(record.index, record);
        session.contents_.kv_chunks.clear();
        return session;
    }
}

void SessionFile::check_place(const fs::path& path) {
    const AtomicFile made(path, kNewSession);
}

SessionFile SessionFile::create(const fs::path& path, SessionBegin begin) {
    AtomicFile made(path, kNewSession);
    SessionFile session(path, shared_handle(made));
    lock_session(session.file_.get(), path, SessionUse::GoOn);
    session.begin_file(std::move(begin));
    made.commit();
    return session;
}

// Writes the first record to an empty file that is locked.
void SessionFile::begin_file(SessionBegin begin) {
    cut_ = true;  // there is nothing to cut
    contents_.begin = std::move(begin);
    contents_.max_tokens = contents_.begin.max_tokens;
    contents_.chain = first_chain(this->begin().version);
    contents_.valid_bytes = 0;
    write_at_end(session_head(this->begin().version), contents_.valid_bytes);
    append(RecordKind::Begin, 0, encode_session_begin(contents_.begin));
}

// Replaces a damaged file by a new one with what was read.
void SessionFile::replace() {
    try {
        write_replacement();
    } catch (const IoError& refusal) {
        std::size_t n_bytes = tokens().size() * sizeof(TokenId) + begin().prompt.size() * sizeof(TokenId);
        for (const auto& [index, record] : kv_) n_bytes += begin().kv_bytes[layer_of(index)];
        throw IoError(
            fmt::format("{}; the damaged session is left as it is: a whole one that replaces it takes {} beside it",
                        refusal.what(), size_text(n_bytes)));
    }
}

// Writes the new file and takes its place. KV blocks are checked before they get new checksums.
void SessionFile::write_replacement() {
    AtomicFile made(path_, {.new_mode = kOwnerOnlyMode, .refusal = "the damaged session cannot be replaced"});
    SessionFile whole(path_, shared_handle(made));
    lock_session(whole.file_.get(), path_, SessionUse::GoOn);
    whole.contents_.tokens = tokens();  // set before the first write, since fail() reports the number of tokens
    whole.begin_file(begin());
    if (max_tokens() != begin().max_tokens) whole.append_max_tokens(max_tokens());
    if (!tokens().empty()) whole.append(RecordKind::Tokens, 0, std::as_bytes(std::span(tokens())));
    std::vector<std::byte> block;
    for (const auto& [index, record] : kv_) {
        block.resize(begin().kv_bytes[layer_of(index)]);
        if (!read_kv(layer_of(index), chunk_of(index), block.data()))
            throw IoError(
                fmt::format("{}: the session was changed meanwhile; run the same command again", path_.string()));
        whole.append_kv(layer_of(index), chunk_of(index), block);
    }
    made.commit();
    whole.contents_.damage = damage();
    *this = std::move(whole);
}

std::int64_t SessionFile::n_kv_chunks() const {
    std::int64_t n_chunks = 0;
    while (has_kv_chunk(n_chunks)) ++n_chunks;
    return n_chunks;
}

bool SessionFile::has_kv_chunk(std::int64_t chunk) const {
    for (std::int64_t layer = 0; layer < begin().n_layers(); ++layer)
        if (!has_kv(layer, chunk)) return false;
    return true;
}

bool SessionFile::read_kv(std::int64_t layer, std::int64_t chunk, std::byte* out) const {
    if (begin().kv_bytes[layer] == 0) return true;
    const auto found = kv_.find(kv_record_index(layer, chunk));
    CHECK(found != kv_.end() && found->second, "KV of layer {}, chunk {} is missing", layer, chunk);
    const SessionRecord& record = *found->second;
    std::copy(record.payload.begin(), record.payload.end(), out);
    return is_whole(record, {out, record.payload.size()});
}

void SessionFile::drop_damaged_kv(std::int64_t layer, std::int64_t chunk) {
    const auto damaged = kv_.find(kv_record_index(layer, chunk));
    // A file of version 1 takes KV in order only, so there all KV after the damaged part is dropped too.
    kv_.erase(damaged, begin().version > 1 ? std::next(damaged) : kv_.end());
    contents_.is_intact = false;
    contents_.damage += fmt::format("{}KV of chunk {} is damaged, and KV from token {} on is computed again",
                                    contents_.damage.empty() ? "" : "; ", chunk, chunk * kChunkTokens);
}

void SessionFile::release_kv() {
    if (contents_.is_intact) {
        for (auto& [index, record] : kv_) record.reset();
        mapping_.reset();
        return;
    }
    // The blocks are copied when the file is replaced.
    for (auto it = kv_.begin(); it != kv_.end();) {
        if (!it->second || is_whole(*it->second, it->second->payload)) {
            ++it;
        } else {
            it = kv_.erase(it, begin().version > 1 ? std::next(it) : kv_.end());
        }
    }
}

void SessionFile::append_tokens(std::span<const TokenId> tokens) {
    if (tokens.empty()) return;
    append(RecordKind::Tokens, 0, std::as_bytes(tokens));
    contents_.tokens.insert(contents_.tokens.end(), tokens.begin(), tokens.end());
}

void SessionFile::append_max_tokens(std::int64_t max_tokens) {
    append(RecordKind::MaxTokens, static_cast<std::uint64_t>(max_tokens), {});
    contents_.max_tokens = max_tokens;
}

void SessionFile::append_kv(std::int64_t layer, std::int64_t chunk, std::span<const std::byte> block) {
    const std::uint64_t index = kv_record_index(layer, chunk);
    const std::int64_t n_layers = begin().n_layers();
    CHECK(layer < n_layers && block.size() == begin().kv_bytes[layer] && (chunk + 1) * kChunkTokens <= text_tokens() &&
              !has_kv(layer, chunk),
          "{} bytes of layer {}, chunk {}, {} tokens", block.size(), layer, chunk, text_tokens());
    CHECK(begin().version > 1 || index == kv_record_index(n_kv_blocks() % n_layers, n_kv_blocks() / n_layers),
          "layer {}, chunk {} after {} blocks", layer, chunk, n_kv_blocks());
    append(RecordKind::KvChunk, index, block);
    kv_.emplace(index, std::nullopt);
}

void SessionFile::append(RecordKind kind, std::uint64_t index, std::span<const std::byte> payload) {
    if (!contents_.is_intact) replace();
    if (!cut_) {
        if (cut_at(contents_.valid_bytes) != 0) fail(errno);
        cut_ = true;
    }
    std::uint64_t chain = contents_.chain;
    const auto head = record_head(kind, index, payload, chain);
    std::size_t end_bytes = contents_.valid_bytes;
    write_at_end(head, end_bytes);
    write_at_end(payload, end_bytes);
    contents_.valid_bytes = end_bytes;
    contents_.chain = chain;
    if (Clock::now() - synced_ >= kSyncEvery) sync();
}

int SessionFile::cut_at(std::size_t n_bytes) const {
    return retry_interrupted([&] { return ::ftruncate(file_.get(), static_cast<off_t>(n_bytes)); });
}

// Writes `bytes` at the position end_bytes and advances it. If the system refuses, cuts off the part of the record that
// is written, as the next append would do, and throws IoError.
void SessionFile::write_at_end(std::span<const std::byte> bytes, std::size_t& end_bytes) const {
    while (!bytes.empty()) {
        const ssize_t n = retry_interrupted(
            [&] { return ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(end_bytes)); });
        if (n <= 0) {
            const int error = n < 0 ? errno : ENOSPC;
            static_cast<void>(cut_at(contents_.valid_bytes));
            fail(error);
        }
        bytes = bytes.subspan(n);
        end_bytes += static_cast<std::size_t>(n);
    }
}

void SessionFile::sync() {
    if (retry_interrupted([&] { return ::fdatasync(file_.get()); }) != 0) fail(errno);
    synced_ = Clock::now();
}

void SessionFile::fail(int error) const {
    throw IoError(fmt::format(
        "{}: the session cannot be written: {}; it holds {} generated tokens: make room and run the same command again",
        path_.string(), std::strerror(error), contents_.tokens.size()));
}

}  // namespace slipstream
