#include "runtime/text/tokenizer/tekken_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "kernels/base/error.h"
#include "runtime/text/json_builder.h"
#include "runtime/text/json_fields.h"
#include "runtime/text/printable.h"
#include "runtime/text/tokenizer/byte_spellings.h"
#include "runtime/text/tokenizer/ranked_bpe.h"
#include "runtime/text/tokenizer/vocabulary.h"

namespace slipstream {

namespace {

// Limits the special tokens: a small file could otherwise ask for any number of them. Published: 1000.
constexpr std::int64_t kMaxSpecialTokens = std::int64_t{1} << 14;
constexpr std::int64_t kBytes = 256;  // entries of `vocab` that are single bytes

// Special tokens of files without a list, by id: the fixed list of mistral-common for versions up to v7. It gives the
// last three names to files of all versions, but models before v7 were not trained with them.
constexpr auto kSpecialTokensOfV7 = std::to_array<std::string_view>({"<unk>",
                                                                     "<s>",
                                                                     "</s>",
                                                                     "[INST]",
                                                                     "[/INST]",
                                                                     "[AVAILABLE_TOOLS]",
                                                                     "[/AVAILABLE_TOOLS]",
                                                                     "[TOOL_RESULTS]",
                                                                     "[/TOOL_RESULTS]",
                                                                     "[TOOL_CALLS]",
                                                                     "[IMG]",
                                                                     "<pad>",
                                                                     "[IMG_BREAK]",
                                                                     "[IMG_END]",
                                                                     "[PREFIX]",
                                                                     "[MIDDLE]",
                                                                     "[SUFFIX]",
                                                                     "[SYSTEM_PROMPT]",
                                                                     "[/SYSTEM_PROMPT]",
                                                                     "[TOOL_CONTENT]"});
constexpr std::size_t kTokensSinceV7 = 3;  // at the end of the list

/// The parts of a tekken.json. `vocab`, 150,000 entries, is read into flat arrays; the rest becomes a JSON value.
struct TekkenFile {
    std::string bytes;              // of all entries of `vocab`, concatenated in the order of their ranks
    std::vector<std::size_t> ends;  // [n_entries]: end of each entry in `bytes`
    nlohmann::json rest;            // an object with all other parts; "vocab" is null in it

    [[nodiscard]] std::int64_t n_entries() const { return std::ssize(ends); }
    [[nodiscard]] std::string_view entry(std::int64_t rank) const {
        const std::size_t begin = rank == 0 ? 0 : ends[rank - 1];
        return std::string_view(bytes).substr(begin, ends[rank] - begin);
    }
};

/// Reads a tekken.json in one pass. Throws FormatError if an entry of `vocab` is broken.
class TekkenReader final : public JsonBuilder {
public:
    TekkenReader(std::string_view text, std::string_view name, TekkenFile& file)
        : JsonBuilder(text, name), file_(file) {}

    bool null() override {
        if (state_ == State::Outside) return JsonBuilder::null();
        return field_ == Field::Text ? end_field() : refuse();
    }
    bool boolean(bool value) override { return state_ == State::Outside ? JsonBuilder::boolean(value) : refuse(); }
    bool number_integer(std::int64_t value) override {
        return state_ == State::Outside ? JsonBuilder::number_integer(value) : refuse();
    }
    bool number_unsigned(std::uint64_t value) override {
        if (state_ == State::Outside) return JsonBuilder::number_unsigned(value);
        if (field_ != Field::Rank || rank_) return refuse();
        rank_ = value;
        return end_field();
    }
    bool number_float(double value, const std::string& text) override {
        return state_ == State::Outside ? JsonBuilder::number_float(value, text) : refuse();
    }
    bool string(std::string& value) override {
        if (state_ == State::Outside) return JsonBuilder::string(value);
        if (field_ == Field::Text) return end_field();
        if (field_ != Field::Bytes || bytes_) return refuse();
        bytes_ = decode_base64(value);
        return bytes_ && !bytes_->empty() ? end_field() : refuse();
    }
    bool key(std::string& key) override {
        if (state_ == State::Outside) return JsonBuilder::key(key);
        field_ = key == "rank"          ? Field::Rank
                 : key == "token_bytes" ? Field::Bytes
                 : key == "token_str"   ? Field::Text
                                        : Field::None;
        return field_ != Field::None || refuse();
    }
    bool start_object(std::size_t size) override {
        if (state_ == State::Outside) return JsonBuilder::start_object(size);
        if (state_ == State::InEntry) return refuse();
        state_ = State::InEntry;
        rank_.reset();
        bytes_.reset();
        return true;
    }
    bool start_array(std::size_t size) override {
        if (state_ != State::Outside) return refuse();
        if (depth() != 1 || key_at(0) != "vocab") return JsonBuilder::start_array(size);
        state_ = State::InVocabulary;
        return JsonBuilder::null();  // keeps the key, so that a second "vocab" is refused
    }
    bool end_object() override {
        if (state_ == State::Outside) return JsonBuilder::end_object();
        if (!rank_ || !bytes_ || *rank_ != file_.ends.size()) return refuse();
        file_.bytes += *bytes_;
        file_.ends.push_back(file_.bytes.size());
        state_ = State::InVocabulary;
        return true;
    }
    bool end_array() override {
        if (state_ == State::Outside) return JsonBuilder::end_array();
        state_ = State::Outside;
        return true;
    }

private:
    enum class State : std::uint8_t { Outside, InVocabulary, InEntry };
    enum class Field : std::uint8_t { None, Rank, Bytes, Text };

    bool end_field() {
        field_ = Field::None;
        return true;
    }
    [[noreturn]] bool refuse() const {
        throw FormatError(fmt::format(
            "{}: entry {} of vocab is not a token of that rank, {{\"rank\", \"token_bytes\" (base64), \"token_str\"}}",
            name(), file_.ends.size()));
    }

    TekkenFile& file_;
    State state_ = State::Outside;
    Field field_ = Field::None;          // field of the entry whose value follows
    std::optional<std::uint64_t> rank_;  // of the current entry
    std::optional<std::string> bytes_;   // of the current entry
};

TekkenFile read_tekken(std::string_view text, const std::string& name) {
    TekkenFile file;
    TekkenReader reader(text, name, file);
    parse_json_events(text, reader);
    file.rest = reader.take();
    if (!file.rest.is_object()) throw FormatError(fmt::format("{}: holds JSON, but no object", name));
    return file;
}

/// The fields of "config" that matter here.
struct TekkenConfig {
    std::string pattern, version;
    std::int64_t n_special = 0;  // S of the head of tekken_file.h
    std::int64_t n_entries = 0;  // V - S: entries of `vocab` that are tokens
};

TekkenConfig read_config(const TekkenFile& file, const std::string& name) {
    const nlohmann::json* config = JsonFields(file.rest, name).object("config");
    if (config == nullptr)
        throw FormatError(fmt::format("{}: there is no config in it; this is not a tekken.json", name));
    const JsonFields fields(*config, name + ": config");
    TekkenConfig result;
    const auto pattern = fields.string("pattern");
    if (!pattern || pattern->empty()) fields.fail("pattern", "is missing");
    result.pattern = *pattern;
    result.version = fields.string("version").value_or("");
    result.n_special = fields.required("default_num_special_tokens");
    if (result.n_special < 0 || result.n_special > kMaxSpecialTokens)
        fields.fail("default_num_special_tokens",
                    fmt::format("is {}; 0 to {} are supported", result.n_special, kMaxSpecialTokens));
    const std::int64_t vocab_size = fields.required("default_vocab_size");
    const std::int64_t least = result.n_special + kBytes;
    const std::int64_t most = result.n_special + file.n_entries();
    if (vocab_size < least || vocab_size > most)
        fields.fail("default_vocab_size", fmt::format("is {}, with {} special tokens and {} entries of vocab; it must "
                                                      "be at least {} (all bytes) and at most {}",
                                                      vocab_size, result.n_special, file.n_entries(), least, most));
    result.n_entries = vocab_size - result.n_special;
    return result;
}

/// Returns the spellings of the special tokens that the file lists, by id; an empty one is not listed.
std::vector<std::string> listed_special_tokens(const TekkenFile& file, const TekkenConfig& config,
                                               const std::string& name) {
    std::vector<std::string> spellings(static_cast<std::size_t>(config.n_special));
    const nlohmann::json* list = JsonFields(file.rest, name).find("special_tokens");
    if (list == nullptr) {
        constexpr std::array<std::string_view, 4> kVersions = {"v1", "v2", "v3", "v7"};
        if (std::ranges::find(kVersions, config.version) == kVersions.end())
            throw FormatError(
                fmt::format("{}: there are no special_tokens in it, which only files up to version v7 "
                            "may lack; this one's version is '{}'",
                            name, printable(config.version)));
        if (spellings.size() < kSpecialTokensOfV7.size())
            throw FormatError(fmt::format("{}: {} special tokens and no list of them; the list of version v7 has {}",
                                          name, spellings.size(), kSpecialTokensOfV7.size()));
        const std::size_t n_unknown = config.version == "v7" ? 0 : kTokensSinceV7;
        std::ranges::copy(std::span(kSpecialTokensOfV7).first(kSpecialTokensOfV7.size() - n_unknown),
                          spellings.begin());
        return spellings;
    }
    const std::string where = name + ": special_tokens";
    if (!list->is_array()) throw FormatError(fmt::format("{} is not a list", where));
    for (const nlohmann::json& token : *list) {
        if (!token.is_object()) throw FormatError(fmt::format("{} holds something that is not a token", where));
        const JsonFields fields(token, where);
        const std::int64_t rank = fields.required("rank");
        if (rank < 0 || rank >= config.n_special)
            fields.fail("rank", fmt::format("is {}, where there are {} special tokens", rank, config.n_special));
        const auto spelling = fields.string("token_str");
        if (!spelling || spelling->empty()) fields.fail("token_str", "is missing");
        static_cast<void>(fields.boolean("is_control"));
        std::string& listed = spellings[rank];
        if (!listed.empty()) fields.fail("rank", fmt::format("is {} in two tokens", rank));
        listed = *spelling;
    }
    return spellings;
}

/// Returns all special tokens. Throws FormatError if two have the same spelling.
std::vector<AddedToken> special_tokens(const TekkenFile& file, const TekkenConfig& config, const std::string& name) {
    std::vector<AddedToken> tokens;
    std::unordered_set<std::string> spellings;
    for (std::string& listed : listed_special_tokens(file, config, name)) {
        const auto id = static_cast<TokenId>(tokens.size());
        std::string spelling = listed.empty() ? fmt::format("<SPECIAL_{}>", id) : std::move(listed);
        if (!spellings.insert(spelling).second)
            throw FormatError(fmt::format("{}: special token '{}' is there twice", name, printable(spelling)));
        tokens.push_back({.content = std::move(spelling), .id = id, .special = true});
    }
    return tokens;
}

}  // namespace

std::unique_ptr<Tokenizer> parse_tekken(std::string_view text, const std::string& name,
                                        const TokenizerSettings& settings, const TextEnds& ends) {
    const TekkenFile file = read_tekken(text, name);
    const TekkenConfig config = read_config(file, name);
    // The index stays empty: a special token never takes the id of an ordinary token with its spelling.
    IndexedVocabulary vocabulary;
    for (std::int64_t rank = 0; rank < config.n_entries; ++rank) {
        const std::string_view bytes = file.entry(rank);
        if (rank < kBytes && bytes != std::string(1, static_cast<char>(rank)))
            throw FormatError(fmt::format("{}: entry {} of vocab is not the byte {}", name, rank, rank));
        set_ranked_token(config.n_special + rank, bytes, *vocabulary.tokens, name);
    }
    PipelineParts parts = ranked_bpe_parts(*vocabulary.tokens, config.pattern, name);
    parts.added_tokens = place_added_tokens(special_tokens(file, config, name), vocabulary, name);
    parts.vocabulary = std::move(vocabulary.tokens);
    TokenizerSettings around = settings;
    if (!around.bos_token) around.bos_token = "<s>";
    if (!around.eos_token) around.eos_token = "</s>";
    if (!around.add_bos) around.add_bos = true;
    set_text_ends(around, {}, ends, parts, name);
    return std::make_unique<PipelineTokenizer>(std::move(parts));
}

}  // namespace slipstream
