// What all tokenizers share: prompts, and ids to text (Tokenizer::decode and StreamingDetokenizer).
#include <cstddef>

#include "runtime/text/tokenizer/tokenizer.h"
#include "runtime/text/utf8.h"

namespace slipstream {

namespace {

/// The bytes of `id`, less the space that the encoder put in front of the text: it is part of the first token that
/// prints anything, unless that is a byte (the encoder never writes that space as a byte) or an unknown.
std::string_view bytes_at_start(const Tokenizer& tokenizer, TokenId id, bool& at_start) {
    std::string_view bytes = tokenizer.token_bytes(id);
    if (!at_start || bytes.empty()) return bytes;
    at_start = false;
    const TokenKind kind = tokenizer.token_kind(id);
    if (bytes.front() == ' ' && kind != TokenKind::Byte && kind != TokenKind::Unknown) bytes.remove_prefix(1);
    return bytes;
}

std::vector<TokenId> behind_bos(const Tokenizer& tokenizer, std::vector<TokenId> ids) {
    const auto bos = tokenizer.bos_id();
    const bool is_wanted = bos && (tokenizer.adds_bos() || ids.empty());
    if (is_wanted && (ids.empty() || ids.front() != *bos)) ids.insert(ids.begin(), *bos);
    return ids;
}

}  // namespace

std::vector<TokenId> Tokenizer::encode_prompt(std::string_view text, SpecialTokens special) const {
    return behind_bos(*this, encode(text, special));
}

std::vector<TokenId> Tokenizer::encode_prompt(std::string_view text, std::span<const std::size_t> literal_at) const {
    return behind_bos(*this, literal_at.empty() ? encode(text, SpecialTokens::Parse) : encode_around(text, literal_at));
}

std::vector<TokenId> Tokenizer::encode_around(std::string_view text, std::span<const std::size_t> literal_at) const {
    std::vector<TokenId> ids;
    std::size_t begin = 0;
    const auto encode_to = [&](std::size_t end, SpecialTokens special) {
        const std::vector<TokenId> part = encode(text.substr(begin, end - begin), special);
        ids.insert(ids.end(), part.begin(), part.end());
        begin = end;
    };
    for (const std::size_t at : literal_at) {
        if (at < begin || at >= text.size()) continue;  // cut there already, or nothing stands behind the mark
        encode_to(at, SpecialTokens::Parse);
        encode_to(at + next_utf8(text.substr(at)).length, SpecialTokens::AsText);
    }
    encode_to(text.size(), SpecialTokens::Parse);
    return ids;
}

std::string Tokenizer::decode(std::span<const TokenId> ids) const {
    std::string text;
    bool at_start = adds_space_prefix();
    for (const TokenId id : ids) text += bytes_at_start(*this, id, at_start);
    return text;
}

StreamingDetokenizer::StreamingDetokenizer(const Tokenizer& tokenizer, Start start)
    : tokenizer_(tokenizer), strip_space_(start == Start::OfText && tokenizer.adds_space_prefix()) {}

std::string_view StreamingDetokenizer::push(TokenId id) {
    out_.clear();
    held_ += bytes_at_start(tokenizer_, id, strip_space_);
    std::string_view rest = held_;
    while (!rest.empty()) {
        const Utf8Step step = next_utf8(rest);
        if (step.kind == Utf8Kind::Unfinished) break;
        out_ += step.kind == Utf8Kind::Complete ? rest.substr(0, step.length) : kReplacementCharacter;
        rest.remove_prefix(step.length);
    }
    held_.erase(0, held_.size() - rest.size());
    return out_;
}

std::string_view StreamingDetokenizer::finish() {
    // What is held is the beginning of one character: one maximal subpart.
    out_ = held_.empty() ? std::string_view() : kReplacementCharacter;
    held_.clear();
    return out_;
}

}  // namespace slipstream
