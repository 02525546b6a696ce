// Corpus stores: what is built, opened and refused, and the source's guesses against plain counts over the documents.
#include "draft/sources/corpus.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "draft/tables/corpus_builder.h"
#include "kernels/base/error.h"
#include "runtime/formats/model_files.h"
#include "runtime/text/tokenizer/tokenizer.h"
#include "tests/draft/changing_text.h"
#include "tests/support/error_text.h"
#include "tests/support/temp_folder.h"

namespace slipstream::draft {
namespace {

using Tokens = std::vector<TokenId>;
using Texts = std::vector<Tokens>;

constexpr std::uint64_t kFingerprint = 0x1234567890abcdefU;

std::filesystem::path build(const TempFolder& folder, const Texts& texts, std::int64_t vocab) {
    Documents documents(vocab);
    for (const Tokens& text : texts) documents.add(text);
    std::filesystem::path path = folder.path() / "corpus.table";
    write_corpus(documents, kFingerprint, path, {});
    return path;
}

CorpusSource open_source(const std::filesystem::path& path, std::int64_t vocab) {
    return CorpusSource({.path = path, .vocab = vocab, .tokenizer_fingerprint = kFingerprint});
}

Texts random_documents(ChangingText& random, std::size_t n, std::size_t most_tokens) {
    Texts documents(n);
    for (Tokens& document : documents) {
        document.resize(random.below(most_tokens));
        for (TokenId& token : document) token = random.token();
    }
    return documents;
}

// How often each token follows `wanted` inside the documents.
std::map<TokenId, int> followers(const Texts& documents, std::span<const TokenId> wanted) {
    std::map<TokenId, int> counts;
    for (const Tokens& document : documents)
        for (std::size_t end = wanted.size(); end < document.size(); ++end)
            if (std::ranges::equal(std::span(document).subspan(end - wanted.size(), wanted.size()), wanted))
                ++counts[document[end]];
    return counts;
}

struct Expected {
    std::size_t length = 0;
    std::map<TokenId, int> counts;
};

Expected longest_match(const Texts& documents, std::span<const TokenId> path) {
    for (std::size_t length = std::min<std::size_t>(16, path.size()); length >= 2; --length)
        if (auto counts = followers(documents, path.last(length)); !counts.empty()) return {length, std::move(counts)};
    return {};
}

// What the source proposes at a cursor is what the counts say: all of it, in the order of count.
void expect_counts(CorpusSource& source, Cursor cursor, std::int64_t position, const Expected& expected) {
    std::array<Proposal, 64> out;
    const std::size_t n = source.propose(cursor, position, PathNoise(), out);
    expect_valid({out.data(), n}, source, position, PathNoise());
    ASSERT_EQ(n, expected.counts.size());
    for (std::size_t i = 0; i < n; ++i) {
        ASSERT_TRUE(expected.counts.contains(out[i].token));
        if (i == 0) continue;
        const int count = expected.counts.at(out[i].token);
        const int before = expected.counts.at(out[i - 1].token);
        EXPECT_TRUE(before > count || (before == count && out[i - 1].token < out[i].token));
    }
    if (n == 0) return;
    constexpr std::array kLongest = {2, 3, 5, 8, 15, 16};
    const auto bucket = std::ranges::lower_bound(kLongest, static_cast<int>(expected.length)) - kLongest.begin();
    EXPECT_EQ(out[0].bin, bucket * 3);
    const PathNoise noise(3);
    std::array<Proposal, 2> few;
    const std::size_t n_few = source.propose(cursor, position, noise, few);
    EXPECT_EQ(n_few, std::min<std::size_t>(n, 2));
    expect_valid({few.data(), n_few}, source, position, noise);
}

TEST(CorpusSource, CountsWhatFollowsTheLongestMatch) {
    const TempFolder folder;
    std::size_t n_long = 0;
    for (std::uint32_t seed = 0; seed < 20; ++seed) {
        SCOPED_TRACE(seed);
        const auto alphabet = static_cast<TokenId>(3 + seed % 8);
        ChangingText changing(seed, alphabet);
        Texts documents = random_documents(changing, 6, 25);
        // The text itself draws on a document now and then: long matches.
        documents.push_back(Tokens(20));
        for (TokenId& token : documents.back()) token = changing.token();
        const auto path = build(folder, documents, alphabet);
        CorpusSource source = open_source(path, alphabet);
        for (int step = 0; step < 40; ++step) {
            changing.change(source);
            Tokens all = changing.text();
            if (step % 4 == 0) {
                const std::size_t n_quoted = 2 + changing.below(17);
                all.insert(all.end(), documents.back().begin(),
                           documents.back().begin() + static_cast<std::ptrdiff_t>(n_quoted));
                source.reset();
                source.observe({.text = all, .n_new = static_cast<std::int64_t>(all.size())});
            }
            const auto n_text = all.size();
            Cursor cursor = source.root(all);
            ASSERT_EQ(cursor == kNowhere, std::ranges::none_of(documents, [&](const Tokens& d) {
                          return std::ranges::count(d, all.back()) > 0;
                      }));
            while (cursor != kNowhere && all.size() < n_text + 8) {
                const Expected expected = longest_match(documents, all);
                n_long += expected.length > 8 ? 1 : 0;
                expect_counts(source, cursor, static_cast<std::int64_t>(all.size()), expected);
                if (HasFailure()) return;
                all.push_back(changing.below(3) > 0 && !expected.counts.empty() ? expected.counts.begin()->first
                                                                                : changing.token());
                cursor = source.advance(cursor, all.back());
            }
            if (step % 4 == 0) {
                source.reset();
                source.observe({.text = changing.text(), .n_new = static_cast<std::int64_t>(changing.text().size())});
            }
        }
    }
    EXPECT_GT(n_long, 20U);
}

TEST(CorpusSource, BranchesOfOneCursorDoNotDisturbEachOther) {
    const TempFolder folder;
    ChangingText changing(4, 4);
    const Texts documents = random_documents(changing, 5, 60);
    CorpusSource source = open_source(build(folder, documents, 4), 4);
    changing.change(source);
    // All paths of three tokens, breadth first: parents are asked after their children were made.
    std::vector<std::pair<Tokens, Cursor>> level = {{changing.text(), source.root(changing.text())}};
    for (int depth = 0; depth < 4; ++depth) {
        std::vector<std::pair<Tokens, Cursor>> next;
        for (const auto& [path, cursor] : level)
            for (TokenId token = 0; token < 4; ++token) {
                Tokens longer = path;
                longer.push_back(token);
                next.emplace_back(longer, source.advance(cursor, token));
            }
        for (const auto& [path, cursor] : level)
            expect_counts(source, cursor, static_cast<std::int64_t>(path.size()), longest_match(documents, path));
        level = std::move(next);
    }
}

// The paths of the continuations and how often each stands in the documents, for matches of few places.
std::map<Tokens, int> trie_counts(const Texts& documents, std::span<const TokenId> match, std::size_t max_depth) {
    std::map<Tokens, int> counts;
    for (const Tokens& document : documents)
        for (std::size_t end = match.size(); end <= document.size(); ++end) {
            if (!std::ranges::equal(std::span(document).subspan(end - match.size(), match.size()), match)) continue;
            Tokens path;
            for (std::size_t i = end; i < document.size() && path.size() < max_depth; ++i) {
                path.push_back(document[i]);
                ++counts[path];
            }
        }
    return counts;
}

TEST(CorpusSource, ShapeIsTheTrieOfTheHighestCounts) {
    const TempFolder folder;
    for (std::uint32_t seed = 0; seed < 12; ++seed) {
        SCOPED_TRACE(seed);
        ChangingText changing(seed, 5);
        const Texts documents = random_documents(changing, 8, 80);
        CorpusSource source = open_source(build(folder, documents, 5), 5);
        for (int step = 0; step < 10; ++step) {
            changing.change(source);
            const Tokens& text = changing.text();
            const Expected match = longest_match(documents, text);
            const ShapeRequest request{
                .text = text,
                .budget = static_cast<std::int64_t>(step % 2 == 0 ? 100 : 1 + changing.below(30)),
                .max_depth = static_cast<std::int64_t>(step % 3 == 0 ? changing.below(4) : 50)};
            TokenTree tree;
            tree.reset(text.back());
            source.propose_shape(tree, request);
            expect_within(tree, request);
            if (match.length == 0) {
                EXPECT_EQ(tree.size(), 1);
                continue;
            }
            const auto max_depth = static_cast<std::size_t>(std::min<std::int64_t>(10, request.max_depth));
            const auto counts = trie_counts(documents, std::span(text).last(match.length), max_depth);
            std::vector<int> best;
            for (const auto& [path, count] : counts) best.push_back(count);
            std::ranges::sort(best, std::greater());
            best.resize(std::min({best.size(), std::size_t{64}, static_cast<std::size_t>(request.budget - 1)}));
            std::vector<int> chosen;
            std::vector<Tokens> paths(1);
            for (const TreeNode node : tree.draft_nodes()) {
                paths.push_back(paths[tree.parent(node).index]);
                paths.back().push_back(tree.token(node));
                ASSERT_TRUE(counts.contains(paths.back()));
                chosen.push_back(counts.at(paths.back()));
            }
            std::ranges::sort(chosen, std::greater());
            EXPECT_EQ(chosen, best);
        }
    }
}

TEST(CorpusSource, ShapeFollowsTheNoise) {
    const TempFolder folder;
    Texts documents;
    for (TokenId token = 2; token < 12; ++token) documents.push_back({0, 1, token});
    CorpusSource source = open_source(build(folder, documents, 12), 12);
    const Tokens text = {0, 1};
    source.observe({.text = text, .n_new = 2});
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        const PathNoise noise(seed);
        std::array<Proposal, 1> best;
        ASSERT_EQ(source.propose(source.root(text), 2, noise, best), 1U);
        TokenTree tree;
        tree.reset(1);
        source.propose_shape(tree, {.text = text, .budget = 2, .max_depth = 5, .noise = &noise});
        ASSERT_EQ(tree.size(), 2);
        EXPECT_EQ(tree.token(TreeNode(1)), best[0].token);
        for (TokenId token = 2; token < 12; ++token) EXPECT_GE(noise.gumbel(2, best[0].token), noise.gumbel(2, token));
    }
}

TEST(CorpusFile, EstimatesSharesWhereAMatchStandsAtManyPlaces) {
    const TempFolder folder;
    Tokens document;
    for (int i = 0; i < 1000; ++i) document.insert(document.end(), {0, static_cast<TokenId>(i % 4 == 0 ? 2 : 1)});
    const CorpusFile file(build(folder, {document}, 3), 3, kFingerprint);
    EXPECT_EQ(file.n_tokens(), 2001U);
    EXPECT_EQ(file.n_documents(), 1U);
    EXPECT_EQ(file.places(0).size(), 1000U);
    EXPECT_TRUE(file.places(3).empty());
    EXPECT_TRUE(file.places(-1).empty());
    std::array<CorpusFile::Follower, CorpusFile::kMaxPlaces> out;
    ASSERT_EQ(file.followers(file.places(0), 1, out), 2U);
    EXPECT_EQ(out[0].token, 1);
    EXPECT_NEAR(out[0].share, 0.75F, 0.02F);
    EXPECT_EQ(out[1].token, 2);
    EXPECT_NEAR(out[1].share, 0.25F, 0.02F);
    EXPECT_EQ(file.narrow(file.places(0), 1, 2).size(), 250U);
}

// Sections of a store that is right but for what a test changes.
struct Sections {
    std::uint32_t version = kCorpusVersion;
    std::uint64_t fingerprint = kFingerprint;
    std::uint64_t vocab = 3;
    std::vector<std::uint32_t> first_rank = {0, 2, 3, 4, 5};
    Tokens tokens = {0, 1, 0, 2, 3};
    std::vector<std::uint32_t> suffixes = {0, 2, 1, 3, 4};

    [[nodiscard]] std::filesystem::path write(const TempFolder& folder) const {
        std::array<TableSection, 1> sections;
        sections[0].name = std::string(kCorpusSection);
        TableWriter& fields = sections[0].fields;
        fields.u32(version);
        fields.u64(fingerprint);
        fields.u64(vocab);
        fields.u64(1);
        fields.u32s(first_rank);
        fields.i32s(tokens);
        fields.u32s(suffixes);
        std::filesystem::path path = folder.path() / "made.table";
        write_table_file(path, sections);
        return path;
    }
};

TEST(CorpusFile, RefusesWhatDoesNotFit) {
    const TempFolder folder;
    EXPECT_EQ(CorpusFile(Sections{}.write(folder), 3, kFingerprint).n_tokens(), 5U);
    const auto refused = [&folder](const Sections& sections) {
        return error_text<FormatError>([&] { CorpusFile(sections.write(folder), 3, kFingerprint); });
    };
    Sections damaged;
    damaged.version = 9;
    EXPECT_NE(refused(damaged).find("version 9"), std::string::npos);
    damaged = {};
    damaged.first_rank.back() = 6;
    EXPECT_NE(refused(damaged).find("does not fit"), std::string::npos);
    damaged = {};
    damaged.first_rank = {0, 4, 3, 4, 5};
    EXPECT_NE(refused(damaged).find("does not fit"), std::string::npos);
    damaged = {};
    damaged.first_rank.pop_back();
    EXPECT_NE(refused(damaged).find("does not fit"), std::string::npos);
    damaged = {};
    damaged.suffixes.pop_back();
    EXPECT_NE(refused(damaged).find("does not fit"), std::string::npos);

    const auto other_model = [&folder](std::int64_t vocab, std::uint64_t fingerprint) {
        return error_text<RequestError>([&] { CorpusFile(Sections{}.write(folder), vocab, fingerprint); });
    };
    EXPECT_NE(other_model(4, kFingerprint).find("another model's tokenizer"), std::string::npos);
    EXPECT_NE(other_model(3, 1).find("another model's tokenizer"), std::string::npos);

    std::array<TableSection, 1> other;
    other[0].name = "bigram";
    other[0].fields.u32(1);
    const auto path = folder.path() / "other.table";
    write_table_file(path, other);
    EXPECT_NE(error_text<FormatError>([&] { CorpusFile(path, 3, kFingerprint); }).find("holds none"),
              std::string::npos);
}

TEST(CorpusFile, ReadsNothingOutsideAStoreThatLies) {
    const TempFolder folder;
    std::mt19937 random(9);
    for (int round = 0; round < 30; ++round) {
        Sections lying;
        const std::size_t n = 1 + random() % 300;
        lying.first_rank = {0, static_cast<std::uint32_t>(n / 3), static_cast<std::uint32_t>(n / 2),
                            static_cast<std::uint32_t>(n), static_cast<std::uint32_t>(n)};
        lying.tokens.resize(n);
        for (TokenId& token : lying.tokens) token = static_cast<TokenId>(random() % 8) - 2;
        lying.suffixes.resize(n);
        for (auto& suffix : lying.suffixes)
            suffix = static_cast<std::uint32_t>(random() % 4 == 0 ? random() : random() % n);
        CorpusSource source = open_source(lying.write(folder), 3);
        ChangingText changing(static_cast<std::uint32_t>(round), 3);
        for (int step = 0; step < 40; ++step) {
            changing.change(source);
            Cursor cursor = source.root(changing.text());
            for (int depth = 0; depth < 6 && cursor != kNowhere; ++depth) {
                std::array<Proposal, 64> out;
                const std::size_t n_out = source.propose(cursor, 5, PathNoise(), out);
                expect_valid({out.data(), n_out}, source, 5, PathNoise());
                for (std::size_t i = 0; i < n_out; ++i) EXPECT_TRUE(out[i].token >= 0 && out[i].token < 3);
                cursor = source.advance(cursor, changing.token());
            }
            TokenTree tree;
            tree.reset(changing.text().back());
            const ShapeRequest request{.text = changing.text(), .budget = 40, .max_depth = 12};
            source.propose_shape(tree, request);
            expect_within(tree, request);
        }
    }
}

TEST(CorpusBuilder, WantsText) {
    const TempFolder folder;
    Documents documents(3);
    documents.add({});
    EXPECT_EQ(documents.n_documents(), 0U);
    const auto path = folder.path() / "none.table";
    EXPECT_NE(error_text<RequestError>([&] { write_corpus(documents, kFingerprint, path, {}); }).find("no text"),
              std::string::npos);
}

TEST(CorpusSource, FindsItselfInABook) {
    const std::filesystem::path book = SLIPSTREAM_SOURCE_DIR "/../shared/data/books/moby-dick.txt";
    if (!std::filesystem::exists(book)) GTEST_SKIP() << book << " is not there";
    std::ifstream file(book, std::ios::binary);
    const std::string content{std::istreambuf_iterator<char>(file), {}};
    const auto model = ModelFiles::open(SLIPSTREAM_SOURCE_DIR "/tools/demo_model/target");
    const auto tokenizer = make_tokenizer(model->tokenizer_source());
    const Tokens all = tokenizer->encode(std::string_view(content).substr(0, 300000), SpecialTokens::AsText);
    const Tokens known(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() * 3 / 4));
    const TempFolder folder;
    const std::int64_t vocab = tokenizer->vocab_size();
    CorpusSource source = open_source(build(folder, {known}, vocab), vocab);

    // A passage that is known: after two tokens or a few more the store goes on with it. Places are compared by count.
    for (std::size_t begin = 100; begin + 60 < known.size(); begin += known.size() / 20) {
        Tokens text(known.begin() + static_cast<std::ptrdiff_t>(begin),
                    known.begin() + static_cast<std::ptrdiff_t>(begin + 40));
        source.reset();
        source.observe({.text = text, .n_new = static_cast<std::int64_t>(text.size())});
        std::array<Proposal, 64> out;
        const std::size_t n = source.propose(source.root(text), 40, PathNoise(), out);
        ASSERT_GE(n, 1U);
        EXPECT_NE(std::ranges::find(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(n), known[begin + 40],
                                    &Proposal::token),
                  out.begin() + static_cast<std::ptrdiff_t>(n));
        EXPECT_EQ(out[0].bin / 3, 5);  // 16 tokens matched
    }
    // The rest of the book is not known: guesses are what counting says.
    for (std::size_t end = known.size() + 500; end < all.size(); end += all.size() / 40) {
        const Tokens text(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(end));
        source.reset();
        source.observe({.text = text, .n_new = static_cast<std::int64_t>(text.size())});
        const Expected expected = longest_match({known}, text);
        int n_places = 0;
        for (const auto& [token, count] : expected.counts) n_places += count;
        if (n_places <= 64) expect_counts(source, source.root(text), static_cast<std::int64_t>(end), expected);
    }
}

}  // namespace
}  // namespace slipstream::draft
