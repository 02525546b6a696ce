#include "runtime/text/tokenizer/indexed_vocabulary.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/text/printable.h"
#include "runtime/text/tokenizer/byte_alphabet.h"
#include "runtime/text/tokenizer/json_stream.h"

namespace slipstream {

IndexedVocabulary read_vocabulary_object(std::string_view text, std::string_view name) {
    IndexedVocabulary vocabulary;
    TokenVocabulary& tokens = *vocabulary.tokens;
    tokens.reserve(text.size() / 24, text.size());
    JsonStream json(text, name);
    json.enter_object();
    std::vector<TokenId> ids;
    while (const auto token = json.next_key()) {
        const std::string_view spelling = *token;
        const std::int64_t id = json.integer();
        if (tokens.kind(static_cast<TokenId>(std::clamp<std::int64_t>(id, 0, TokenVocabulary::kMaxTokens))) !=
            TokenKind::Unused)
            throw FormatError(
                fmt::format("{}: id {} stands for '{}' and for another token", name, id, printable(spelling)));
        tokens.set(id, spelling, TokenKind::Normal, name);
        ids.push_back(static_cast<TokenId>(id));
    }
    json.end();
    vocabulary.index = StringIndex(ids.size());
    for (const TokenId id : ids)
        if (vocabulary.index.insert(tokens.spelling(id), id, [&](TokenId other) { return tokens.spelling(other); }) >=
            0)
            throw FormatError(fmt::format("{}: token '{}' is there twice", name, printable(tokens.spelling(id))));
    return vocabulary;
}

TokenId MergeReader::find(std::string_view spelling) const {
    const TokenId id = vocabulary_.find(spelling);
    if (id < 0)
        throw FormatError(fmt::format("{}: merge {} names '{}', which is no token", name_, rank_, printable(spelling)));
    return id;
}

void MergeReader::add(std::string_view left, std::string_view right) {
    joined_.assign(left).append(right);
    table_.set(find(left), find(right), {rank_, find(joined_)});
    ++rank_;
}

void MergeReader::add(std::string_view line) {
    if (line.starts_with("#version")) return;
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos)
        throw FormatError(fmt::format("{}: merge {} is '{}' and not two tokens", name_, rank_, printable(line)));
    add(line.substr(0, space), line.substr(space + 1));
}

void set_bytes_by_alphabet(TokenVocabulary& vocabulary) {
    std::string bytes;
    for (TokenId id = 0; id < vocabulary.size(); ++id) {
        bytes.clear();
        if (append_from_alphabet(vocabulary.spelling(id), bytes)) vocabulary.set_bytes(id, bytes);
    }
}

}  // namespace slipstream
