#include "runtime/text/tokenizer/added_tokens.h"

#include <cstdint>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/text/tokenizer/tokenizer_settings.h"

namespace slipstream {

namespace {

constexpr std::int64_t kMaxAddedTokens = 1 << 20;

}  // namespace

void append_added_tokens(const std::vector<AddedToken>& tokens, std::string_view name, SentencePieceModel& model) {
    const std::int64_t n_pieces = std::ssize(model.pieces);
    for (const AddedToken& token : tokens) {
        check_added_token(token, name);
        if (token.id < std::ssize(model.pieces)) continue;
        if (token.id >= n_pieces + kMaxAddedTokens)
            throw FormatError(fmt::format("{}: added token id '{}' is no id near the {} of the vocabulary", name,
                                          token.id, n_pieces));
        while (std::ssize(model.pieces) < token.id)
            model.pieces.push_back({fmt::format("<unnamed {}>", model.pieces.size()), 0.0F, TokenKind::Unused});
        if (ends_text_by_name(token.content)) model.end_tokens.push_back(token.id);
        model.pieces.push_back({token.content, 0.0F, token.special ? TokenKind::Control : TokenKind::UserDefined});
    }
    validate(model, name);
}

}  // namespace slipstream
