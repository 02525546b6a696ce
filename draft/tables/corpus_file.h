// A corpus store on disk: tokenised documents and their suffix array, read in place from a mapped file (REST, He et al.
// 2023).
//
// Section "corpus" of a table file (table_file.h): u32 version, u64 fingerprint of the tokenizer, u64 vocabulary size,
// u64 number of documents, u32s first_rank [vocab + 2], i32s tokens [n], u32s suffixes [n]. Each document is followed
// by the token `vocab`, which matches nothing. suffixes[r] is the start of the r-th suffix in ascending order.
// first_rank[t] is the first rank of the suffixes that start with token t, so a search can begin in that token's part.
//
// Opening checks the sizes and first_rank. A suffix is checked at each use: a wrong one can give wrong proposals, never
// a read outside the arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "draft/tables/documents.h"
#include "draft/tables/table_file.h"
#include "runtime/model/model_config.h"

namespace slipstream::draft {

inline constexpr std::string_view kCorpusSection = "corpus";
inline constexpr std::uint32_t kCorpusVersion = 1;

class CorpusFile {
public:
    /// Ranks [begin, end) of the suffixes that start with the tokens of a match: one rank for each place of the match
    /// in the corpus.
    struct Interval {
        std::uint32_t begin = 0;
        std::uint32_t end = 0;
        [[nodiscard]] bool empty() const { return begin >= end; }
        [[nodiscard]] std::uint32_t size() const { return end - begin; }
    };
    /// A token that follows a match, and the fraction of the examined places where it does, in (0, 1].
    struct Follower {
        TokenId token = 0;
        float share = 0.0F;
    };
    /// Most places that followers() examines, so also the most followers.
    static constexpr std::uint32_t kMaxPlaces = 64;

    /// Opens a store for a vocabulary of `vocab` tokens. Throws IoError if the file cannot be read, FormatError if it
    /// is no sound store of this version, RequestError if the store was built with another tokenizer.
    CorpusFile(const std::filesystem::path& path, std::int64_t vocab, std::uint64_t tokenizer_fingerprint);

    [[nodiscard]] std::size_t n_tokens() const { return tokens_.size(); }
    [[nodiscard]] std::uint64_t n_documents() const { return n_documents_; }
    /// Returns the size of the file in bytes.
    [[nodiscard]] std::size_t total_bytes() const { return file_.total_bytes(); }

    /// Returns the places of `token`; empty if it does not occur.
    [[nodiscard]] Interval places(TokenId token) const;
    /// Returns those places of a match of `length` tokens at which `token` follows. Takes O(log n) steps for an
    /// interval of n places.
    [[nodiscard]] Interval narrow(const Interval& interval, std::uint32_t length, TokenId token) const;
    /// Returns true if a token, and not only the end of a document, follows a match of `length` tokens somewhere.
    [[nodiscard]] bool has_follower(const Interval& interval, std::uint32_t length) const;
    /// Writes the distinct tokens that follow a match of `length` tokens to `out`, in ascending order, and returns
    /// their number. Examines at most kMaxPlaces places, spread evenly, so a token that follows fewer than one in
    /// kMaxPlaces of them may be missing.
    [[nodiscard]] std::size_t followers(const Interval& interval, std::uint32_t length,
                                        std::span<Follower, kMaxPlaces> out) const;

private:
    // Returns the token `offset` tokens after the start of the suffix of rank `rank`; vocab_ past the end.
    [[nodiscard]] TokenId token_at(std::uint32_t rank, std::uint32_t offset) const;

    TableFile file_;
    std::uint64_t n_documents_ = 0;
    std::int32_t vocab_ = 0;
    std::span<const std::uint32_t> first_rank_;  // [vocab + 2]
    std::span<const std::int32_t> tokens_;       // [n]
    std::span<const std::uint32_t> suffixes_;    // [n]
};

}  // namespace slipstream::draft
