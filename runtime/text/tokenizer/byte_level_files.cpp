#include "runtime/text/tokenizer/byte_level_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "kernels/base/error.h"
#include "runtime/text/printable.h"
#include "runtime/text/tokenizer/byte_spellings.h"
#include "runtime/text/tokenizer/gguf_bpe.h"
#include "runtime/text/tokenizer/pipeline_tokenizer.h"
#include "runtime/text/tokenizer/pre_tokenizer_names.h"
#include "runtime/text/tokenizer/ranked_bpe.h"
#include "runtime/text/tokenizer/sentencepiece_model.h"
#include "runtime/text/tokenizer/tokenizer_json.h"
#include "runtime/text/tokenizer/word_models.h"

namespace slipstream {

namespace {

/// Returns the parts of a tokenizer with the steps of the pre-tokenizer `named`. If `adds_space` is true, a space is
/// put at the beginning of each text that does not begin with one. `file` is the name for messages.
PipelineParts parts_of(const NamedPreTokenizer& named, bool adds_space, const std::string& file) {
    PipelineParts parts;
    if (adds_space) parts.pre_tokenizer.emplace_back(PrefixSpaceStep{});
    parts.adds_space_prefix = adds_space;
    for (PreTokenizerStep& step : steps_of(named, file)) parts.pre_tokenizer.push_back(std::move(step));
    std::vector<NormalizerStep> steps;
    if (named.form) steps.emplace_back(*named.form);
    parts.normalizer = TextNormalizer(std::move(steps));
    return parts;
}

/// Returns the pre-tokenizer of a tokenizer class of the transformers package. Throws Unsupported if the class is
/// unknown; `name` is the name of the file, for the message.
NamedPreTokenizer find_class(const std::string& tokenizer_class, const std::string& name) {
    std::string_view base = tokenizer_class;
    if (base.ends_with("Fast")) base.remove_suffix(4);
    std::string_view named;
    if (base == "GPT2Tokenizer" || base == "CodeGenTokenizer") named = "gpt-2";
    if (base == "Qwen2Tokenizer") named = "qwen2";
    if (base == "Qwen3_5Tokenizer") named = "qwen35";
    if (named.empty())
        throw Unsupported(fmt::format(
            "{}: how text is cut into words is known for the tokenizer classes GPT2Tokenizer, "
            "CodeGenTokenizer, Qwen2Tokenizer and Qwen3_5Tokenizer, and this one's is '{}'; add its tokenizer.json",
            name, tokenizer_class.empty() ? "not given" : printable(tokenizer_class)));
    return find_pre_tokenizer(named).value();
}

/// Removes the first line that is not empty from `file`, with all empty lines before it, and returns it without its
/// line end. Returns nullopt if no such line is left.
std::optional<std::string_view> take_line(std::string_view& file) {
    while (!file.empty()) {
        const std::size_t end = std::min(file.find('\n'), file.size());
        std::string_view line = file.substr(0, end);
        file.remove_prefix(std::min(end + 1, file.size()));
        if (line.ends_with('\r')) line.remove_suffix(1);
        if (!line.empty()) return line;
    }
    return std::nullopt;
}

MergeTable read_merges(const VocabMergesFiles& files, const IndexedVocabulary& vocabulary) {
    std::string_view rest = files.merges_txt;
    MergeReader reader(vocabulary, std::ranges::count(rest, '\n'), files.merges_name);
    while (const auto line = take_line(rest)) reader.add(*line);
    return reader.take();
}

/// Appends to `tokens`, as special tokens, the BOS, EOS and unknown tokens that `settings` names, if they are in the
/// vocabulary and not yet in `tokens`.
void add_named(const TokenizerSettings& settings, const IndexedVocabulary& vocabulary,
               std::vector<AddedToken>& tokens) {
    for (const auto& name : {settings.bos_token, settings.eos_token, settings.unk_token}) {
        if (!name || std::ranges::find(tokens, *name, &AddedToken::content) != tokens.end()) continue;
        if (const TokenId id = vocabulary.find(*name); id >= 0)
            tokens.push_back({.content = *name, .id = id, .special = true});
    }
}

}  // namespace

std::unique_ptr<Tokenizer> parse_vocab_merges(const VocabMergesFiles& files, const TokenizerSettings& settings,
                                              const TextEnds& ends) {
    const NamedPreTokenizer named = find_class(settings.tokenizer_class, files.vocab_name);
    PipelineParts parts = parts_of(named, settings.add_prefix_space.value_or(false), files.vocab_name);
    IndexedVocabulary vocabulary = read_vocabulary_object(files.vocab_json, files.vocab_name);
    MergeTable merges = read_merges(files, vocabulary);
    set_bytes_by_alphabet(*vocabulary.tokens);
    std::optional<TokenId> unk;
    if (settings.unk_token)
        if (const TokenId id = vocabulary.find(*settings.unk_token); id >= 0) unk = id;
    parts.model = std::make_unique<ByteBpe>(*vocabulary.tokens, std::move(merges), ByteBpe::WholeWords::Merge, unk);
    std::vector<AddedToken> added = settings.added_tokens;
    add_named(settings, vocabulary, added);
    parts.added_tokens = place_added_tokens(std::move(added), vocabulary, files.vocab_name);
    parts.vocabulary = std::move(vocabulary.tokens);
    set_text_ends(settings, {}, ends, parts, files.vocab_name);
    return std::make_unique<PipelineTokenizer>(std::move(parts));
}

namespace {

const std::string kName = "tokenizer.ggml";

IndexedVocabulary read_tokens(const PlainVocabulary& source, std::vector<AddedToken>& added) {
    const std::size_t n = source.tokens.size();
    if (!source.types.empty() && source.types.size() != n)
        throw FormatError(fmt::format("{}: {} tokens and {} types", kName, n, source.types.size()));
    IndexedVocabulary vocabulary;
    TokenVocabulary& tokens = *vocabulary.tokens;
    vocabulary.index = StringIndex(n);
    std::string bytes;
    for (std::size_t i = 0; i < n; ++i) {
        const auto id = static_cast<TokenId>(i);
        const std::string& spelling = source.tokens[i];
        const TokenKind kind = source.types.empty() ? TokenKind::Normal : kind_of_type(source.types[i], i, kName);
        if (spelling.empty()) throw FormatError(fmt::format("{}: token {} is empty", kName, i));
        bytes.clear();
        const bool is_spelt = append_from_alphabet(spelling, bytes);
        tokens.set(id, spelling, kind, kName);
        vocabulary.index.insert(spelling, id, [&](TokenId other) { return tokens.spelling(other); });
        if (kind == TokenKind::Control || kind == TokenKind::UserDefined) {
            added.push_back({.content = spelling, .id = id, .special = kind == TokenKind::Control});
            continue;
        }
        if (is_spelt) tokens.set_bytes(id, bytes);
    }
    return vocabulary;
}

}  // namespace

std::unique_ptr<Tokenizer> byte_bpe_from_gguf(const PlainVocabulary& source) {
    const auto named = find_pre_tokenizer(source.pre_tokenizer);
    if (!named)
        throw Unsupported(
            fmt::format("tokenizer.ggml.pre: the pre-tokenizer '{}' is not known to this version; convert the model "
                        "anew, or take its tokenizer.json",
                        printable(source.pre_tokenizer)));
    PipelineParts parts = parts_of(*named, source.add_space_prefix.value_or(false), kName);
    std::vector<AddedToken> added;
    IndexedVocabulary vocabulary = read_tokens(source, added);
    const auto id_of = [&](const std::optional<std::int64_t>& id, std::string_view what) {
        return gguf_token(id, what, vocabulary);
    };
    const auto whole_words =
        named->takes_whole_words ? ByteBpe::WholeWords::TakeFromVocabulary : ByteBpe::WholeWords::Merge;
    parts.model = std::make_unique<ByteBpe>(*vocabulary.tokens, gguf_merges(source, vocabulary), whole_words,
                                            id_of(source.unk_id, "unknown"));
    const auto bos = id_of(source.bos_id, "BOS");
    const auto eos = id_of(source.eos_id, "EOS");
    if (const auto eot = id_of(source.eot_id, "EOT")) parts.end_tokens.push_back(*eot);
    parts.added_tokens = place_added_tokens(std::move(added), vocabulary, kName);
    parts.vocabulary = std::move(vocabulary.tokens);
    set_text_ends({.add_eos = source.add_eos.value_or(false)}, {.before = bos, .after = eos},
                  {.add_bos = source.add_bos.value_or(named->adds_bos)}, parts, kName);
    return std::make_unique<PipelineTokenizer>(std::move(parts));
}

namespace {

AddedToken special_token(std::string content, TokenId id) {
    return {.content = std::move(content), .id = id, .special = true};
}

/// Returns the encoding of Llama 3. Its 256 special tokens, ids 128000 to 128255, have the names of Llama 3.1, which
/// include those of 3.0; a token without a name is called reserved.
TiktokenEncoding llama3_encoding() {
    constexpr std::string_view names[] = {
        "begin_of_text", "end_of_text", "",       "",          "finetune_right_pad_id", "", "start_header_id",
        "end_header_id", "eom_id",      "eot_id", "python_tag"};
    TiktokenEncoding encoding{.pattern = std::string(kLlama3Pattern)};
    for (int i = 0, n_reserved = 0; i < 256; ++i) {
        const std::string_view name = static_cast<std::size_t>(i) < std::size(names) ? names[i] : "";
        std::string spelling =
            name.empty() ? fmt::format("<|reserved_special_token_{}|>", n_reserved++) : fmt::format("<|{}|>", name);
        encoding.special_tokens.push_back(special_token(std::move(spelling), 128000 + i));
    }
    encoding.bos_token = encoding.special_tokens[0].content;
    encoding.eos_token = encoding.special_tokens[1].content;
    encoding.adds_bos = true;
    return encoding;
}

/// Calls `take`(bytes, rank) for each line of `file`, the contents of a rank file. Throws FormatError if a line is not
/// "<base64> <rank>"; `name` is the name of the file.
template <typename Take>
void read_ranks(std::string_view file, const std::string& name, Take&& take) {
    std::size_t line_number = 0;
    while (const auto line = take_line(file)) {
        ++line_number;
        const std::size_t space = line->find(' ');
        const auto bytes = decode_base64(line->substr(0, space));
        std::int64_t rank = -1;
        if (space != std::string_view::npos) {
            const char* const end = line->data() + line->size();
            const auto [stop, error] = std::from_chars(line->data() + space + 1, end, rank);
            if (error != std::errc() || stop != end) rank = -1;
        }
        if (!bytes || bytes->empty() || rank < 0)
            throw FormatError(fmt::format("{}: line {} is '{}' and not \"<base64> <rank>\"", name, line_number,
                                          printable(*line, 64)));
        take(*bytes, rank);
    }
}

}  // namespace

bool is_tiktoken(std::string_view file) {
    const std::string_view line = file.substr(0, file.substr(0, 4096).find('\n'));
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == line.size() || line.size() > 4096) return false;
    const std::string_view rank = line.substr(space + 1, line.size() - space - 1 - (line.ends_with('\r') ? 1 : 0));
    return decode_base64(line.substr(0, space)).has_value() &&
           std::ranges::all_of(rank, [](char c) { return c >= '0' && c <= '9'; });
}

TiktokenEncoding published_tiktoken_encoding(std::size_t n_ranks, const std::string& name) {
    if (n_ranks == 128000) return llama3_encoding();
    if (n_ranks == 100256)  // cl100k_base
        return {.pattern = R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+)"
                           R"(|\s++$|\s*[\r\n]|\s+(?!\S)|\s)",
                .special_tokens = {special_token("<|endoftext|>", 100257), special_token("<|fim_prefix|>", 100258),
                                   special_token("<|fim_middle|>", 100259), special_token("<|fim_suffix|>", 100260),
                                   special_token("<|endofprompt|>", 100276)},
                .eos_token = "<|endoftext|>"};
    if (n_ranks == 199998)  // o200k_base
        return {.pattern = std::string(kO200kPattern),
                .special_tokens = {special_token("<|endoftext|>", 199999), special_token("<|endofprompt|>", 200018)},
                .eos_token = "<|endoftext|>"};
    throw Unsupported(
        fmt::format("{}: tiktoken ranks for {} tokens; the pattern that belongs to them is known for 128000 "
                    "(Llama 3), 100256 (cl100k_base) and 199998 (o200k_base); use the model's tokenizer.json",
                    name, n_ranks));
}

std::size_t count_tiktoken_ranks(std::string_view file, const std::string& name) {
    std::size_t n_ranks = 0;
    read_ranks(file, name, [&](const std::string&, std::int64_t) { ++n_ranks; });
    return n_ranks;
}

std::unique_ptr<Tokenizer> parse_tiktoken(std::string_view file, const std::string& name,
                                          const TiktokenEncoding& encoding, const TokenizerSettings& settings,
                                          const TextEnds& ends) {
    IndexedVocabulary vocabulary;
    TokenVocabulary& tokens = *vocabulary.tokens;
    read_ranks(file, name, [&](const std::string& bytes, std::int64_t rank) {
        if (rank < tokens.size() && tokens.kind(static_cast<TokenId>(rank)) != TokenKind::Unused)
            throw FormatError(fmt::format("{}: rank {} is there twice", name, rank));
        set_ranked_token(rank, bytes, tokens, name);
    });
    vocabulary.index = StringIndex(static_cast<std::size_t>(tokens.size()));
    for (TokenId id = 0; id < tokens.size(); ++id)
        if (tokens.kind(id) != TokenKind::Unused)
            vocabulary.index.insert(tokens.spelling(id), id, [&](TokenId other) { return tokens.spelling(other); });
    PipelineParts parts = ranked_bpe_parts(tokens, encoding.pattern, name);
    parts.added_tokens = place_added_tokens(
        settings.added_tokens.empty() ? encoding.special_tokens : settings.added_tokens, vocabulary, name);
    parts.vocabulary = std::move(vocabulary.tokens);
    TokenizerSettings around = settings;
    if (!around.bos_token) around.bos_token = encoding.bos_token;
    if (!around.eos_token) around.eos_token = encoding.eos_token;
    if (!around.add_bos) around.add_bos = encoding.adds_bos;
    set_text_ends(around, {}, ends, parts, name);
    return std::make_unique<PipelineTokenizer>(std::move(parts));
}

}  // namespace slipstream
