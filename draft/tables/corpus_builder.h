// Builds a corpus store (corpus_file.h) out of tokenised documents, in memory: 8 bytes a token for the documents and
// their index, twice that while sorting and while writing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "draft/tables/suffix_sort.h"
#include "runtime/model/model_config.h"

namespace slipstream::draft {

class CorpusBuilder {
public:
    /// For a vocabulary of `vocab` tokens (1 to 2^31 - 2, CHECKed), `tokenizer_fingerprint` of the caller's choice.
    CorpusBuilder(std::int64_t vocab, std::uint64_t tokenizer_fingerprint);

    /// Appends a document; an empty one adds nothing. Tokens are in [0, vocab) (CHECKed). Throws RequestError where the
    /// store would hold more than it can.
    void add_document(std::span<const TokenId> tokens);
    [[nodiscard]] std::size_t n_tokens() const { return tokens_.size(); }
    [[nodiscard]] std::uint64_t n_documents() const { return n_documents_; }

    /// Sorts and writes the store; the builder can go on afterwards. Throws RequestError where there are no documents,
    /// IoError, and whatever `progress` throws (no file is written then).
    void write(const std::filesystem::path& path, const SortProgress& progress) const;

private:
    std::int32_t vocab_;
    std::uint64_t tokenizer_fingerprint_;
    std::uint64_t n_documents_ = 0;
    std::vector<std::int32_t> tokens_;  // documents, each with `vocab_` behind it
};

}  // namespace slipstream::draft
