// A SentencePiece vocabulary, whichever file it came from: a tokenizer.model (protobuf, sentencepiece_model.proto of
// google/sentencepiece) or the tokenizer.ggml.* arrays of a GGUF file. Checked here, once, so that the tokenizer may
// rely on it.
//
// What is refused by name: the algorithms word and char, denormalisers with rules, whitespace as a suffix.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/indexed.h"
#include "runtime/text/tokenizer/text_normalizer.h"
#include "runtime/text/tokenizer/token_matchers.h"
#include "runtime/text/tokenizer/tokenizer.h"

namespace slipstream {

inline constexpr std::string_view kSpaceMark = "\xe2\x96\x81";  // "▁"

struct SentencePiece {
    std::string text;  // as it is looked for in normalised text
    float score = 0;   // higher merges first
    TokenKind kind = TokenKind::Normal;
};

struct SentencePieceModel {
    enum class Algorithm : std::uint8_t { Bpe, Unigram };
    Algorithm algorithm = Algorithm::Bpe;
    Indexed<SentencePiece> pieces;  // by id
    std::optional<TokenId> unk_id, bos_id, eos_id;
    bool adds_bos = true, adds_eos = false;
    std::vector<TokenId> end_tokens;             // ascending
    bool add_dummy_prefix = true;                // a space in front of every text
    bool remove_extra_whitespaces = false;       // runs of spaces become one, none at either end
    bool escape_whitespaces = true;              // spaces are "▁" inside of pieces
    PrecompiledCharsmap rules;                   // applied to the text first; usually none
    std::string unk_surface = " \xe2\x81\x87 ";  // what an unknown token prints: " ⁇ "
};

/// Parses the bytes of a tokenizer.model. `name` is the file's, for messages. Throws FormatError; Unsupported for what
/// the head of this file lists.
[[nodiscard]] SentencePieceModel parse_sentencepiece_model(std::string_view bytes, std::string_view name);

/// The vocabulary of a GGUF file whose tokenizer.ggml.model is "llama" (BPE) or "t5" (unigram). Throws FormatError.
[[nodiscard]] SentencePieceModel sentencepiece_from_gguf(const PlainVocabulary& vocabulary);

/// What every model must satisfy, for both sources and for pieces added later: ids in range, no empty piece, no NaN
/// score, byte pieces spelt "<0x00>" ... "<0xFF>", a way to encode any byte. Throws FormatError.
void validate(const SentencePieceModel& model, std::string_view name);

/// Appends `text` to `out`, and replaces every `from` by `to`.
void append_replaced(std::string_view text, std::string_view from, std::string_view to, std::string& out);
[[nodiscard]] std::string replaced(std::string_view text, std::string_view from, std::string_view to);

/// The kind that a file numbers so, in sentencepiece_model.proto and in tokenizer.ggml.token_type alike. Throws
/// FormatError where it is none of them; `id` and `name` are for the message.
[[nodiscard]] TokenKind kind_of_type(std::int64_t type, std::size_t id, std::string_view name);

/// The byte that a Byte piece stands for ("<0x0A>" -> 10), or nothing where it is spelt otherwise.
[[nodiscard]] std::optional<unsigned char> byte_of_piece(std::string_view piece);

// Tokens that a Hugging Face directory adds behind its tokenizer.model: "added_tokens_decoder" of
// tokenizer_config.json, the only place that names, for instance, Phi-3's <|end|>.

/// Appends to `model` the added tokens, ascending, whose ids lie behind its pieces: special ones as Control, others as
/// UserDefined; ids between that nobody names become Unused. Ids inside the model are left as the model has them. End
/// tokens among the new ones are added to end_tokens. Throws FormatError naming the file, `name`.
void append_added_tokens(const std::vector<AddedToken>& tokens, std::string_view name, SentencePieceModel& model);

}  // namespace slipstream
