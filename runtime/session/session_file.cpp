#include "runtime/session/session_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "kernels/attention.h"
#include "kernels/base/check.h"
#include "kernels/base/error.h"

namespace slipstream {

namespace {

namespace fs = std::filesystem;

constexpr auto kSyncEvery = std::chrono::seconds(30);
constexpr mode_t kFileMode = 0666;  // the umask takes its part
constexpr const char* kDescriptors = "/proc/self/fd";

fs::path folder_of(const fs::path& path) {
    return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

[[noreturn]] void refuse(const fs::path& path, std::string_view what, int error) {
    throw IoError(fmt::format("{}: the session {}: {}", path.string(), what, std::strerror(error)));
}

// A file that has no name yet where the system can do that, else one beside its place.
struct NewFile {
    SessionHandle file;
    fs::path part;  // its name; empty: it has none
};

NewFile make_new_file(const fs::path& path) {
    NewFile made;
    if (::access(kDescriptors, X_OK) == 0)
        made.file = SessionHandle(::open(folder_of(path).c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, kFileMode));
    if (made.file.get() >= 0) return made;
    made.part = path;
    made.part += fmt::format(".{}.part", ::getpid());
    made.file = SessionHandle(::open(made.part.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, kFileMode));
    if (made.file.get() < 0) refuse(path, "cannot be made", errno);
    return made;
}

// Gives the file its name where no other has it; the system's error else.
int take_name(const NewFile& made, const fs::path& path) {
    const std::string source =
        made.part.empty() ? fmt::format("{}/{}", kDescriptors, made.file.get()) : made.part.string();
    int error = ::linkat(AT_FDCWD, source.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) == 0 ? 0 : errno;
    // A file system without links.
    if ((error == EPERM || error == EOPNOTSUPP) && !made.part.empty())
        error = ::renameat2(AT_FDCWD, source.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) == 0 ? 0 : errno;
    if (!made.part.empty()) ::unlink(made.part.c_str());  // gone already where it was renamed
    return error;
}

// Not every system lets a folder be opened or synchronised; the file itself is whole either way.
void sync_folder(const fs::path& folder) {
    const SessionHandle handle(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (handle.get() >= 0) ::fsync(handle.get());
}

}  // namespace

SessionHandle::~SessionHandle() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

SessionContents read_session(std::span<const std::byte> bytes, const std::string& name) {
    const SessionRecords records = read_session_records(bytes, name);
    const auto damaged = [&](std::string_view what) {
        throw FormatError(fmt::format("{}: a damaged session ({}); it is left as it is, begin another", name, what));
    };
    if (records.records.empty() || records.records.front().kind != RecordKind::Begin) damaged("no beginning");
    SessionContents contents;
    contents.begin = decode_session_begin(records.records.front().payload, name);
    contents.max_tokens = contents.begin.max_tokens;
    contents.valid_bytes = records.valid_bytes;
    contents.chain = records.chain;
    const SessionBegin& begin = contents.begin;
    const auto text_tokens = [&] { return std::ssize(begin.prompt) + std::ssize(contents.tokens); };
    for (const SessionRecord& record : std::span(records.records).subspan(1)) {
        if (record.kind == RecordKind::MaxTokens) {
            contents.max_tokens = static_cast<std::int64_t>(record.index);
            if (contents.max_tokens < -1) damaged("a length that cannot be");
        } else if (record.kind == RecordKind::Tokens) {
            const std::size_t n = record.payload.size() / sizeof(TokenId);
            if (record.payload.size() % sizeof(TokenId) != 0 ||
                std::ssize(record.payload) / std::int64_t{sizeof(TokenId)} > begin.context_tokens - text_tokens())
                damaged("more tokens than its context holds");
            const std::size_t before = contents.tokens.size();
            contents.tokens.resize(before + n);
            if (n > 0) std::memcpy(contents.tokens.data() + before, record.payload.data(), record.payload.size());
            for (const TokenId token : std::span(contents.tokens).subspan(before))
                if (token < 0 || token >= begin.vocab) damaged("a token outside of the vocabulary");
        } else if (record.kind == RecordKind::KvChunk) {
            const std::int64_t block = std::ssize(contents.kv_chunks);
            const std::int64_t chunk = block / begin.n_layers;
            if (record.index !=
                    (static_cast<std::uint64_t>(chunk) << 32 | static_cast<std::uint64_t>(block % begin.n_layers)) ||
                record.payload.size() != begin.kv_chunk_bytes || (chunk + 1) * kChunkTokens > text_tokens())
                damaged("KV that does not belong where it stands");
            contents.kv_chunks.push_back(record);
        } else {
            damaged("a record of no kind");
        }
    }
    return contents;
}

std::optional<SessionFile> SessionFile::open(const fs::path& path, SessionUse use) {
    SessionHandle file(::open(path.c_str(), (use == SessionUse::Read ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NONBLOCK));
    if (file.get() < 0) {
        if (errno == ENOENT && !fs::is_symlink(path)) return std::nullopt;
        refuse(path, "cannot be opened", errno);
    }
    struct stat status {};
    if (::fstat(file.get(), &status) != 0) refuse(path, "cannot be opened", errno);
    if (!S_ISREG(status.st_mode))
        throw IoError(fmt::format("{}: a session is a regular file, and this is none; name another", path.string()));
    lock_session(file.get(), path, use);
    SessionFile session(path, std::move(file));
    session.mapping_.emplace(path);
    session.contents_ = read_session(session.mapping_->bytes(), path.string());
    session.n_kv_blocks_ = std::ssize(session.contents_.kv_chunks);
    return session;
}

void SessionFile::check_place(const fs::path& path) {
    const NewFile made = make_new_file(path);
    if (!made.part.empty()) ::unlink(made.part.c_str());
}

SessionFile SessionFile::create(const fs::path& path, SessionBegin begin) {
    NewFile made = make_new_file(path);
    lock_session(made.file.get(), path, SessionUse::GoOn);
    SessionFile session(path, SessionHandle(::dup(made.file.get())));  // shares the lock
    session.cut_ = true;                                               // there is nothing to cut
    session.contents_.begin = std::move(begin);
    session.contents_.max_tokens = session.begin().max_tokens;
    session.contents_.chain = first_chain();
    try {
        session.write_at_end(session_head(), session.contents_.valid_bytes);
        session.append(RecordKind::Begin, 0, encode_session_begin(session.begin()));
        session.sync();
    } catch (...) {
        if (!made.part.empty()) ::unlink(made.part.c_str());
        throw;
    }
    if (const int error = take_name(made, path); error != 0) refuse(path, "cannot be made", error);
    sync_folder(folder_of(path));
    return session;
}

void SessionFile::read_kv_block(std::int64_t block, std::byte* out) const {
    CHECK(block >= 0 && block < std::ssize(contents_.kv_chunks), "block {} of {}", block, contents_.kv_chunks.size());
    const SessionRecord& record = contents_.kv_chunks[block];
    std::copy(record.payload.begin(), record.payload.end(), out);
    if (!is_whole(record, {out, record.payload.size()}))
        throw FormatError(fmt::format("{}: a damaged session (KV of chunk {}); it is left as it is, begin another",
                                      path_.string(), block / begin().n_layers));
}

void SessionFile::release_kv() {
    contents_.kv_chunks.clear();
    mapping_.reset();
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

void SessionFile::append_kv_block(std::span<const std::byte> block) {
    const std::int64_t chunk = n_kv_blocks_ / begin().n_layers;
    CHECK(block.size() == begin().kv_chunk_bytes && (chunk + 1) * kChunkTokens <= text_tokens(),
          "{} bytes of chunk {}, {} tokens", block.size(), chunk, text_tokens());
    append(RecordKind::KvChunk,
           static_cast<std::uint64_t>(chunk) << 32 | static_cast<std::uint64_t>(n_kv_blocks_ % begin().n_layers),
           block);
    ++n_kv_blocks_;
}

void SessionFile::append(RecordKind kind, std::uint64_t index, std::span<const std::byte> payload) {
    if (!cut_) {
        if (::ftruncate(file_.get(), static_cast<off_t>(contents_.valid_bytes)) != 0) fail(errno);
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

// Where the system refuses, what was written of the record goes again: as much as the next append would cut.
void SessionFile::write_at_end(std::span<const std::byte> bytes, std::size_t& end_bytes) const {
    while (!bytes.empty()) {
        const ssize_t n = ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(end_bytes));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            const int error = n < 0 ? errno : ENOSPC;
            static_cast<void>(::ftruncate(file_.get(), static_cast<off_t>(contents_.valid_bytes)) == 0);
            fail(error);
        }
        bytes = bytes.subspan(static_cast<std::size_t>(n));
        end_bytes += static_cast<std::size_t>(n);
    }
}

void SessionFile::sync() {
    if (::fdatasync(file_.get()) != 0) fail(errno);
    synced_ = Clock::now();
}

void SessionFile::fail(int error) const {
    throw IoError(fmt::format(
        "{}: the session cannot be written: {}; it holds {} generated tokens: make room and run the same command again",
        path_.string(), std::strerror(error), contents_.tokens.size()));
}

}  // namespace slipstream
