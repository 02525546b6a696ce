// A session on disk: one append-only file that a text can be gone on with from, after whatever ended the program that
// made it. Owns the file: its making, its lock, what is appended and what is read back; what the records mean for a
// KV cache stands in session_kv.h.
//
// The file appears whole, with its first record, under its name or not at all. From then on it only grows, record by
// record: what a killed program left half-written is cut off when the next record is appended, and an append that the
// system refuses (a full disk) is taken back, so that the file stays a session. Each record is handed to the system at
// once, which outlives the program; it is forced to the disk (fdatasync) when 30 seconds have passed since the last
// time and by sync(): a power failure costs half a minute of text. One program has a session at a time (flock).
//
// A damaged file is read as far as it is whole (session_records.h): tokens up to the first that are lost, and KV up to
// the first block that is. Both can be computed again, to the same bits (E1, E2). Reading changes nothing; the first
// append to a file that is damaged before its end replaces it by a whole one with what was read. Only damage to what
// the text is made of, the first record, refuses a session.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "offload/file_handle.h"
#include "offload/mapped_file.h"
#include "runtime/session/session_begin.h"
#include "runtime/session/session_lock.h"
#include "runtime/session/session_records.h"

namespace slipstream {

/// What a session's records say, checked against one another. Chunks point into the bytes that were read.
struct SessionContents {
    SessionBegin begin;
    std::vector<TokenId> tokens;           // generated
    std::int64_t max_tokens = -1;          // that were asked for last
    std::vector<SessionRecord> kv_chunks;  // chunks ascending, each of all layers; the last one may lack some
    std::size_t valid_bytes = 0;
    std::uint64_t chain = 0;
    bool is_intact = true;  // records may be appended at valid_bytes; else the file must be replaced first
    std::string damage;     // what was wrong with the file, part of a sentence; empty: nothing but perhaps its end
};
/// Leaves out damaged records and all records that depend on them. Throws FormatError as
/// read_session_records() and decode_session_begin() do, if the first record is damaged, and if a record with the right
/// checksums says what no session does.
[[nodiscard]] SessionContents read_session(std::span<const std::byte> bytes, const std::string& name);

class SessionFile {
public:
    /// Opens and locks the session at `path`; nothing where there is no file. Changes nothing in it, and nothing may be
    /// appended to one that is read. Throws FormatError as read_session(), IoError where the system refuses it or the
    /// file is write-protected (root is told so, too) and not only read, RequestError where another program has it.
    [[nodiscard]] static std::optional<SessionFile> open(const std::filesystem::path& path,
                                                         SessionUse use = SessionUse::GoOn);
    /// IoError where a session could not be made at `path`: found before the work.
    static void check_place(const std::filesystem::path& path);
    /// Makes one; no file may be there. Throws IoError.
    [[nodiscard]] static SessionFile create(const std::filesystem::path& path, SessionBegin begin);

    [[nodiscard]] const std::filesystem::path& path() const { return path_; }
    [[nodiscard]] const SessionBegin& begin() const { return contents_.begin; }
    /// Generated so far, by all programs that went on with it.
    [[nodiscard]] const std::vector<TokenId>& tokens() const { return contents_.tokens; }
    [[nodiscard]] std::int64_t max_tokens() const { return contents_.max_tokens; }
    [[nodiscard]] std::int64_t text_tokens() const {
        return std::ssize(contents_.begin.prompt) + std::ssize(contents_.tokens);
    }

    /// Blocks of KV that are saved: block i is layer i % n_layers of chunk i / n_layers.
    [[nodiscard]] std::int64_t n_kv_blocks() const { return n_kv_blocks_; }
    /// Copies a block that was there when the session was opened to `out` [kv_chunk_bytes]. False if it is damaged.
    [[nodiscard]] bool read_kv_block(std::int64_t block, std::byte* out) const;
    /// Block `damaged` was damaged: keeps the blocks before the first one that is.
    void drop_damaged_kv(std::int64_t damaged);
    /// Those blocks are not read any more.
    void release_kv();
    /// What was wrong with the file, part of a sentence; empty: nothing.
    [[nodiscard]] const std::string& damage() const { return contents_.damage; }

    // Appending; each throws IoError where the system refuses, and leaves the session as it was then.
    void append_tokens(std::span<const TokenId> tokens);
    void append_max_tokens(std::int64_t max_tokens);
    /// Of a chunk whose tokens are saved, all 256 of them (CHECKed); blocks in order.
    void append_kv_block(std::span<const std::byte> block);
    /// All that was appended is on the disk when this returns.
    void sync();

private:
    using Clock = std::chrono::steady_clock;
    SessionFile(std::filesystem::path path, FileHandle file) : path_(std::move(path)), file_(std::move(file)) {}
    void append(RecordKind kind, std::uint64_t index, std::span<const std::byte> payload);
    void begin_file(SessionBegin begin);
    void keep_whole_kv(std::int64_t n_blocks);
    void replace();
    void write_replacement();
    [[nodiscard]] int cut_at(std::size_t n_bytes) const;  // as ftruncate(2)
    void write_at_end(std::span<const std::byte> bytes, std::size_t& end_bytes) const;
    [[noreturn]] void fail(int error) const;

    std::filesystem::path path_;
    FileHandle file_;                    // carries the lock
    std::optional<MappedFile> mapping_;  // as it was opened
    SessionContents contents_;
    std::int64_t n_kv_blocks_ = 0;
    bool cut_ = false;  // what was in the file after the last whole record is gone
    Clock::time_point synced_ = Clock::now();
};

}  // namespace slipstream
