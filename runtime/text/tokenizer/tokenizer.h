// Text to ids and back. One kind of tokenizer a file; `make_tokenizer` picks by what the model's files hold.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/marked_text.h"
#include "runtime/text/token_id.h"

namespace slipstream {

// A vocabulary as arrays, by id, whichever file held it. What is optional stands for "the file does not say".
struct PlainVocabulary {
    std::string model;          // "llama", "gpt2", ...
    std::string pre_tokenizer;  // "default", "qwen2", ... or empty
    std::vector<std::string> tokens;
    std::vector<float> scores;        // [n] or empty
    std::vector<std::int32_t> types;  // [n] or empty: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte
    std::vector<std::string> merges;
    std::optional<std::int64_t> bos_id, eos_id, eot_id, unk_id, pad_id;
    std::optional<bool> add_bos, add_eos, add_space_prefix, remove_extra_whitespaces;
    std::string precompiled_charsmap;  // normalisation rules, bytes; or empty
};

enum class SpecialTokens : std::uint8_t {
    AsText,  // "</s>" in the input is five characters
    Parse,   // "</s>" in the input is the end token
};

enum class TokenKind : std::uint8_t { Normal, Unknown, Control, UserDefined, Unused, Byte };

class Tokenizer {
public:
    virtual ~Tokenizer() = default;

    /// "SentencePiece BPE", for inspect and messages.
    [[nodiscard]] virtual std::string_view kind() const = 0;
    [[nodiscard]] virtual std::int64_t vocab_size() const = 0;
    [[nodiscard]] virtual std::optional<TokenId> bos_id() const = 0;
    /// Whether the model expects BOS in front of every text.
    [[nodiscard]] virtual bool adds_bos() const = 0;
    /// The token that ends a text, and whether the model's own tokenizer puts it behind every text (few do, and never
    /// behind a prompt that is to be continued).
    [[nodiscard]] virtual std::optional<TokenId> eos_id() const { return std::nullopt; }
    [[nodiscard]] virtual bool adds_eos() const { return false; }
    [[nodiscard]] virtual TokenKind token_kind(TokenId id) const = 0;
    /// End tokens that the vocabulary itself names (</s>, <|eot_id|>, ...).
    [[nodiscard]] virtual std::vector<TokenId> end_tokens() const = 0;

    /// Ids of `text`, BOS not included. Any bytes; invalid UTF-8 goes through byte fallback. Throws Interrupted soon
    /// after *cancel turned true; so do all below.
    [[nodiscard]] virtual std::vector<TokenId> encode(std::string_view text, SpecialTokens special,
                                                      const std::atomic<bool>* cancel = nullptr) const = 0;
    /// The ids of a prompt: encode() with BOS in front where adds_bos(), unless the text begins with it itself, as text
    /// out of a chat template does. An empty text is BOS alone.
    [[nodiscard]] std::vector<TokenId> encode_prompt(std::string_view text, SpecialTokens special,
                                                     const std::atomic<bool>* cancel = nullptr) const;
    /// The ids of a prompt with marks, by SpecialTokens::Parse: no id of trusted_only_ids() comes of a byte that was
    /// said. Where none could, the ids are those of the text without marks.
    [[nodiscard]] std::vector<TokenId> encode_prompt(const MarkedText& prompt,
                                                     const std::atomic<bool>* cancel = nullptr) const;
    /// The piece as the vocabulary spells it (for `tokenize`), e.g. "▁the", "<0x0A>".
    [[nodiscard]] virtual std::string_view piece(TokenId id) const = 0;
    /// The bytes that the token stands for in running text ("▁the" -> " the", "<0x0A>" -> "\n", control -> "").
    /// Concatenated over a text they give decode(), but for the one leading space that the encoder added.
    [[nodiscard]] virtual std::string_view token_bytes(TokenId id) const = 0;
    /// Whether the encoder put a space in front of a text, which decode() takes away again.
    [[nodiscard]] virtual bool adds_space_prefix() const = 0;
    /// Text of `ids`: token bytes joined, without the space that the encoder added at the start of the text.
    [[nodiscard]] std::string decode(std::span<const TokenId> ids) const;

protected:
    /// Throws RequestError beyond 512 MiB: normalised, three times as much still fits 31 bits.
    static void check_size(std::string_view text);
    /// encode() with SpecialTokens::Parse of a text with marks; see encode_prompt().
    [[nodiscard]] virtual std::vector<TokenId> encode_marked(std::string_view text, SaidBytes said,
                                                             const std::atomic<bool>* cancel) const = 0;
    /// [vocab_size] Which ids only a template or the system may write: control tokens, and user-defined ones that are
    /// spelt like them (is_turn_mark()) or begin or end texts. `unknown` stands for text that has no token, so it may
    /// come of any text, unless it also begins or ends texts.
    [[nodiscard]] std::vector<bool> trusted_only_ids(std::optional<TokenId> unknown) const;
};

/// A file of a tokenizer: what it holds, and its name for messages.
struct NamedBytes {
    std::string_view bytes;
    std::string name;
};

/// What a tokenizer is made from: the vocabulary that a reader of model files took out, or the bytes of files, those
/// that there are. They are needed while it is made, not later.
struct TokenizerParts {
    const PlainVocabulary* vocabulary = nullptr;  // where there is one, it is all that counts
    std::optional<NamedBytes> tokenizer_json, sentencepiece_model, vocab_json, merges_txt, tokenizer_config_json;
    // From config.json or tokenizer_config.json.
    std::optional<std::int64_t> bos_id;
    std::optional<bool> add_bos;
};

/// Throws Unsupported (naming the kind) or FormatError.
[[nodiscard]] std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerParts& parts);

/// Whether a control token ends a turn or a text in published models, by its usual spelling ("<|eot_id|>", "<|end|>",
/// ...): a vocabulary often names only one of its end tokens as EOS.
[[nodiscard]] bool ends_text_by_name(std::string_view spelling);

/// Whether a token looks like one that structures a conversation: "<|...|>", "<｜...｜>", one that ends_text_by_name(),
/// or another that chat templates of published models write. Files call some of them user-defined instead of special.
[[nodiscard]] bool is_turn_mark(std::string_view spelling);

/// Turns a stream of ids into text as it comes: holds back bytes that do not complete a UTF-8 character yet, and drops
/// the leading space of a text that starts after BOS. Bytes that can never become a character come out as U+FFFD.
class StreamingDetokenizer {
public:
    enum class Start : std::uint8_t { OfText, Continued };
    StreamingDetokenizer(const Tokenizer& tokenizer, Start start);
    /// Complete characters that `id` finishes; may be empty. Valid until the next call.
    [[nodiscard]] std::string_view push(TokenId id);
    /// What is still held back, at the end of the text (U+FFFD for a broken character).
    [[nodiscard]] std::string_view finish();

private:
    const Tokenizer& tokenizer_;
    bool strip_space_;
    std::string held_;  // bytes of an unfinished character
    std::string out_;
};

}  // namespace slipstream
