// SessionFile: a session on disk. It is an append-only file from which a text can be continued after the program that
// made it has ended in any way. This class owns the file: it creates and locks it, appends to it and reads it back.
// What the records mean for a KV cache is in session_kv.h.
//
// The file appears under its name complete with its first record, or not at all. From then on it only grows, record by
// record. What a killed program left half written is cut off before the next record is appended. If the system refuses
// an append (a full disk), the file is cut back, so that it stays a session. Each record is passed to the system at
// once, so it survives the end of the program. Records are forced to the disk (fdatasync) by sync(), and by the first
// append more than 30 seconds after the last time; so a power failure usually costs half a minute of text. Only one
// program can continue a session at a time (flock).
//
// Of a damaged file, the tokens before the first lost one are read, and the KV blocks that are intact
// (session_records.h). What is lost can be computed again with the same bits (E1, E2). Reading changes nothing. The
// first append to a file that is damaged before its end replaces the file by a new one with what was read. A session is
// refused only if its first record is damaged, since its text depends on that record.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
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

/// The contents of a session's records, checked against one another. The payloads of kv_chunks point into the bytes
/// that were read.
struct SessionContents {
    SessionBegin begin;
    std::vector<TokenId> tokens;   // generated tokens
    std::int64_t max_tokens = -1;  // most tokens to generate, as requested last; -1: until the context is full
    // KV blocks in the order of the file; at most one for each layer and KV chunk.
    std::vector<SessionRecord> kv_chunks;
    std::size_t valid_bytes = 0;
    std::uint64_t chain = 0;
    bool is_intact = true;  // whether records may be appended at valid_bytes; else the file must be replaced first
    std::string damage;     // what was damaged, part of a sentence; empty: nothing
};
/// Reads a session. Leaves out damaged records and all that depend on them. Throws FormatError as
/// read_session_records() and decode_session_begin() do, if the first record is damaged, and if a record with correct
/// checksums has contents that no session has. `bytes` must outlive the result.
[[nodiscard]] SessionContents read_session(std::span<const std::byte> bytes, const std::string& name);

class SessionFile {
public:
    /// Opens and locks the session at `path`; returns no value if there is no file. Does not change the file. With
    /// SessionUse::Read, nothing may be appended. Throws FormatError as read_session(), RequestError if another program
    /// has it open, IoError if the system refuses it or, with SessionUse::GoOn, if the file is write-protected (for
    /// root, too).
    [[nodiscard]] static std::optional<SessionFile> open(const std::filesystem::path& path,
                                                         SessionUse use = SessionUse::GoOn);
    /// Throws IoError if a session could not be created at `path`, to be called before long work. Leaves no file.
    static void check_place(const std::filesystem::path& path);
    /// Creates a session with its first record. Throws IoError, also if there is a file already.
    [[nodiscard]] static SessionFile create(const std::filesystem::path& path, SessionBegin begin);

    [[nodiscard]] const std::filesystem::path& path() const { return path_; }
    [[nodiscard]] const SessionBegin& begin() const { return contents_.begin; }
    /// Returns the tokens generated so far, by all programs that continued the session.
    [[nodiscard]] const std::vector<TokenId>& tokens() const { return contents_.tokens; }
    [[nodiscard]] std::int64_t max_tokens() const { return contents_.max_tokens; }
    [[nodiscard]] std::int64_t text_tokens() const {
        return std::ssize(contents_.begin.prompt) + std::ssize(contents_.tokens);
    }

    /// Returns the number of saved KV blocks; a block is a KV chunk of a layer.
    [[nodiscard]] std::int64_t n_kv_blocks() const { return std::ssize(kv_); }
    /// Returns whether a KV block is saved, or has no bytes: recurrent layers have no KV, and no records.
    [[nodiscard]] bool has_kv(std::int64_t layer, std::int64_t chunk) const {
        return begin().kv_bytes[layer] == 0 || kv_.contains(kv_record_index(layer, chunk));
    }
    /// Returns the number of KV chunks, from the first on, that are saved in all layers.
    [[nodiscard]] std::int64_t n_kv_chunks() const;
    /// Copies a KV block that the session had when it was opened to `out` [kv_bytes[layer]]. Returns false if the block
    /// is damaged. Must not be called after release_kv().
    [[nodiscard]] bool read_kv(std::int64_t layer, std::int64_t chunk, std::byte* out) const;
    /// Call if read_kv() found the KV block damaged: drops it (in version 1 also all blocks after it), and adds this to
    /// damage().
    void drop_damaged_kv(std::int64_t layer, std::int64_t chunk);
    /// Call when no more KV blocks will be read: releases the mapped file unless it must be replaced.
    void release_kv();
    /// Returns whether records can be appended to the file as it is; if not, the first append replaces it.
    [[nodiscard]] bool is_intact() const { return contents_.is_intact; }
    /// Returns what was damaged in the file, as part of a sentence; empty: nothing.
    [[nodiscard]] const std::string& damage() const { return contents_.damage; }

    // append_tokens(), append_max_tokens(), append_kv() and sync() throw IoError if the system refuses; the session is
    // then unchanged.
    void append_tokens(std::span<const TokenId> tokens);
    void append_max_tokens(std::int64_t max_tokens);
    /// Appends a KV block [kv_bytes[layer]] that is not saved yet. All 256 tokens of its KV chunk must be saved
    /// (CHECKed). In version 1, the blocks of all layers of a KV chunk must come, by layer, before those of the next
    /// one (CHECKed).
    void append_kv(std::int64_t layer, std::int64_t chunk, std::span<const std::byte> block);
    /// Returns when everything that was appended is on the disk.
    void sync();

private:
    using Clock = std::chrono::steady_clock;
    SessionFile(std::filesystem::path path, FileHandle file) : path_(std::move(path)), file_(std::move(file)) {}
    void append(RecordKind kind, std::uint64_t index, std::span<const std::byte> payload);
    void begin_file(SessionBegin begin);
    [[nodiscard]] bool has_kv_chunk(std::int64_t chunk) const;
    void replace();
    void write_replacement();
    [[nodiscard]] int cut_at(std::size_t n_bytes) const;  // returns what ftruncate(2) returns
    void write_at_end(std::span<const std::byte> bytes, std::size_t& end_bytes) const;
    [[noreturn]] void fail(int error) const;

    std::filesystem::path path_;
    FileHandle file_;                    // holds the lock
    std::optional<MappedFile> mapping_;  // the file as it was opened
    SessionContents contents_;           // contents of the file, but its KV blocks are in kv_
    // By kv_record_index(): the block in mapping_; empty if it was appended or released.
    std::map<std::uint64_t, std::optional<SessionRecord>> kv_;
    bool cut_ = false;  // true: the file has nothing after its last whole record
    Clock::time_point synced_ = Clock::now();
};

}  // namespace slipstream
