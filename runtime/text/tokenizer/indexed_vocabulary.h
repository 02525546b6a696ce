// A vocabulary that is being read: tokens with what finds their spellings, and merges that name tokens by spelling.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/text/tokenizer/merge_table.h"
#include "runtime/text/tokenizer/string_index.h"
#include "runtime/text/tokenizer/token_vocabulary.h"

namespace slipstream {

/// A vocabulary with what finds its spellings.
struct IndexedVocabulary {
    std::unique_ptr<TokenVocabulary> tokens = std::make_unique<TokenVocabulary>();
    StringIndex index;

    [[nodiscard]] TokenId find(std::string_view spelling) const {
        return index.find(spelling, [this](TokenId id) { return tokens->spelling(id); });
    }
};

/// {"token": id, ...}, of a model or of a vocab.json. Throws FormatError; `name` is the file's.
[[nodiscard]] IndexedVocabulary read_vocabulary_object(std::string_view json, std::string_view name);

/// Merges by ascending rank: both halves and what they make are looked up in the vocabulary.
class MergeReader {
public:
    MergeReader(const IndexedVocabulary& vocabulary, std::size_t n_merges, std::string_view name)
        : vocabulary_(vocabulary), name_(name), table_(n_merges) {}
    /// Throws FormatError where one of the three is no token.
    void add(std::string_view left, std::string_view right);
    /// "left right"
    void add(std::string_view line);
    [[nodiscard]] MergeTable take() { return std::move(table_); }

private:
    [[nodiscard]] TokenId find(std::string_view spelling) const;

    const IndexedVocabulary& vocabulary_;
    std::string name_;
    MergeTable table_;
    std::uint32_t rank_ = 0;
    std::string joined_;
};

/// Sets the bytes of all tokens: those that their spellings stand for in the byte alphabet (of a token outside of it,
/// the spelling itself).
void set_bytes_by_alphabet(TokenVocabulary& vocabulary);

}  // namespace slipstream
