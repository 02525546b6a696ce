// A SentencePiece vocabulary, read from a tokenizer.model (protobuf, sentencepiece_model.proto of google/sentencepiece)
// or from the tokenizer.ggml.* arrays of a GGUF file. It is checked once, here, so that the tokenizer can rely on it.
//
// Refused, with their names in the message: the algorithms word and char, denormaliser rules, whitespace as a suffix.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/tokenizer/text_normalizer.h"
#include "runtime/text/tokenizer/token_matchers.h"
#include "runtime/text/tokenizer/tokenizer.h"

namespace slipstream {

inline constexpr std::string_view kSpaceMark = "\xe2\x96\x81";  // "▁": stands for a space in pieces

struct SentencePiece {
    std::string text;  // text of the piece, as it appears in normalised text
    float score = 0;   // pieces with higher scores merge first (BPE); log probability (unigram)
    TokenKind kind = TokenKind::Normal;
};

struct SentencePieceModel {
    enum class Algorithm : std::uint8_t { Bpe, Unigram };
    Algorithm algorithm = Algorithm::Bpe;
    std::vector<SentencePiece> pieces;  // [id]
    std::optional<TokenId> unk_id, bos_id, eos_id;
    bool adds_bos = true, adds_eos = false;
    std::vector<TokenId> end_tokens;             // ascending, each once
    bool add_dummy_prefix = true;                // put a space at the beginning of every text
    bool remove_extra_whitespaces = false;       // replace runs of spaces by one space, remove those at both ends
    bool escape_whitespaces = true;              // spaces are "▁" in pieces
    PrecompiledCharsmap rules;                   // applied to the text first; most models have none
    std::string unk_surface = " \xe2\x81\x87 ";  // text that an unknown token prints: " ⁇ "
};

/// Returns the vocabulary in `bytes`, the contents of a tokenizer.model. `name` is the name of the file, for messages.
/// Throws FormatError if the file is broken, and Unsupported for the algorithms word and char, denormaliser rules, and
/// whitespace as a suffix.
[[nodiscard]] SentencePieceModel parse_sentencepiece_model(std::string_view bytes, std::string_view name);

/// Returns the vocabulary of a GGUF file whose tokenizer.ggml.model is "llama" (BPE) or "t5" (unigram). Throws
/// FormatError if the arrays contradict each other or the result does not pass validate().
[[nodiscard]] SentencePieceModel sentencepiece_from_gguf(const PlainVocabulary& vocabulary);

/// Checks what the tokenizer relies on, for models of both sources and after pieces were added: at least one and at
/// most 2^26 pieces, none of them empty, no score that is NaN, byte pieces spelt "<0x00>" to "<0xFF>", and a way to
/// encode every byte (its byte piece, or an unknown token). Throws FormatError otherwise; `name` is the name of the
/// file, for the message.
void validate(const SentencePieceModel& model, std::string_view name);

/// Appends `text` to `out`, with each `from`, which must not be empty, replaced by `to`.
void append_replaced(std::string_view text, std::string_view from, std::string_view to, std::string& out);
[[nodiscard]] std::string replaced(std::string_view text, std::string_view from, std::string_view to);

/// Returns the token kind for a type number of sentencepiece_model.proto; tokenizer.ggml.token_type uses the same
/// numbers. Throws FormatError unless `type` is in [1, 6]; `id` (of the token) and `name` (of the file) are for the
/// message.
[[nodiscard]] TokenKind kind_of_type(std::int64_t type, std::size_t id, std::string_view name);

/// Returns the byte that the piece of kind Byte stands for ("<0x0A>" -> 10), or nullopt if its spelling is not of this
/// form.
[[nodiscard]] std::optional<unsigned char> byte_of_piece(std::string_view piece);

// Tokens that a Hugging Face directory adds after the pieces of its tokenizer.model: "added_tokens_decoder" of
// tokenizer_config.json, which is the only file that names Phi-3's <|end|>, for example.

/// Appends the added tokens whose ids are past the pieces of `model` to it: special ones as Control, others as
/// UserDefined. `tokens` must be in ascending order of ids. Ids between them that no token has become Unused pieces; a
/// token whose id is inside the model is ignored. End tokens among the new ones are appended to end_tokens. Throws
/// FormatError, which names the file `name`, if a token is too long, an id is too far from the others, or the result
/// does not pass validate().
void append_added_tokens(const std::vector<AddedToken>& tokens, std::string_view name, SentencePieceModel& model);

}  // namespace slipstream
