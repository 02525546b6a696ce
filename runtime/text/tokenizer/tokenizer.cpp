#include "runtime/text/tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "kernels/base/error.h"
#include "runtime/text/printable.h"
#include "runtime/text/tokenizer/byte_level_files.h"
#include "runtime/text/tokenizer/character_bpe_files.h"
#include "runtime/text/tokenizer/sentencepiece_model.h"
#include "runtime/text/tokenizer/sentencepiece_tokenizer.h"
#include "runtime/text/tokenizer/tekken_file.h"
#include "runtime/text/tokenizer/tokenizer_json.h"
#include "runtime/text/tokenizer/tokenizer_json_parts.h"
#include "runtime/text/utf8.h"

namespace slipstream {

// Choice of the tokenizer for a model's files. Kinds that are not supported are refused with their name.

namespace {

std::string_view kind_of_gguf_model(std::string_view model) {
    if (model == "bert") return "WordPiece";
    if (model == "rwkv") return "the RWKV trie";
    return "of a kind unknown here";
}

std::unique_ptr<Tokenizer> from_gguf(const PlainVocabulary& vocabulary) {
    if (vocabulary.model == "gpt2") return byte_bpe_from_gguf(vocabulary);
    if (vocabulary.model == "gemma4") return character_bpe_from_gguf(vocabulary);
    if (vocabulary.model == "llama" || vocabulary.model == "t5")
        return std::make_unique<SentencePieceTokenizer>(sentencepiece_from_gguf(vocabulary));
    throw Unsupported(fmt::format(
        "tokenizer.ggml.model '{}': the tokenizer is {}; this version reads 'llama', 't5', 'gpt2' and 'gemma4'",
        printable(vocabulary.model), kind_of_gguf_model(vocabulary.model)));
}

std::unique_ptr<Tokenizer> from_sentencepiece(const TokenizerParts& parts, const TokenizerSettings& settings) {
    const auto& [bytes, name] = *parts.sentencepiece_model;
    SentencePieceModel model = parse_sentencepiece_model(bytes, name);
    append_added_tokens(settings.added_tokens, parts.tokenizer_config_json ? parts.tokenizer_config_json->name : "",
                        model);
    if (parts.bos_id) {
        if (*parts.bos_id < 0 || *parts.bos_id >= std::ssize(model.pieces))
            throw FormatError(fmt::format("{}: holds {} tokens and the configuration names BOS id {}", name,
                                          model.pieces.size(), *parts.bos_id));
        model.bos_id = static_cast<TokenId>(*parts.bos_id);
    }
    model.adds_bos = parts.add_bos.value_or(true) && model.bos_id.has_value();
    model.adds_eos = settings.add_eos.value_or(false) && model.eos_id.has_value();
    return std::make_unique<SentencePieceTokenizer>(std::move(model));
}

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerParts& parts) {
    if (parts.vocabulary != nullptr) return from_gguf(*parts.vocabulary);
    const TokenizerSettings settings =
        parts.tokenizer_config_json
            ? read_tokenizer_settings(parts.tokenizer_config_json->bytes, parts.tokenizer_config_json->name)
            : TokenizerSettings();
    const TextEnds ends{.bos_id = parts.bos_id, .add_bos = parts.add_bos};
    // tokenizer.json has precedence: the model was trained with its ids, and the other files are those from which it
    // was made.
    if (const auto& file = parts.tokenizer_json) return parse_tokenizer_json(file->bytes, file->name, settings, ends);
    if (const auto& file = parts.tekken_json) return parse_tekken(file->bytes, file->name, settings, ends);
    if (const auto& file = parts.sentencepiece_model) {
        if (!is_tiktoken(file->bytes)) return from_sentencepiece(parts, settings);
        const TiktokenEncoding encoding =
            published_tiktoken_encoding(count_tiktoken_ranks(file->bytes, file->name), file->name);
        return parse_tiktoken(file->bytes, file->name, encoding, settings, ends);
    }
    if (const auto& file = parts.vocab_json) {
        if (!parts.merges_txt)
            throw FormatError(
                fmt::format("{}: there is no merges.txt beside it; add it, or tokenizer.json", file->name));
        return parse_vocab_merges({.vocab_json = file->bytes,
                                   .merges_txt = parts.merges_txt->bytes,
                                   .vocab_name = file->name,
                                   .merges_name = parts.merges_txt->name},
                                  settings, ends);
    }
    throw FormatError(
        "the model has no tokenizer: none of tokenizer.json, tekken.json, tokenizer.model, vocab.json with merges.txt "
        "and a GGUF vocabulary was found; add one");
}

// Functions that all tokenizers share: prompts, and ids to text (Tokenizer::decode and StreamingDetokenizer).

namespace {

/// Returns the bytes of `id` without the space that the encoder put at the beginning of the text. That space is the
/// first byte of the first token that prints anything, unless that token is a byte token (the encoder never writes the
/// space as one) or an unknown token. `at_start` becomes false at that token.
std::string_view bytes_at_start(const Tokenizer& tokenizer, TokenId id, bool& at_start) {
    std::string_view bytes = tokenizer.token_bytes(id);
    if (!at_start || bytes.empty()) return bytes;
    at_start = false;
    const TokenKind kind = tokenizer.token_kind(id);
    if (bytes.front() == ' ' && kind != TokenKind::Byte && kind != TokenKind::Unknown) bytes.remove_prefix(1);
    return bytes;
}

/// Returns the spelling of a control token that is a mark of answers, else an empty view.
std::string_view spelt_mark(const Tokenizer& tokenizer, TokenId id) {
    if (tokenizer.token_kind(id) != TokenKind::Control) return {};
    const std::string_view spelling = tokenizer.piece(id);
    return is_answer_mark(spelling) ? spelling : std::string_view();
}

std::vector<TokenId> behind_bos(const Tokenizer& tokenizer, std::vector<TokenId> ids) {
    const auto bos = tokenizer.bos_id();
    const bool is_wanted = bos && (tokenizer.adds_bos() || ids.empty());
    if (is_wanted && (ids.empty() || ids.front() != *bos)) ids.insert(ids.begin(), *bos);
    return ids;
}

}  // namespace

void Tokenizer::check_size(std::string_view text) {
    constexpr std::size_t kMaxTextBytes = std::size_t{1} << 29;
    if (text.size() > kMaxTextBytes)
        throw RequestError(
            fmt::format("a text of {} bytes is to be tokenized at once; split it into parts of at most {} bytes",
                        text.size(), kMaxTextBytes));
}

std::vector<TokenId> Tokenizer::encode_prompt(std::string_view text, SpecialTokens special,
                                              const std::atomic<bool>* cancel) const {
    return behind_bos(*this, encode(text, special, cancel));
}

std::vector<TokenId> Tokenizer::encode_prompt(const MarkedText& prompt, const std::atomic<bool>* cancel) const {
    return behind_bos(*this, encode_marked(prompt.bytes, SaidBytes(prompt.said), cancel));
}

std::vector<bool> Tokenizer::trusted_only_ids(std::optional<TokenId> unknown) const {
    std::vector<TokenId> ends = end_tokens();
    for (const std::optional<TokenId> id : {bos_id(), eos_id()})
        if (id) ends.push_back(*id);
    const auto is_end = [&](TokenId id) { return std::ranges::find(ends, id) != ends.end(); };
    std::vector<bool> ids(vocab_size());
    for (TokenId id = 0; id < vocab_size(); ++id) {
        const TokenKind kind = token_kind(id);
        const bool is_control =
            kind == TokenKind::Control || (kind == TokenKind::UserDefined && (is_turn_mark(piece(id)) || is_end(id)));
        ids[id] = unknown == id ? is_end(id) : is_control;
    }
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
    const std::string_view bytes = bytes_at_start(tokenizer_, id, strip_space_);
    held_ += bytes.empty() ? spelt_mark(tokenizer_, id) : bytes;
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
    // The bytes held back are the beginning of one character: one maximal subpart.
    out_ = held_.empty() ? std::string_view() : kReplacementCharacter;
    held_.clear();
    return out_;
}

bool ends_text_by_name(std::string_view spelling) {
    constexpr std::array<std::string_view, 15> spellings = {"<turn|>",
                                                            "<|tool_response>",
                                                            "<|eot_id|>",
                                                            "<|eom_id|>",
                                                            "<|im_end|>",
                                                            "<|end|>",
                                                            "<|endoftext|>",
                                                            "<|end_of_text|>",
                                                            "<end_of_turn>",
                                                            "<|eot|>",
                                                            "<|return|>",
                                                            "<|call|>",
                                                            "<end_of_utterance>",
                                                            "<|END_OF_TURN_TOKEN|>",
                                                            "<｜end▁of▁sentence｜>"};
    return std::ranges::find(spellings, spelling) != spellings.end();
}

bool ends_message_alone(std::string_view spelling, const std::function<bool(std::string_view)>& has_token) {
    return (spelling == "<|end|>" && has_token("<|return|>") && has_token("<|call|>")) ||
           (spelling == "<|eom|>" && has_token("<|start|>") && has_token("<|message|>"));
}

bool is_answer_mark(std::string_view spelling) {
    constexpr std::array<std::string_view, 22> spellings = {
        "<|start|>",    "<|channel|>",    "<|message|>",    "<|constrain|>", "<|channel>",    "<channel|>",
        "<|tool_call>", "<tool_call|>",   "<|\"|>",         "<think>",       "</think>",      "[THINK]",
        "[/THINK]",     "<tool_call>",    "</tool_call>",   "[TOOL_CALLS]",  "<|tool_call|>", "[ARGS]",
        "[CALL_ID]",    "<|python_tag|>", "<|/tool_call|>", "<|eom|>"};
    return std::ranges::find(spellings, spelling) != spellings.end();
}

bool is_turn_mark(std::string_view spelling) {
    constexpr std::array<std::string_view, 7> spellings = {"<start_of_turn>",  "[INST]", "[/INST]", "[SYSTEM_PROMPT]",
                                                           "[/SYSTEM_PROMPT]", "<s>",    "</s>"};
    const auto is_between = [&](std::string_view front, std::string_view back) {
        return spelling.size() > front.size() + back.size() && spelling.starts_with(front) && spelling.ends_with(back);
    };
    // Gemma 4 writes "<|turn>" before a turn and "<turn|>" after it.
    return is_between("<|", ">") || is_between("<", "|>") || is_between("<｜", "｜>") || ends_text_by_name(spelling) ||
           std::ranges::find(spellings, spelling) != spellings.end();
}

}  // namespace slipstream
