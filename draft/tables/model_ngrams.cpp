#include "draft/tables/model_ngrams.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"

namespace slipstream::draft {

namespace {

constexpr std::string_view kKind = "bigram";
constexpr std::string_view kBigramSection = "bigram";
constexpr std::string_view kUnigramSection = "unigram";
// Increase it when the contents of the tables are computed in another way: old tables are then built again.
constexpr std::uint32_t kVersion = 2;

TableReader section(const TableFile& file, std::string_view name) {
    std::optional<TableReader> reader = file.section(name);
    if (!reader)
        throw FormatError(fmt::format("{}: no section {}; it holds no n-grams of a model", file.path().string(), name));
    if (const std::uint32_t version = reader->u32(); version != kVersion)
        reader->fail(fmt::format("version {}, this program reads {}", version, kVersion));
    return *std::move(reader);
}

// Returns true if a row is sound: distinct tokens of the vocabulary, then -1 to its end; log p at most 0 (up to
// rounding) and falling.
bool is_row(std::span<const std::int32_t> tokens, std::span<const Half> log_p, std::int64_t vocab) {
    std::size_t n = 0;
    while (n < tokens.size() && tokens[n] >= 0) ++n;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        if (i >= n) {
            if (tokens[i] != -1) return false;
            continue;
        }
        const float value = to_float(log_p[i]);
        if (tokens[i] >= vocab || !(value <= 0.01F) || !std::isfinite(value)) return false;
        if (i > 0 && value > to_float(log_p[i - 1])) return false;
        if (std::find(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(i), tokens[i]) !=
            tokens.begin() + static_cast<std::ptrdiff_t>(i))
            return false;
    }
    return true;
}

BigramTable read_bigrams(const TableFile& file, std::int64_t vocab) {
    TableReader reader = section(file, kBigramSection);
    BigramTable table;
    table.vocab = static_cast<std::int64_t>(reader.u64());
    table.k = static_cast<std::int64_t>(reader.u64());
    const std::span<const std::int32_t> tokens = reader.i32s();
    const std::span<const Half> log_p = reader.array<Half>();
    reader.finish();
    if (table.vocab != vocab) reader.fail(fmt::format("made for {} tokens, the model has {}", table.vocab, vocab));
    if (table.k < 1 || table.k > vocab || std::ssize(tokens) % vocab != 0 || std::ssize(tokens) / vocab != table.k ||
        log_p.size() != tokens.size())
        reader.fail(fmt::format("{} candidates, {} probabilities for {} tokens, {} each", tokens.size(), log_p.size(),
                                vocab, table.k));
    table.tokens.assign(tokens.begin(), tokens.end());
    table.log_p.assign(log_p.begin(), log_p.end());
    const auto k = static_cast<std::size_t>(table.k);
    for (std::size_t at = 0; at < tokens.size(); at += k)
        if (!is_row(tokens.subspan(at, k), std::span(table.log_p).subspan(at, k), vocab))
            reader.fail(fmt::format("the row of token {} is not a row of candidates", at / k));
    return table;
}

std::vector<std::int32_t> read_unigrams(const TableFile& file, std::int64_t vocab) {
    TableReader reader = section(file, kUnigramSection);
    const std::span<const std::int32_t> common = reader.i32s();
    reader.finish();
    std::vector<std::int32_t> sorted(common.begin(), common.end());
    std::ranges::sort(sorted);
    if (common.empty() || std::ssize(common) != std::min(vocab, kCommonTokens) || sorted.front() < 0 ||
        sorted.back() >= vocab || std::ranges::adjacent_find(sorted) != sorted.end())
        reader.fail(fmt::format("{} common tokens, the model has {}", common.size(), vocab));
    return {common.begin(), common.end()};
}

}  // namespace

std::vector<TableSection> model_ngrams_sections(const ModelNgrams& ngrams) {
    std::vector<TableSection> sections(2);
    sections[0].name = kBigramSection;
    TableWriter& bigrams = sections[0].fields;
    bigrams.u32(kVersion);
    bigrams.u64(static_cast<std::uint64_t>(ngrams.bigrams.vocab));
    bigrams.u64(static_cast<std::uint64_t>(ngrams.bigrams.k));
    bigrams.i32s(ngrams.bigrams.tokens);
    bigrams.array(std::span<const Half>(ngrams.bigrams.log_p));
    sections[1].name = kUnigramSection;
    sections[1].fields.u32(kVersion);
    sections[1].fields.i32s(ngrams.common);
    return sections;
}

ModelNgrams read_model_ngrams(const TableFile& file, std::int64_t vocab) {
    return {.bigrams = read_bigrams(file, vocab), .common = read_unigrams(file, vocab)};
}

std::optional<ModelNgrams> load_model_ngrams(const NgramsPlace& place, std::int64_t vocab, std::int64_t k) {
    if (place.store == nullptr) return std::nullopt;
    try {
        if (const std::optional<TableFile> file = place.store->load(place.fingerprint, kKind)) {
            ModelNgrams ngrams = read_model_ngrams(*file, vocab);
            if (ngrams.bigrams.k >= std::min(k, vocab)) return ngrams;
        }
    } catch (const FormatError& damage) {
        place.store->set_aside(place.fingerprint, damage.what(), kKind);
    }
    return std::nullopt;
}

std::optional<ModelNgrams> load_or_build_model_ngrams(const Model& model, const ModelFiles& files,
                                                      const NgramsPlace& place, const ModelNgramsOptions& options) {
    if (auto kept = load_model_ngrams(place, model.config().vocab, options.k)) return kept;
    std::optional<ModelNgrams> ngrams = build_model_ngrams(model, files, options);
    if (!ngrams || place.store == nullptr) return ngrams;
    try {
        place.store->save(place.fingerprint, model_ngrams_sections(*ngrams), kKind);
    } catch (const IoError& error) {
        if (!options.on_note) throw;
        options.on_note(error.what());
    }
    return ngrams;
}

}  // namespace slipstream::draft
