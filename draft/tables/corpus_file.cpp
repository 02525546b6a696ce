#include "draft/tables/corpus_file.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "kernels/base/check.h"
#include "kernels/base/error.h"

namespace slipstream::draft {

CorpusFile::CorpusFile(const std::filesystem::path& path, std::int64_t vocab, std::uint64_t tokenizer_fingerprint)
    : file_(path) {
    CHECK(vocab > 0 && vocab < std::numeric_limits<std::int32_t>::max(), "{}", vocab);
    auto section = file_.section(kCorpusSection);
    if (!section)
        throw FormatError(
            fmt::format("{}: a corpus store was asked for, this table file holds none; build one with "
                        "slipstream tables build --kind corpus",
                        path.string()));
    if (const std::uint32_t version = section->u32(); version != kCorpusVersion)
        section->fail(fmt::format("version {} was found, {} is read; build the store again", version, kCorpusVersion));
    const std::uint64_t fingerprint = section->u64();
    const std::uint64_t n_ids = section->u64();
    if (fingerprint != tokenizer_fingerprint || n_ids != static_cast<std::uint64_t>(vocab))
        throw RequestError(
            fmt::format("{}: the corpus store was built with another model's tokenizer ({} tokens, the "
                        "model has {}); build one with this model",
                        path.string(), n_ids, vocab));
    vocab_ = static_cast<std::int32_t>(vocab);
    n_documents_ = section->u64();
    first_rank_ = section->u32s();
    tokens_ = section->i32s();
    suffixes_ = section->u32s();
    section->finish();
    const bool sizes_fit = tokens_.size() <= Documents::kMaxTokens && suffixes_.size() == tokens_.size() &&
                           first_rank_.size() == static_cast<std::size_t>(vocab) + 2;
    if (!sizes_fit || first_rank_.front() != 0 || first_rank_.back() != tokens_.size() ||
        !std::ranges::is_sorted(first_rank_))
        section->fail(fmt::format("the index does not fit its {} tokens; build the store again", tokens_.size()));
}

TokenId CorpusFile::token_at(std::uint32_t rank, std::uint32_t offset) const {
    const std::uint64_t position = std::uint64_t{suffixes_[rank]} + offset;
    return position < tokens_.size() ? tokens_[position] : vocab_;
}

CorpusFile::Interval CorpusFile::places(TokenId token) const {
    if (token < 0 || token >= vocab_) return {};
    const auto at = static_cast<std::size_t>(token);
    return {.begin = first_rank_[at], .end = first_rank_[at + 1]};
}

CorpusFile::Interval CorpusFile::narrow(const Interval& interval, std::uint32_t length, TokenId token) const {
    if (interval.empty() || token < 0 || token >= vocab_) return {};
    DCHECK(interval.end <= suffixes_.size(), "{} of {}", interval.end, suffixes_.size());
    std::uint32_t low = interval.begin;
    std::uint32_t high = interval.end;
    while (low < high) {
        const std::uint32_t middle = low + (high - low) / 2;
        if (token_at(middle, length) < token)
            low = middle + 1;
        else
            high = middle;
    }
    const std::uint32_t begin = low;
    high = interval.end;
    // The token is usually rare, so doubling steps find the end of its part sooner than halving the rest.
    for (std::uint32_t step = 1; high - low > step; step *= 2) {
        if (token_at(low + step - 1, length) > token) {
            high = low + step - 1;
            break;
        }
        low += step;
    }
    while (low < high) {
        const std::uint32_t middle = low + (high - low) / 2;
        if (token_at(middle, length) <= token)
            low = middle + 1;
        else
            high = middle;
    }
    return {.begin = begin, .end = low};
}

bool CorpusFile::has_follower(const Interval& interval, std::uint32_t length) const {
    // The token between documents is the largest, so it follows at the first place only if it follows at all places.
    return !interval.empty() && token_at(interval.begin, length) < vocab_;
}

std::size_t CorpusFile::followers(const Interval& interval, std::uint32_t length,
                                  std::span<Follower, kMaxPlaces> out) const {
    if (interval.empty()) return 0;
    const std::uint32_t n_places = std::min(interval.size(), kMaxPlaces);
    const float share = 1.0F / static_cast<float>(n_places);
    std::size_t n = 0;
    for (std::uint32_t i = 0; i < n_places; ++i) {
        // Takes the middle of each of n_places equal parts; with few places, every place.
        const auto within = (std::uint64_t{2} * i + 1) * interval.size() / (std::uint64_t{2} * n_places);
        const TokenId token = token_at(interval.begin + static_cast<std::uint32_t>(within), length);
        if (token < 0 || token >= vocab_) continue;
        if (n > 0 && out[n - 1].token == token)
            out[n - 1].share += share;
        else if (n == 0 || out[n - 1].token < token)  // false only in an unsorted, damaged store
            out[n++] = {.token = token, .share = share};
    }
    return n;
}

}  // namespace slipstream::draft
