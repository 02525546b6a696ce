#include "runtime/text/tokenizer/pipeline_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "kernels/base/error.h"
#include "kernels/base/interrupted.h"
#include "runtime/text/printable.h"
#include "runtime/text/tokenizer/vocabulary.h"
#include "runtime/text/utf8.h"

namespace slipstream {

namespace {

// Limits one word, in bytes: word models take less than 2^31 bytes.
constexpr std::size_t kMaxWordBytes = std::size_t{1} << 31;

std::vector<AddedToken> tokens_that_are(const std::vector<AddedToken>& tokens, bool normalized) {
    std::vector<AddedToken> result;
    std::ranges::copy_if(tokens, std::back_inserter(result),
                         [&](const AddedToken& token) { return token.normalized == normalized; });
    return result;
}

/// Returns `tokens` with their contents normalised, as they appear in normalised text.
std::vector<AddedToken> normalised(std::vector<AddedToken> tokens, const TextNormalizer& normalizer) {
    for (AddedToken& token : tokens)
        token.content = normalizer.normalise(token.content, SaidBytes(), PieceStart::OfText).bytes;
    return tokens;
}

}  // namespace

/// The state of one call of encode().
class PipelineTokenizer::Encoding final : public WordSink {
public:
    Encoding(const PipelineTokenizer& tokenizer, const std::atomic<bool>* cancel)
        : tokenizer_(tokenizer), cancel_(cancel), words_(tokenizer.pre_tokenizer_) {
        scratch_.merger.cancel = scratch_.segmenter.cancel = cancel;
    }

    std::vector<TokenId> run(std::string_view text, SpecialTokens special, SaidBytes said) {
        special_ = special;
        PieceStart start = PieceStart::OfText;
        for (std::size_t at = 0; at < text.size();) {
            const std::size_t valid = valid_utf8_prefix(text.substr(at));
            stretch(text.substr(at, valid), said.from(at), start);
            at += valid;
            if (at == text.size()) break;
            is_said_ = said.any_in({at, at + 1});
            const std::size_t first = ids_.size();
            tokenizer_.model_->encode_byte(static_cast<unsigned char>(text[at++]), ids_);
            if (ids_.size() > first && is_refused(ids_.back())) ids_.pop_back();
            start = PieceStart::Inside;
        }
        return std::move(ids_);
    }

    void on_word(std::string_view word) override {
        throw_if_cancelled(cancel_);
        if (word.size() >= kMaxWordBytes)
            throw RequestError(
                fmt::format("a word of {} bytes is to be tokenized; split the text into smaller parts", word.size()));
        encode_refusing(
            word, [this](std::string_view piece) { encode_piece(piece); },
            [this](unsigned char byte) { tokenizer_.model_->encode_byte(byte, ids_); },
            [this](TokenId id) { return is_refused(id); }, ids_);
    }

private:
    /// Encodes `text`, which must be valid UTF-8.
    void stretch(std::string_view text, SaidBytes said, PieceStart start) {
        tokenizer_.in_text_.split(text, special_, said, [&](const AddedTokenMatcher::Part& part) {
            const auto at = static_cast<std::size_t>(part.text.data() - text.data());
            if (part.id)
                ids_.push_back(*part.id);
            else
                between_tokens(part.text, said.from(at), at == 0 ? start : PieceStart::OfPart);
        });
    }

    void between_tokens(std::string_view text, SaidBytes said, PieceStart start) {
        const MarkedText normalised = tokenizer_.normalizer_.normalise(text, said, start, cancel_);
        text = normalised.bytes;
        said = SaidBytes(normalised.said);
        tokenizer_.in_normalised_.split(text, special_, said, [&](const AddedTokenMatcher::Part& part) {
            const auto at = static_cast<std::size_t>(part.text.data() - text.data());
            if (part.id) {
                ids_.push_back(*part.id);
                return;
            }
            is_said_ = said.any_in({at, at + part.text.size()});
            words_.words(part.text, at == 0 ? start : PieceStart::OfPart, *this);
        });
    }

    void encode_piece(std::string_view word) {
        if (const auto known = cache_.find(word)) {
            ids_.insert(ids_.end(), known->begin(), known->end());
            return;
        }
        const std::size_t first = ids_.size();
        tokenizer_.model_->encode(word, scratch_, ids_);
        cache_.remember(word, std::span(ids_).subspan(first));
    }
    [[nodiscard]] bool is_refused(TokenId id) const { return is_said_ && tokenizer_.trusted_only_[id]; }

    const PipelineTokenizer& tokenizer_;
    const std::atomic<bool>* cancel_;
    SpecialTokens special_ = SpecialTokens::Parse;
    // True if a byte of the current part was said: then no word of the part may become a token that is trusted_only_.
    bool is_said_ = false;
    PreTokenizer::Run words_;
    WordCache cache_;
    WordScratch scratch_;
    std::vector<TokenId> ids_;
};

PipelineTokenizer::PipelineTokenizer(PipelineParts parts)
    : vocabulary_(std::move(parts.vocabulary)),
      model_(std::move(parts.model)),
      normalizer_(std::move(parts.normalizer)),
      pre_tokenizer_(std::move(parts.pre_tokenizer)),
      bos_id_(parts.bos_id),
      eos_id_(parts.eos_id),
      adds_bos_(parts.adds_bos && parts.bos_id),
      adds_eos_(parts.adds_eos && parts.eos_id),
      adds_space_prefix_(parts.adds_space_prefix),
      end_tokens_(std::move(parts.end_tokens)) {
    std::ranges::sort(end_tokens_);
    end_tokens_.erase(std::unique(end_tokens_.begin(), end_tokens_.end()), end_tokens_.end());
    trusted_only_ = trusted_only_ids(model_->unknown());
    for (AddedToken& token : parts.added_tokens) token.trusted_only = token.special || trusted_only_[token.id];
    in_text_ = AddedTokenMatcher(tokens_that_are(parts.added_tokens, false));
    in_normalised_ = AddedTokenMatcher(normalised(tokens_that_are(parts.added_tokens, true), normalizer_));
}

std::vector<TokenId> PipelineTokenizer::encode(std::string_view text, SpecialTokens special,
                                               const std::atomic<bool>* cancel) const {
    return encode_all(text, special, SaidBytes(), cancel);
}

std::vector<TokenId> PipelineTokenizer::encode_marked(std::string_view text, SaidBytes said,
                                                      const std::atomic<bool>* cancel) const {
    return encode_all(text, SpecialTokens::Parse, said, cancel);
}

std::vector<TokenId> PipelineTokenizer::encode_all(std::string_view text, SpecialTokens special, SaidBytes said,
                                                   const std::atomic<bool>* cancel) const {
    check_size(text);
    return Encoding(*this, cancel).run(text, special, said);
}

std::vector<AddedToken> place_added_tokens(std::vector<AddedToken> tokens, IndexedVocabulary& vocabulary,
                                           const std::string& name) {
    std::map<std::string, AddedToken, std::less<>> by_content;  // of equal contents the last counts
    for (AddedToken& token : tokens) {
        check_added_token(token, name);
        if (const TokenId known = vocabulary.find(token.content); known >= 0) token.id = known;
        const std::string_view other = vocabulary.tokens->spelling(token.id);
        if (!other.empty() && other != token.content)
            throw FormatError(fmt::format("{}: added token '{}' has the id of '{}', {}", name, printable(token.content),
                                          printable(other), token.id));
        if (other.empty()) vocabulary.tokens->set(token.id, token.content, TokenKind::UserDefined, name);
        vocabulary.tokens->set_kind(token.id, token.special ? TokenKind::Control : TokenKind::UserDefined);
        vocabulary.tokens->set_bytes(token.id, token.special ? std::string_view() : token.content);
        std::string content = token.content;
        by_content.insert_or_assign(std::move(content), std::move(token));
    }
    std::vector<AddedToken> placed;
    for (auto& [content, token] : by_content) placed.push_back(std::move(token));
    return placed;
}

void set_text_ends(const TokenizerSettings& settings, const TextTemplate& around, const TextEnds& ends,
                   PipelineParts& parts, const std::string& name) {
    const auto id_of = [&](const std::optional<std::string>& spelling) -> std::optional<TokenId> {
        if (!spelling) return std::nullopt;
        for (const AddedToken& token : parts.added_tokens)
            if (token.content == *spelling) return token.id;
        return std::nullopt;
    };
    const auto check = [&](std::int64_t id) {
        if (id < 0 || id >= parts.vocabulary->size())
            throw FormatError(fmt::format("{}: id {} begins or ends a text, where there are {} tokens", name, id,
                                          parts.vocabulary->size()));
        return static_cast<TokenId>(id);
    };
    parts.bos_id = around.before ? around.before : id_of(settings.bos_token);
    if (!parts.bos_id && ends.bos_id) parts.bos_id = check(*ends.bos_id);
    if (parts.bos_id) check(*parts.bos_id);
    parts.adds_bos = ends.add_bos.value_or(settings.add_bos.value_or(around.before.has_value()));
    parts.eos_id = around.after ? around.after : id_of(settings.eos_token);
    if (parts.eos_id) check(*parts.eos_id);
    parts.adds_eos = settings.add_eos.value_or(around.after.has_value());
    if (parts.eos_id) parts.end_tokens.push_back(*parts.eos_id);
    const auto has_token = [&](std::string_view spelling) {
        return std::ranges::find(parts.added_tokens, spelling, &AddedToken::content) != parts.added_tokens.end();
    };
    for (const AddedToken& token : parts.added_tokens)
        if (ends_text_by_name(token.content)) parts.end_tokens.push_back(token.id);
    for (const AddedToken& token : parts.added_tokens)
        if (parts.eos_id != token.id && ends_message_alone(token.content, has_token))
            std::erase(parts.end_tokens, token.id);
}

}  // namespace slipstream
