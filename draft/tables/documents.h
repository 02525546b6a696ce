// Tokenised documents, concatenated: the input of the table builders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/model/model_config.h"

namespace slipstream::draft {

class Documents {
public:
    /// Most tokens in all, including one after each document: suffixes are numbered with 32 bits.
    static constexpr std::size_t kMaxTokens = (std::size_t{1} << 32) - 2;

    /// `vocab`: size of the vocabulary, 1 to 2^31 - 2 (CHECKed).
    explicit Documents(std::int64_t vocab);

    /// Appends a document; an empty one adds nothing. Its tokens must be in [0, vocab) (CHECKed). Throws RequestError
    /// if there would be more than kMaxTokens tokens.
    void add(std::span<const TokenId> document);

    /// Returns all documents, each followed by the token `vocab`.
    [[nodiscard]] std::span<const std::int32_t> tokens() const { return tokens_; }
    [[nodiscard]] std::uint64_t n_documents() const { return n_documents_; }
    [[nodiscard]] std::int32_t vocab() const { return vocab_; }

private:
    std::int32_t vocab_;
    std::uint64_t n_documents_ = 0;
    std::vector<std::int32_t> tokens_;
};

}  // namespace slipstream::draft
