#include "runtime/text/tokenizer/sentencepiece_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <unordered_set>
#include <utility>

#include "kernels/base/error.h"
#include "runtime/text/printable.h"

namespace slipstream {

namespace {

/// Reads the protobuf wire format (protobuf.dev, "Encoding"), the part of it that SentencePiece files use. Iterates
/// over the fields of one message in place and copies nothing. Each length is checked against the bytes that are left;
/// a length that does not fit is a FormatError that names the file. (With protozero the code would not be shorter: it
/// leaves the check of wire types to its caller.)
class ProtobufReader {
public:
    /// `message` must stay alive while the reader or views from it are used; `name` is the name of the file, for
    /// messages.
    ProtobufReader(std::string_view message, std::string_view name) : rest_(message), name_(name) {}

    /// Reads the next field. Returns false at the end of the message.
    [[nodiscard]] bool next() {
        if (rest_.empty()) return false;
        const std::uint64_t tag = varint();
        field_ = tag >> 3;
        wire_ = tag & 7U;
        if (field_ == 0 || field_ >= 1U << 29) fail("field number {} is out of range", field_);
        bytes_ = {};
        if (wire_ == kVarint)
            value_ = varint();
        else if (wire_ == kFixed64 || wire_ == kFixed32)
            bytes_ = take(wire_ == kFixed64 ? 8 : 4);
        else if (wire_ == kBytes)
            bytes_ = take(varint());
        else
            fail("field {} has wire type {}", field_, wire_);
        return true;
    }
    [[nodiscard]] std::uint64_t field() const { return field_; }

    // as_int32(), as_bool(), as_float() and as_bytes() return the value of the current field; the caller takes the one
    // of the type that the schema gives the field. They throw FormatError if the wire type does not fit.
    [[nodiscard]] std::int32_t as_int32() const {  // also for enums; cut to 32 bits, as protobuf does
        expect(kVarint);
        return static_cast<std::int32_t>(static_cast<std::uint32_t>(value_));
    }
    [[nodiscard]] bool as_bool() const {
        expect(kVarint);
        return value_ != 0;
    }
    [[nodiscard]] float as_float() const {
        expect(kFixed32);
        std::uint32_t bits = 0;
        for (std::size_t i = 4; i-- > 0;) bits = bits << 8 | static_cast<unsigned char>(bytes_[i]);
        return std::bit_cast<float>(bits);
    }
    [[nodiscard]] std::string_view as_bytes() const {
        expect(kBytes);
        return bytes_;
    }

private:
    static constexpr std::uint64_t kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5;

    template <typename... Args>
    [[noreturn]] void fail(fmt::format_string<Args...> what, Args&&... args) const {
        throw FormatError(fmt::format("{}: {}; this is not a SentencePiece model, or cut short", name_,
                                      fmt::format(what, std::forward<Args>(args)...)));
    }
    void expect(std::uint64_t wire) const {
        if (wire_ != wire) fail("field {} has wire type {}, not {}", field_, wire_, wire);
    }
    [[nodiscard]] std::string_view take(std::uint64_t n_bytes) {
        if (n_bytes > rest_.size()) fail("field {} requires {} bytes, {} are left", field_, n_bytes, rest_.size());
        const std::string_view taken = rest_.substr(0, n_bytes);
        rest_.remove_prefix(n_bytes);
        return taken;
    }
    [[nodiscard]] std::uint64_t varint() {
        std::uint64_t value = 0;
        for (unsigned shift = 0; shift < 64; shift += 7) {
            if (rest_.empty()) fail("it ends in the middle of a number");
            const auto byte = static_cast<unsigned char>(rest_.front());
            rest_.remove_prefix(1);
            value |= static_cast<std::uint64_t>(byte & 0x7fU) << shift;
            if (byte < 0x80) return value;
        }
        fail("a number of more than ten bytes");
    }

    std::string_view rest_;
    std::string_view name_;
    std::uint64_t field_ = 0, wire_ = 0, value_ = 0;
    std::string_view bytes_;
};

using Algorithm = SentencePieceModel::Algorithm;

// Limits the tokens of a model to what TokenVocabulary::kMaxTokens allows, so that ids fit and a broken file cannot ask
// for gigabytes.
constexpr std::int64_t kMaxPieces = std::int64_t{1} << 26;
constexpr std::int32_t kUnigram = 1;  // value of TrainerSpec.ModelType
constexpr std::int32_t kBpe = 2;      // value of TrainerSpec.ModelType

/// The fields of trainer_spec and normalizer_spec that encoding needs. The default values are those of the schema.
struct Specs {
    std::int32_t model_type = kUnigram;
    std::int32_t bos_id = 1;
    std::int32_t eos_id = 2;
    bool treat_whitespace_as_suffix = false;
    bool byte_fallback = false;
    std::string_view normalizer_rules, denormalizer_rules;
};

SentencePiece parse_piece(std::string_view message, std::size_t id, std::string_view name) {
    SentencePiece piece;
    for (ProtobufReader reader(message, name); reader.next();) {
        if (reader.field() == 1) piece.text = reader.as_bytes();
        if (reader.field() == 2) piece.score = reader.as_float();
        if (reader.field() == 3) piece.kind = kind_of_type(reader.as_int32(), id, name);
    }
    return piece;
}

void parse_trainer(std::string_view message, std::string_view name, Specs& specs, SentencePieceModel& model) {
    for (ProtobufReader reader(message, name); reader.next();) {
        if (reader.field() == 3) specs.model_type = reader.as_int32();
        if (reader.field() == 24) specs.treat_whitespace_as_suffix = reader.as_bool();
        if (reader.field() == 35) specs.byte_fallback = reader.as_bool();
        if (reader.field() == 41) specs.bos_id = reader.as_int32();
        if (reader.field() == 42) specs.eos_id = reader.as_int32();
        if (reader.field() == 44) model.unk_surface = reader.as_bytes();
    }
}

/// Sets the whitespace options of `model` from a normalizer_spec message and returns its rules, which are a view of
/// `message`.
std::string_view parse_normalizer(std::string_view message, std::string_view name, SentencePieceModel& model) {
    std::string_view rules;
    for (ProtobufReader reader(message, name); reader.next();) {
        if (reader.field() == 2) rules = reader.as_bytes();
        if (reader.field() == 3) model.add_dummy_prefix = reader.as_bool();
        if (reader.field() == 4) model.remove_extra_whitespaces = reader.as_bool();
        if (reader.field() == 5) model.escape_whitespaces = reader.as_bool();
    }
    return rules;
}

void refuse_what_is_not_supported(const Specs& specs, std::string_view name) {
    constexpr std::array<std::string_view, 5> types = {"unknown", "unigram", "BPE", "word", "char"};
    if (specs.model_type != kUnigram && specs.model_type != kBpe) {
        const bool known = specs.model_type == 3 || specs.model_type == 4;
        throw Unsupported(fmt::format("{}: SentencePiece of type {} ({}); this version reads BPE and unigram models",
                                      name, known ? types[specs.model_type] : types[0], specs.model_type));
    }
    if (!specs.denormalizer_rules.empty())
        throw Unsupported(fmt::format("{}: SentencePiece denormaliser rules; this version reads models without", name));
    if (specs.treat_whitespace_as_suffix)
        throw Unsupported(
            fmt::format("{}: SentencePiece with whitespace as a suffix; this version reads prefix models only", name));
}

/// Returns an id from a file as a TokenId, or nullopt if it is negative, which means "none". Throws FormatError if no
/// piece has this id.
std::optional<TokenId> checked_id(std::int64_t id, const SentencePieceModel& model, std::string_view what,
                                  std::string_view name) {
    if (id < 0) return std::nullopt;
    if (id >= std::ssize(model.pieces))
        throw FormatError(fmt::format("{}: {} id {} where there are {} tokens", name, what, id, model.pieces.size()));
    return static_cast<TokenId>(id);
}

std::optional<TokenId> first_of_kind(const SentencePieceModel& model, TokenKind kind) {
    const auto found = std::ranges::find(model.pieces, kind, &SentencePiece::kind);
    if (found == model.pieces.end()) return std::nullopt;
    return static_cast<TokenId>(found - model.pieces.begin());
}

void collect_end_tokens(SentencePieceModel& model, std::initializer_list<std::optional<TokenId>> named) {
    for (const auto id : named)
        if (id) model.end_tokens.push_back(*id);
    for (std::size_t id = 0; id < model.pieces.size(); ++id)
        if (const TokenKind kind = model.pieces[id].kind;
            (kind == TokenKind::Control || kind == TokenKind::UserDefined) && ends_text_by_name(model.pieces[id].text))
            model.end_tokens.push_back(static_cast<TokenId>(id));
    std::ranges::sort(model.end_tokens);
    model.end_tokens.erase(std::unique(model.end_tokens.begin(), model.end_tokens.end()), model.end_tokens.end());
}

}  // namespace

void append_replaced(std::string_view text, std::string_view from, std::string_view to, std::string& out) {
    for (std::size_t found = text.find(from); found != std::string_view::npos; found = text.find(from)) {
        out.append(text.substr(0, found)).append(to);
        text.remove_prefix(found + from.size());
    }
    out.append(text);
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
    std::string result;
    append_replaced(text, from, to, result);
    return result;
}

TokenKind kind_of_type(std::int64_t type, std::size_t id, std::string_view name) {
    constexpr std::array kinds = {TokenKind::Normal,      TokenKind::Unknown, TokenKind::Control,
                                  TokenKind::UserDefined, TokenKind::Unused,  TokenKind::Byte};
    if (type < 1 || type > 6)
        throw FormatError(fmt::format("{}: token {} has type {}, expected 1 to 6", name, id, type));
    return kinds[type - 1];
}

std::optional<unsigned char> byte_of_piece(std::string_view piece) {
    if (piece.size() != 6 || !piece.starts_with("<0x") || piece.back() != '>') return std::nullopt;
    unsigned value = 0;
    for (const char c : piece.substr(3, 2)) {
        const bool digit = c >= '0' && c <= '9';
        if (!digit && (c < 'A' || c > 'F')) return std::nullopt;
        value = value * 16 + static_cast<unsigned>(digit ? c - '0' : c - 'A' + 10);
    }
    return static_cast<unsigned char>(value);
}

void validate(const SentencePieceModel& model, std::string_view name) {
    if (model.pieces.empty())
        throw FormatError(fmt::format("{}: holds no tokens; this is not a SentencePiece model", name));
    if (std::ssize(model.pieces) > kMaxPieces)
        throw FormatError(fmt::format("{}: {} tokens are more than {}", name, model.pieces.size(), kMaxPieces));
    std::array<bool, 256> has_byte{};
    for (std::size_t id = 0; id < model.pieces.size(); ++id) {
        const SentencePiece& piece = model.pieces[id];
        if (piece.text.empty()) throw FormatError(fmt::format("{}: token {} is empty", name, id));
        if (std::isnan(piece.score))
            throw FormatError(fmt::format("{}: the score of token {} is not a number", name, id));
        if (piece.kind != TokenKind::Byte) continue;
        const auto byte = byte_of_piece(piece.text);
        if (!byte)
            throw FormatError(fmt::format("{}: byte token {} is spelt '{}', expected <0xXX>", name, id, piece.text));
        has_byte[*byte] = true;
    }
    const auto missing = std::ranges::find(has_byte, false);
    if (missing != has_byte.end() && !model.unk_id)
        throw FormatError(fmt::format("{}: neither an unknown token nor one for the byte {}; some texts have no ids",
                                      name, missing - has_byte.begin()));
}

SentencePieceModel parse_sentencepiece_model(std::string_view bytes, std::string_view name) {
    SentencePieceModel model;
    model.remove_extra_whitespaces = true;  // the default of the file format
    Specs specs;
    SentencePieceModel ignored;
    for (ProtobufReader reader(bytes, name); reader.next();) {
        if (reader.field() == 1) model.pieces.push_back(parse_piece(reader.as_bytes(), model.pieces.size(), name));
        if (reader.field() == 2) parse_trainer(reader.as_bytes(), name, specs, model);
        if (reader.field() == 3) specs.normalizer_rules = parse_normalizer(reader.as_bytes(), name, model);
        if (reader.field() == 5) specs.denormalizer_rules = parse_normalizer(reader.as_bytes(), name, ignored);
    }
    if (model.pieces.empty())
        throw FormatError(fmt::format("{}: holds no tokens; this is not a SentencePiece model", name));
    refuse_what_is_not_supported(specs, name);
    std::unordered_set<std::string_view> seen;
    for (std::size_t id = 0; id < model.pieces.size(); ++id)
        if (!seen.insert(model.pieces[id].text).second)
            throw FormatError(fmt::format("{}: token {} '{}' is there twice", name, id, model.pieces[id].text));
    model.unk_id = first_of_kind(model, TokenKind::Unknown);
    if (!model.unk_id)
        throw FormatError(fmt::format("{}: no token of type unknown; this is not a SentencePiece model", name));
    if (specs.byte_fallback != first_of_kind(model, TokenKind::Byte).has_value())
        throw FormatError(fmt::format("{}: byte_fallback is {} and byte tokens are {}", name,
                                      specs.byte_fallback ? "on" : "off", specs.byte_fallback ? "missing" : "there"));
    model.algorithm = specs.model_type == kBpe ? Algorithm::Bpe : Algorithm::Unigram;
    if (!specs.normalizer_rules.empty()) model.rules = PrecompiledCharsmap(specs.normalizer_rules, name);
    model.bos_id = checked_id(specs.bos_id, model, "BOS", name);
    model.eos_id = checked_id(specs.eos_id, model, "EOS", name);
    model.adds_bos = model.bos_id.has_value();
    collect_end_tokens(model, {model.eos_id});
    validate(model, name);
    return model;
}

SentencePieceModel sentencepiece_from_gguf(const PlainVocabulary& vocabulary) {
    constexpr std::string_view name = "tokenizer.ggml";
    const std::size_t n = vocabulary.tokens.size();
    if (vocabulary.scores.size() != n || (!vocabulary.types.empty() && vocabulary.types.size() != n))
        throw FormatError(
            fmt::format("{}: {} tokens, {} scores and {} types; a SentencePiece vocabulary has as many of each", name,
                        n, vocabulary.scores.size(), vocabulary.types.size()));
    SentencePieceModel model;
    model.pieces.reserve(n);
    for (std::size_t id = 0; id < n; ++id) {
        const TokenKind kind =
            vocabulary.types.empty() ? TokenKind::Normal : kind_of_type(vocabulary.types[id], id, name);
        // Some programs that write GGUF files spell the spaces of user-defined pieces as spaces, not as "▁". (In a
        // tokenizer.model, sentencepiece itself never finds a piece that is spelt with spaces, since normalised text
        // has "▁".)
        model.pieces.push_back(
            {kind == TokenKind::UserDefined ? replaced(vocabulary.tokens[id], " ", kSpaceMark) : vocabulary.tokens[id],
             vocabulary.scores[id], kind});
    }
    const auto id_of = [&](const std::optional<std::int64_t>& id, std::string_view what) -> std::optional<TokenId> {
        return id ? checked_id(*id, model, what, name) : std::nullopt;
    };
    model.unk_id = vocabulary.unk_id ? id_of(vocabulary.unk_id, "unknown") : first_of_kind(model, TokenKind::Unknown);
    const bool is_unigram = vocabulary.model == "t5";
    model.algorithm = is_unigram ? Algorithm::Unigram : Algorithm::Bpe;
    if (!vocabulary.precompiled_charsmap.empty())
        model.rules = PrecompiledCharsmap(vocabulary.precompiled_charsmap, name);
    model.bos_id = id_of(vocabulary.bos_id, "BOS");
    model.eos_id = id_of(vocabulary.eos_id, "EOS");
    model.adds_bos = vocabulary.add_bos.value_or(!is_unigram) && model.bos_id.has_value();
    model.adds_eos = vocabulary.add_eos.value_or(is_unigram) && model.eos_id.has_value();
    model.add_dummy_prefix = vocabulary.add_space_prefix.value_or(true);
    model.remove_extra_whitespaces = vocabulary.remove_extra_whitespaces.value_or(is_unigram);
    collect_end_tokens(model, {model.eos_id, id_of(vocabulary.eot_id, "EOT")});
    validate(model, name);
    return model;
}

namespace {

// Limits how far an added id may be past the pieces of a tokenizer.model, since ids between them become pieces, too: a
// file of a few bytes must not ask for gigabytes.
constexpr std::int64_t kMaxAddedTokens = 1 << 20;

}  // namespace

void append_added_tokens(const std::vector<AddedToken>& tokens, std::string_view name, SentencePieceModel& model) {
    const std::int64_t n_pieces = std::ssize(model.pieces);
    for (const AddedToken& token : tokens) {
        check_added_token(token, name);
        if (token.id < std::ssize(model.pieces)) continue;
        if (token.id >= n_pieces + kMaxAddedTokens)
            throw FormatError(fmt::format("{}: added token id '{}' is not an id near the {} of the vocabulary", name,
                                          token.id, n_pieces));
        while (std::ssize(model.pieces) < token.id)
            model.pieces.push_back({fmt::format("<unnamed {}>", model.pieces.size()), 0.0F, TokenKind::Unused});
        if (ends_text_by_name(token.content)) model.end_tokens.push_back(token.id);
        if (token.special)
            model.pieces.push_back({token.content, 0.0F, TokenKind::Control});
        else  // found in normalised text, where spaces are "▁"
            model.pieces.push_back({model.escape_whitespaces ? replaced(token.content, " ", kSpaceMark) : token.content,
                                    0.0F, TokenKind::UserDefined});
    }
    validate(model, name);
}

}  // namespace slipstream
