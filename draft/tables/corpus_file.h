// A corpus store on disk: tokenised documents and their suffix array, used where they are mapped (REST, He et al.
// 2023).
//
// One section "corpus" of a table file (table_file.h): u32 version, u64 fingerprint of the tokenizer, u64 vocabulary
// size, u64 number of documents, u32s first_rank [vocab + 2], i32s tokens [n], u32s suffixes [n]. Each document is
// followed by the token `vocab`, which matches nothing. suffixes[r] is where the r-th suffix in ascending order starts;
// first_rank[t] is the first rank of those that start with token t, so that a search begins in one token's part.
//
// Sizes and first_rank are checked at opening. A suffix is checked wherever it is used: a file that lies about them
// gives wrong guesses, never a read outside the arrays.
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
    /// Ranks [begin, end) of the suffixes that start with some tokens: where these stand in the corpus.
    struct Interval {
        std::uint32_t begin = 0;
        std::uint32_t end = 0;
        [[nodiscard]] bool empty() const { return begin >= end; }
        [[nodiscard]] std::uint32_t size() const { return end - begin; }
    };
    /// A token that stands behind a match, and the share of the match's places where it does, in (0, 1].
    struct Follower {
        TokenId token = 0;
        float share = 0.0F;
    };
    /// Most places that followers() looks at, so most followers too.
    static constexpr std::uint32_t kMaxPlaces = 64;

    /// Opens a store for a vocabulary of `vocab` tokens. IoError where it cannot be read, FormatError where it is not a
    /// store, RequestError where it was built with another tokenizer.
    CorpusFile(const std::filesystem::path& path, std::int64_t vocab, std::uint64_t tokenizer_fingerprint);

    [[nodiscard]] std::size_t n_tokens() const { return tokens_.size(); }
    [[nodiscard]] std::uint64_t n_documents() const { return n_documents_; }
    [[nodiscard]] std::size_t total_bytes() const { return file_.total_bytes(); }

    /// Where `token` stands; empty where it never does.
    [[nodiscard]] Interval places(TokenId token) const;
    /// Of the places of a match of `length` tokens those that `token` follows. Two binary searches in the interval.
    [[nodiscard]] Interval narrow(const Interval& interval, std::uint32_t length, TokenId token) const;
    /// Whether anything but a document's end follows a match of `length` tokens.
    [[nodiscard]] bool has_follower(const Interval& interval, std::uint32_t length) const;
    /// What follows a match, in ascending order of tokens, all different. All of at most kMaxPlaces places; of more,
    /// that many spread evenly, so that what follows less than one place in kMaxPlaces may be missing.
    [[nodiscard]] std::size_t followers(const Interval& interval, std::uint32_t length,
                                        std::span<Follower, kMaxPlaces> out) const;

private:
    [[nodiscard]] TokenId token_at(std::uint32_t rank, std::uint32_t offset) const;

    TableFile file_;
    std::uint64_t n_documents_ = 0;
    std::int32_t vocab_ = 0;
    std::span<const std::uint32_t> first_rank_;  // [vocab + 2]
    std::span<const std::int32_t> tokens_;       // [n]
    std::span<const std::uint32_t> suffixes_;    // [n]
};

}  // namespace slipstream::draft
