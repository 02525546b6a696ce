// Tokenised texts one behind the other, as tables are built out of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/model/model_config.h"

namespace slipstream::draft {

class Documents {
public:
    /// Most tokens in all, those between documents included: their suffixes have 32 bits.
    static constexpr std::size_t kMaxTokens = (std::size_t{1} << 32) - 2;

    /// Of a vocabulary of `vocab` tokens (1 to 2^31 - 2, CHECKed).
    explicit Documents(std::int64_t vocab);

    /// Appends a document; an empty one adds nothing. Tokens are in [0, vocab) (CHECKed). Throws RequestError where
    /// there would be more than kMaxTokens.
    void add(std::span<const TokenId> document);

    /// Each document with the token `vocab` behind it.
    [[nodiscard]] std::span<const std::int32_t> tokens() const { return tokens_; }
    [[nodiscard]] std::uint64_t n_documents() const { return n_documents_; }
    [[nodiscard]] std::int32_t vocab() const { return vocab_; }

private:
    std::int32_t vocab_;
    std::uint64_t n_documents_ = 0;
    std::vector<std::int32_t> tokens_;
};

}  // namespace slipstream::draft
