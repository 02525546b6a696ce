#include "runtime/formats/gguf_vocabulary.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "kernels/base/error.h"
#include "offload/mapped_file.h"

namespace slipstream {

namespace {

[[noreturn]] void fail(const GgufFile& file, std::string_view key, const std::string& what) {
    throw FormatError(fmt::format("{}: metadata {} {}", file.name(), key, what));
}

void check_length(const GgufFile& file, std::string_view key, std::size_t length, std::size_t n_tokens) {
    if (length != n_tokens) fail(file, key, fmt::format("has {} elements for {} tokens", length, n_tokens));
}

std::optional<std::int64_t> special_id(const GgufFile& file, std::string_view key, std::size_t n_tokens) {
    const GgufValue* value = file.find(key);
    if (value == nullptr) return std::nullopt;
    // Older converters write -1, or its unsigned form, for "none".
    const auto id = value->integer();
    if (!id || *id < 0 || static_cast<std::size_t>(*id) >= n_tokens) return std::nullopt;
    return id;
}

constexpr std::string_view kScores = "tokenizer.ggml.scores";

std::vector<float> read_scores(const GgufFile& file, const GgufValue& value, std::size_t n_tokens) {
    const auto numbers = value.numbers();
    if (!numbers) fail(file, kScores, "is not an array of numbers");
    check_length(file, kScores, numbers->size(), n_tokens);
    std::vector<float> scores;
    scores.reserve(n_tokens);
    for (const double score : *numbers) {
        if (!(std::abs(score) <= double{std::numeric_limits<float>::max()}))
            fail(file, kScores, fmt::format("holds {}", score));
        scores.push_back(static_cast<float>(score));
    }
    return scores;
}

constexpr std::string_view kTypes = "tokenizer.ggml.token_type";

std::vector<std::int32_t> read_types(const GgufFile& file, const GgufValue& value, std::size_t n_tokens) {
    const auto numbers = value.integers();
    if (!numbers) fail(file, kTypes, "is not an array of integers");
    check_length(file, kTypes, numbers->size(), n_tokens);
    std::vector<std::int32_t> types;
    types.reserve(n_tokens);
    for (const std::int64_t type : *numbers) {
        // In ggml's enumeration (include/llama.h) 0 is "undefined" and 6 the last value.
        if (type < 0 || type > 6) fail(file, kTypes, fmt::format("holds {}; 0 to 6 are defined", type));
        types.push_back(static_cast<std::int32_t>(type));
    }
    return types;
}

}  // namespace

GgufVocabulary read_gguf_vocabulary(const GgufFile& file) {
    GgufVocabulary vocabulary;
    const auto model = file.string("tokenizer.ggml.model");
    if (!model)
        throw FormatError(fmt::format("{}: no tokenizer (metadata tokenizer.ggml.model is missing)", file.name()));
    vocabulary.model = *model;
    vocabulary.pre_tokenizer = file.string("tokenizer.ggml.pre").value_or("");

    constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
    const GgufValue* tokens = file.find(kTokens);
    if (tokens == nullptr)
        throw FormatError(fmt::format("{}: no vocabulary (metadata {} is missing)", file.name(), kTokens));
    auto pieces = tokens->strings();
    if (!pieces) fail(file, kTokens, "is not an array of texts");
    if (pieces->empty()) fail(file, kTokens, "is empty");
    vocabulary.tokens = *std::move(pieces);
    const std::size_t n_tokens = vocabulary.tokens.size();
    if (n_tokens > static_cast<std::size_t>(std::numeric_limits<TokenId>::max()))
        fail(file, kTokens, fmt::format("has {} elements, more than an id can number", n_tokens));

    if (const GgufValue* value = file.find(kScores)) vocabulary.scores = read_scores(file, *value, n_tokens);
    if (const GgufValue* value = file.find(kTypes)) vocabulary.types = read_types(file, *value, n_tokens);
    constexpr std::string_view kMerges = "tokenizer.ggml.merges";
    if (const GgufValue* value = file.find(kMerges)) {
        auto merges = value->strings();
        if (!merges) fail(file, kMerges, "is not an array of texts");
        vocabulary.merges = *std::move(merges);
    }
    vocabulary.bos_id = special_id(file, "tokenizer.ggml.bos_token_id", n_tokens);
    vocabulary.eos_id = special_id(file, "tokenizer.ggml.eos_token_id", n_tokens);
    vocabulary.eot_id = special_id(file, "tokenizer.ggml.eot_token_id", n_tokens);
    vocabulary.unk_id = special_id(file, "tokenizer.ggml.unknown_token_id", n_tokens);
    vocabulary.pad_id = special_id(file, "tokenizer.ggml.padding_token_id", n_tokens);
    vocabulary.add_bos = file.boolean("tokenizer.ggml.add_bos_token");
    vocabulary.add_eos = file.boolean("tokenizer.ggml.add_eos_token");
    vocabulary.add_space_prefix = file.boolean("tokenizer.ggml.add_space_prefix");
    vocabulary.remove_extra_whitespaces = file.boolean("tokenizer.ggml.remove_extra_whitespaces");
    constexpr std::string_view kRules = "tokenizer.ggml.precompiled_charsmap";
    if (const GgufValue* value = file.find(kRules)) {
        if (value->type != GgufValueType::Array ||
            (value->element_type != GgufValueType::I8 && value->element_type != GgufValueType::U8))
            fail(file, kRules, "is not an array of bytes");
        vocabulary.precompiled_charsmap.assign(reinterpret_cast<const char*>(value->raw.data()), value->raw.size());
    }
    return vocabulary;
}

GgufVocabulary read_gguf_vocabulary(const std::filesystem::path& path) {
    const MappedFile file(path);
    return read_gguf_vocabulary(GgufFile::parse(file.bytes(), path.string()));
}

}  // namespace slipstream
