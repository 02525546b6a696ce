// Text to ids and ids to text. Each kind of vocabulary has its tokenizer class; make_tokenizer() chooses by the files
// of the model.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/marked_text.h"
#include "runtime/text/token_id.h"

namespace slipstream {

// A vocabulary as arrays, indexed by id, from any kind of file. An optional field without a value means that the file
// does not say.
struct PlainVocabulary {
    std::string model;          // tokenizer.ggml.model: "llama", "gpt2", ...
    std::string pre_tokenizer;  // tokenizer.ggml.pre: "default", "qwen2", ...; or empty
    std::vector<std::string> tokens;
    std::vector<float> scores;  // [tokens.size()] or empty
    // [tokens.size()] or empty. 1 is normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
    std::vector<std::int32_t> types;
    std::vector<std::string> merges;
    std::optional<std::int64_t> bos_id, eos_id, eot_id, unk_id, pad_id;
    std::optional<bool> add_bos, add_eos, add_space_prefix, remove_extra_whitespaces;
    std::string precompiled_charsmap;  // bytes of the normalisation rules; or empty
};

enum class SpecialTokens : std::uint8_t {
    AsText,  // "</s>" in the text is five characters
    Parse,   // "</s>" in the text is the end token
};

enum class TokenKind : std::uint8_t { Normal, Unknown, Control, UserDefined, Unused, Byte };

class Tokenizer {
public:
    virtual ~Tokenizer() = default;

    /// Returns the name of the kind, for inspect and messages: "SentencePiece BPE", for example.
    [[nodiscard]] virtual std::string_view kind() const = 0;
    [[nodiscard]] virtual std::int64_t vocab_size() const = 0;
    [[nodiscard]] virtual std::optional<TokenId> bos_id() const = 0;
    /// Returns whether the model expects BOS at the beginning of every text.
    [[nodiscard]] virtual bool adds_bos() const = 0;
    /// Returns the token that ends a text, or nullopt if the vocabulary has none.
    [[nodiscard]] virtual std::optional<TokenId> eos_id() const { return std::nullopt; }
    /// Returns whether the model's own tokenizer puts EOS at the end of every text. Few do, and it must never be put at
    /// the end of a prompt that is to be continued.
    [[nodiscard]] virtual bool adds_eos() const { return false; }
    [[nodiscard]] virtual TokenKind token_kind(TokenId id) const = 0;
    /// Returns the end tokens that the vocabulary itself names (</s>, <|eot_id|>, ...).
    [[nodiscard]] virtual std::vector<TokenId> end_tokens() const = 0;

    /// Returns the ids of `text`, without BOS. `text` may be any bytes; bytes that are not valid UTF-8 are encoded as
    /// bytes. Throws Interrupted soon after *cancel turned true, and RequestError if the text is larger than 512 MiB.
    [[nodiscard]] virtual std::vector<TokenId> encode(std::string_view text, SpecialTokens special,
                                                      const std::atomic<bool>* cancel = nullptr) const = 0;
    /// Returns the ids of a prompt: encode(), with BOS at the beginning if adds_bos() is true, unless the text itself
    /// begins with BOS, as the text of a chat template does. The ids of an empty text are BOS alone. Throws as encode()
    /// does.
    [[nodiscard]] std::vector<TokenId> encode_prompt(std::string_view text, SpecialTokens special,
                                                     const std::atomic<bool>* cancel = nullptr) const;
    /// Returns the ids of a prompt with marks, encoded with SpecialTokens::Parse: no id of trusted_only_ids() is made
    /// of a byte that was said (came from a message). If no such id could be, the ids are those of the text without
    /// marks. Throws as encode() does.
    [[nodiscard]] std::vector<TokenId> encode_prompt(const MarkedText& prompt,
                                                     const std::atomic<bool>* cancel = nullptr) const;
    /// Returns the token as the vocabulary spells it, for example "▁the" or "<0x0A>" (used by `tokenize`). Returns an
    /// empty view if `id` is not in the vocabulary.
    [[nodiscard]] virtual std::string_view piece(TokenId id) const = 0;
    /// Returns the bytes that the token stands for in running text: "▁the" -> " the", "<0x0A>" -> "\n", a control token
    /// -> "". Concatenated over the ids of a text, they are decode() except for the one leading space that the encoder
    /// added.
    [[nodiscard]] virtual std::string_view token_bytes(TokenId id) const = 0;
    /// Returns whether the encoder puts a space at the beginning of a text, which decode() removes.
    [[nodiscard]] virtual bool adds_space_prefix() const = 0;
    /// Returns the text of `ids`: their token bytes concatenated, without the space that the encoder added at the
    /// beginning.
    [[nodiscard]] std::string decode(std::span<const TokenId> ids) const;

protected:
    /// Throws RequestError if `text` is larger than 512 MiB. This is the largest text for which the positions in a text
    /// that normalising made three times as long still fit 31 bits.
    static void check_size(std::string_view text);
    /// Returns the ids of `text`, whose marks are `said`, with SpecialTokens::Parse; see encode_prompt().
    [[nodiscard]] virtual std::vector<TokenId> encode_marked(std::string_view text, SaidBytes said,
                                                             const std::atomic<bool>* cancel) const = 0;
    /// Returns for each id, as [vocab_size], whether only a template or the system turn may write it: true for control
    /// tokens, and for user-defined tokens that are spelt like control tokens (is_turn_mark()) or begin or end texts.
    /// `unknown` is the token that stands for text without a token; any text may produce it, so it is false unless it
    /// also begins or ends texts.
    [[nodiscard]] std::vector<bool> trusted_only_ids(std::optional<TokenId> unknown) const;
};

/// A file of a tokenizer: its contents, and its name for messages.
struct NamedBytes {
    std::string_view bytes;
    std::string name;
};

/// The inputs of make_tokenizer(): a vocabulary that the reader of a model file extracted, or the contents of those
/// tokenizer files that exist. They must stay alive during the call, not longer.
struct TokenizerParts {
    const PlainVocabulary* vocabulary = nullptr;  // if not null, all other fields are ignored
    std::optional<NamedBytes> tokenizer_json, tekken_json, sentencepiece_model, vocab_json, merges_txt;
    std::optional<NamedBytes> tokenizer_config_json;
    // The following two are from config.json or tokenizer_config.json.
    std::optional<std::int64_t> bos_id;
    std::optional<bool> add_bos;
};

/// Returns the tokenizer that `parts` describes. Throws Unsupported, which names the kind, if the kind is unknown, and
/// FormatError if a file is broken or missing.
[[nodiscard]] std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerParts& parts);

/// Returns whether `spelling` is a usual name of a control token that ends a turn or a text in published models
/// ("<|eot_id|>", "<|end|>", ...). A vocabulary often names only one of its end tokens as EOS.
[[nodiscard]] bool ends_text_by_name(std::string_view spelling);

/// Returns whether the token ends a message but not the answer, although other models end texts with a token of this
/// name: "<|end|>" in vocabularies of the harmony format (gpt-oss), which have "<|return|>" and "<|call|>"; "<|eom|>"
/// in those of Muse Glimmer, which have "<|start|>" and "<|message|>".
[[nodiscard]] bool ends_message_alone(std::string_view spelling,
                                      const std::function<bool(std::string_view)>& has_token);

/// Returns whether `spelling` looks like a token that structures a conversation: "<|...|>", "<｜...｜>", a name for
/// which ends_text_by_name() is true, or another token that chat templates of published models write. Some files mark
/// such tokens as user-defined instead of special.
[[nodiscard]] bool is_turn_mark(std::string_view spelling);

/// Returns whether `spelling` is a mark that models write around thoughts and tool calls in their answers ("<think>",
/// "[TOOL_CALLS]", ...). Many vocabularies have such marks as control tokens, whose token bytes are empty.
[[nodiscard]] bool is_answer_mark(std::string_view spelling);

/// Turns a stream of ids into text as they arrive: holds back bytes that do not yet complete a UTF-8 character, and,
/// with Start::OfText, drops the leading space that the encoder added. Bytes that can never become a character become
/// U+FFFD. Control tokens have no text, except for marks of answers (is_answer_mark()): these are spelt out.
class StreamingDetokenizer {
public:
    enum class Start : std::uint8_t { OfText, Continued };
    StreamingDetokenizer(const Tokenizer& tokenizer, Start start);
    /// Adds `id` and returns the complete characters that are available now; may be empty. Valid until the next call.
    [[nodiscard]] std::string_view push(TokenId id);
    /// Returns U+FFFD if an incomplete character is held back, else an empty text. Call at the end of the text. Valid
    /// until the next call.
    [[nodiscard]] std::string_view finish();

private:
    const Tokenizer& tokenizer_;
    bool strip_space_;
    std::string held_;  // bytes of an unfinished character
    std::string out_;
};

}  // namespace slipstream
