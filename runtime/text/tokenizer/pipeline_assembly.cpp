#include "runtime/text/tokenizer/pipeline_assembly.h"

#include <map>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/text/printable.h"

namespace slipstream {

std::vector<AddedToken> place_added_tokens(std::vector<AddedToken> tokens, IndexedVocabulary& vocabulary,
                                           const std::string& name) {
    std::map<std::string, AddedToken, std::less<>> by_content;  // of equal ones the last counts
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
    for (const AddedToken& token : parts.added_tokens)
        if (ends_text_by_name(token.content)) parts.end_tokens.push_back(token.id);
}

}  // namespace slipstream
