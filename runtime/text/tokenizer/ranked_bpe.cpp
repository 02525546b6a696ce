#include "runtime/text/tokenizer/ranked_bpe.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <utility>

#include "kernels/base/error.h"
#include "runtime/text/tokenizer/byte_spellings.h"
#include "runtime/text/tokenizer/pattern_dialect.h"
#include "runtime/text/tokenizer/word_models.h"

namespace slipstream {

namespace {

/// Returns an index of the tokens by their bytes. Throws FormatError if two tokens have equal bytes.
StringIndex index_by_bytes(const TokenVocabulary& tokens, const std::string& name) {
    StringIndex by_bytes(static_cast<std::size_t>(tokens.size()));
    for (TokenId id = 0; id < tokens.size(); ++id) {
        if (tokens.kind(id) == TokenKind::Unused) continue;
        if (by_bytes.insert(tokens.bytes(id), id, [&](TokenId other) { return tokens.bytes(other); }) >= 0)
            throw FormatError(fmt::format("{}: token {} is there twice", name, id));
    }
    return by_bytes;
}

/// Returns the merges of a vocabulary: all pairs of tokens whose bytes together are a token, with the id of that token
/// as the rank. `by_bytes` must find each token of `tokens` by its bytes.
MergeTable merges_of(const TokenVocabulary& tokens, const StringIndex& by_bytes) {
    const auto find = [&](std::string_view bytes) {
        return by_bytes.find(bytes, [&](TokenId id) { return tokens.bytes(id); });
    };
    MergeTable merges(2 * static_cast<std::size_t>(tokens.size()));
    for (TokenId id = 0; id < tokens.size(); ++id) {
        const std::string_view bytes = tokens.bytes(id);
        for (std::size_t cut = 1; cut < bytes.size(); ++cut) {
            const TokenId left = find(bytes.substr(0, cut));
            const TokenId right = left < 0 ? -1 : find(bytes.substr(cut));
            if (right >= 0) merges.set(left, right, {static_cast<std::uint32_t>(id), id});
        }
    }
    return merges;
}

}  // namespace

void set_ranked_token(std::int64_t id, std::string_view bytes, TokenVocabulary& tokens, const std::string& name) {
    if (bytes.size() > kMaxRankedTokenBytes)
        throw FormatError(fmt::format("{}: token {} has {} bytes; at most {} are supported", name, id, bytes.size(),
                                      kMaxRankedTokenBytes));
    std::string spelling;
    append_in_alphabet(bytes, spelling);  // as in other byte-level vocabularies
    tokens.set(id, spelling, TokenKind::Normal, name);
    tokens.set_bytes(static_cast<TokenId>(id), bytes);
}

PipelineParts ranked_bpe_parts(const TokenVocabulary& tokens, std::string_view pattern, const std::string& name) {
    PipelineParts parts;
    parts.model = std::make_unique<ByteBpe>(tokens, merges_of(tokens, index_by_bytes(tokens, name)),
                                            ByteBpe::WholeWords::TakeFromVocabulary, std::nullopt);
    parts.pre_tokenizer.emplace_back(SplitStep{TextPattern(to_pcre2(pattern, PatternDialect::Rust, name), name)});
    return parts;
}

}  // namespace slipstream
