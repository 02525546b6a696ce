#include "tools/lab/drafts/draft_bench_sources.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "draft/drafter.h"
#include "draft/papers/model_unigram.h"
#include "draft/papers/prompt_lookup.h"
#include "draft/sources/cacheback.h"
#include "draft/sources/context_source.h"
#include "draft/sources/model_bigram.h"
#include "draft/sources/recycling.h"
#include "draft/sources/suffix_automaton_source.h"
#include "kernels/base/error.h"

namespace slipstream::tools {

namespace {

using draft::SourceKind;

constexpr std::int64_t kBigramRow = 32;  // candidates per token, as the drafter's default
constexpr float kUnlikely = -20.0F;      // logit of tokens that never followed

// Returns the k most frequent followers of every token, ties by the lower id, with their relative frequencies as
// probabilities: the prediction after a single token of a model that knows the text by heart.
draft::BigramTable count_followers(const BenchText& text, std::int64_t k) {
    std::map<std::pair<TokenId, TokenId>, std::int64_t> counts;
    for (std::size_t i = 1; i < text.tokens.size(); ++i) ++counts[{text.tokens[i - 1], text.tokens[i]}];
    draft::BigramTable table{.vocab = text.vocab, .k = k};
    table.tokens.assign(text.vocab * k, -1);
    table.log_p.assign(table.tokens.size(), Half{});
    std::vector<std::pair<std::int64_t, TokenId>> followers;  // count, token
    for (auto at = counts.begin(); at != counts.end();) {
        const TokenId token = at->first.first;
        std::int64_t total = 0;
        followers.clear();
        for (; at != counts.end() && at->first.first == token; ++at) {
            followers.emplace_back(at->second, at->first.second);
            total += at->second;
        }
        std::ranges::stable_sort(followers, std::ranges::greater{}, &std::pair<std::int64_t, TokenId>::first);
        for (std::size_t i = 0; i < followers.size() && std::cmp_less(i, k); ++i) {
            const auto place = static_cast<std::size_t>(token * k) + i;
            table.tokens[place] = followers[i].second;
            // The total is increased by one, so that no follower has probability 1.
            table.log_p[place] = to_half(
                static_cast<float>(std::log(static_cast<double>(followers[i].first) / static_cast<double>(total + 1))));
        }
    }
    return table;
}

// Returns the most frequent tokens, in the form of a model's unigrams.
std::vector<TokenId> common_tokens(const BenchText& text) {
    std::vector<std::int64_t> counts(text.vocab);
    for (const TokenId token : text.tokens) ++counts[token];
    std::vector<TokenId> common(counts.size());
    std::iota(common.begin(), common.end(), 0);
    std::ranges::stable_sort(common, std::ranges::greater{}, [&](TokenId token) { return counts[token]; });
    common.resize(std::min(common.size(), static_cast<std::size_t>(draft::kCommonTokens)));
    return common;
}

std::unique_ptr<draft::Recycling> make_recycling(const BenchText& text, double temperature) {
    const draft::BigramTable followers = count_followers(text, draft::Recycling::kCandidates);
    auto recycling =
        std::make_unique<draft::Recycling>(draft::RecyclingOptions{.vocab = text.vocab, .temperature = temperature});
    std::vector<float> logits(text.vocab, kUnlikely);
    const auto k = static_cast<std::size_t>(followers.k);
    TokenTree tree;
    for (std::int64_t token = 0; token < text.vocab; ++token) {
        const auto row = static_cast<std::size_t>(token) * k;
        if (followers.tokens[row] < 0) continue;  // in the text, no token follows this one
        const auto set_row = [&](auto value) {
            for (std::size_t i = row; i < row + k && followers.tokens[i] >= 0; ++i)
                logits[followers.tokens[i]] = value(i);
        };
        set_row([&](std::size_t i) { return to_float(followers.log_p[i]); });
        tree.reset(static_cast<TokenId>(token));
        recycling->observe({.text = tree.tokens(),
                            .n_new = 1,
                            .tree = &tree,
                            .logits = matrix_view(std::as_const(logits).data(), 1, text.vocab),
                            .accepted = {&kTreeRoot, 1}});
        set_row([](std::size_t) { return kUnlikely; });
    }
    return recycling;
}

template <typename Source>
BenchSource made(std::unique_ptr<Source> source) {
    draft::PaperTree* const tree = source.get();
    return {std::move(source), tree};
}

}  // namespace

BenchSource make_bench_source(std::string_view name, const BenchText& text, double temperature) {
    const auto kind = draft::find_source(name);
    if (!kind)
        throw RequestError(fmt::format(
            "--sources: unknown source '{}'; use context, suffix, lookup, cacheback, recycling, bigram or unigram",
            name));
    switch (*kind) {
        case SourceKind::Context:
            return made(std::make_unique<draft::ContextSource>(text.vocab, draft::ContextSource::Options{}));
        case SourceKind::Suffix:
            return made(std::make_unique<draft::SuffixSource>());
        case SourceKind::Lookup:
            return made(std::make_unique<draft::PromptLookup>());
        case SourceKind::Cacheback:
            return made(std::make_unique<draft::Cacheback>(draft::CachebackOptions{}, text.vocab));
        case SourceKind::Recycling:
            return made(make_recycling(text, temperature));
        case SourceKind::Bigram:
            return made(std::make_unique<draft::ModelBigram>(
                std::make_shared<const draft::BigramTable>(count_followers(text, kBigramRow)), temperature,
                kBigramRow));
        case SourceKind::Unigram:
            return made(std::make_unique<draft::ModelUnigram>(common_tokens(text), text.vocab, temperature));
        case SourceKind::Corpus:
        case SourceKind::Lookahead:
        case SourceKind::Mtp:
        case SourceKind::Model:
        case SourceKind::Retrieval:
            break;
    }
    throw RequestError(
        fmt::format("--sources {}: requires a store or a model; use context, suffix, lookup, cacheback, "
                    "recycling, bigram or unigram",
                    name));
}

}  // namespace slipstream::tools
