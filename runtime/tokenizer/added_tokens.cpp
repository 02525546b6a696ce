#include "runtime/tokenizer/added_tokens.h"

#include <charconv>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "offload/mapped_file.h"
#include "runtime/formats/json_bounded.h"

namespace slipstream {

namespace {

constexpr std::int64_t kMaxAddedTokens = 1 << 20;

std::int64_t parse_id(const std::string& text, std::int64_t n_pieces, const std::string& name) {
    std::int64_t id = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
    if (error != std::errc() || end != text.data() + text.size() || id < 0 || id >= n_pieces + kMaxAddedTokens)
        throw FormatError(
            fmt::format("{}: added token id '{}' is no id near the {} of the vocabulary", name, text, n_pieces));
    return id;
}

SentencePiece parse_token(const nlohmann::json& token, std::int64_t id, const std::string& name) {
    if (!token.is_object() || !token.contains("content") || !token["content"].is_string())
        throw FormatError(fmt::format("{}: added token {} has no content", name, id));
    const auto special = token.find("special");
    const bool is_special = special != token.end() && special->is_boolean() && special->get<bool>();
    return {token["content"].get<std::string>(), 0.0F, is_special ? TokenKind::Control : TokenKind::UserDefined};
}

}  // namespace

void append_added_tokens(const std::filesystem::path& tokenizer_config_json, SentencePieceModel& model) {
    const MappedFile file(tokenizer_config_json);
    const std::string name = tokenizer_config_json.string();
    const auto bytes = file.bytes();
    const nlohmann::json json = parse_json_object({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, name);
    const auto decoder = json.find("added_tokens_decoder");
    if (decoder == json.end()) return;
    if (!decoder->is_object()) throw FormatError(fmt::format("{}: added_tokens_decoder is not an object", name));
    const std::int64_t n_pieces = std::ssize(model.pieces);
    std::map<std::int64_t, SentencePiece> added;
    for (const auto& [key, token] : decoder->items()) {
        const std::int64_t id = parse_id(key, n_pieces, name);
        if (id >= n_pieces) added.emplace(id, parse_token(token, id, name));
    }
    for (auto& [id, piece] : added) {
        while (std::ssize(model.pieces) < id)
            model.pieces.push_back({fmt::format("<unnamed {}>", model.pieces.size()), 0.0F, TokenKind::Unused});
        if (ends_text_by_name(piece)) model.end_tokens.push_back(static_cast<TokenId>(id));
        model.pieces.push_back(std::move(piece));
    }
    validate(model, name);
}

}  // namespace slipstream
