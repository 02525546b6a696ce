// Cacheback among other sources: what it learns and when, its cursors, noise, and what it keeps between runs.
#include "draft/sources/cacheback.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "draft/tables/frozen_table_builder.h"
#include "tests/support/error_text.h"
#include "tests/support/temp_folder.h"

namespace slipstream::draft {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Tokens = std::vector<TokenId>;

constexpr std::int64_t kVocab = 100;
constexpr std::int64_t kAnyDepth = 1000;

Tokens random_text(std::size_t n, unsigned n_ids, unsigned seed) {
    std::mt19937 random(seed);
    Tokens text(n);
    for (TokenId& id : text) id = static_cast<TokenId>(std::min(random() % n_ids, random() % n_ids));
    return text;
}

void observe(Cacheback& source, std::span<const TokenId> text, std::size_t n_new) {
    source.observe({.text = text, .n_new = static_cast<std::int64_t>(n_new)});
}

std::vector<std::byte> saved(const Cacheback& source) {
    TableWriter writer;
    source.save(writer);
    return {writer.bytes().begin(), writer.bytes().end()};
}

std::vector<Proposal> proposals(Cacheback& source, Cursor cursor, std::size_t n = 64, const PathNoise& noise = {},
                                std::int64_t position = 0) {
    std::vector<Proposal> out(n);
    out.resize(source.propose(cursor, position, noise, out));
    return out;
}

Tokens tokens_of(const std::vector<Proposal>& proposals) {
    Tokens tokens;
    for (const Proposal& proposal : proposals) tokens.push_back(proposal.token);
    return tokens;
}

TokenTree own_tree(Cacheback& source, std::span<const TokenId> text, std::int64_t budget,
                   std::int64_t max_depth = kAnyDepth, const PathNoise& noise = {}) {
    TokenTree tree;
    tree.reset(text.back());
    source.propose_shape(tree, {.text = text, .budget = budget, .max_depth = max_depth, .noise = &noise});
    return tree;
}

FrozenTable frozen_table(const Tokens& corpus, const std::filesystem::path& path,
                         const CachebackOptions& options = {}) {
    const FrozenTableKey key{.vocab = kVocab, .tokenizer_fingerprint = 1};
    Documents documents(kVocab);
    documents.add(corpus);
    const BuiltFrozenTable table = build_frozen_table(options, documents, key.tokenizer_fingerprint, {});
    write_table_file(path, {&table.section, 1});
    return FrozenTable::open(path, key);
}

TEST(Cacheback, LearnsTheSameHoweverTheTextIsCutIntoPasses) {
    const Tokens text = random_text(300, 12, 1);
    Cacheback whole({}, kVocab);
    observe(whole, text, text.size());
    std::mt19937 random(2);
    Cacheback pieces({}, kVocab);
    for (std::size_t n = 0; n < text.size();) {
        const std::size_t step = std::min<std::size_t>(1 + random() % 6, text.size() - n);
        n += step;
        observe(pieces, std::span(text).first(n), step);
    }
    EXPECT_EQ(saved(pieces), saved(whole));
    EXPECT_GT(whole.dynamic_table().n_followers(), 100U);
    // As many pairs as windows: all different here.
    Tokens counting(50);
    for (TokenId id = 0; id < 50; ++id) counting[id] = id;
    Cacheback source({}, kVocab);
    observe(source, counting, counting.size());
    EXPECT_EQ(source.dynamic_table().n_followers(), 50U - 4 + 1);
}

TEST(Cacheback, TheFirstTextIsLearntWholeAndACutTeachesNothing) {
    const Tokens text = random_text(60, 9, 3);
    Cacheback first({}, kVocab);
    observe(first, text, 1);
    Cacheback whole({}, kVocab);
    observe(whole, text, text.size());
    EXPECT_EQ(saved(first), saved(whole));
    observe(whole, std::span(text).first(20), 0);
    EXPECT_EQ(saved(first), saved(whole));
    // Behind the cut another text goes on; its windows reach back over the border.
    Tokens other(text.begin(), text.begin() + 20);
    other.insert(other.end(), {90, 91});
    observe(whole, other, 2);
    const LruTable& table = whole.dynamic_table();
    const auto leader = table.find(std::span(other).subspan(18, 1));
    ASSERT_NE(leader, LruTable::kNone);
    EXPECT_THAT(table.follower(table.first_follower(leader)), ElementsAre(other[19], 90, 91));
    whole.reset();
    EXPECT_EQ(whole.dynamic_table().n_leaders(), 0U);
    observe(whole, text, 1);
    EXPECT_EQ(saved(first), saved(whole));
}

TEST(Cacheback, ListsFirstTokensMostRecentFirstAndWhatComesNextInside) {
    Cacheback source({}, kVocab);
    //             1 is followed by 2 3 4, then by 5 3 6, then by 2 7 8
    const Tokens text{1, 2, 3, 4, 1, 5, 3, 6, 1, 2, 7, 8, 9, 1};
    observe(source, text, text.size());
    const Cursor root = source.root(text);
    const auto at_root = proposals(source, root);
    EXPECT_THAT(tokens_of(at_root), ElementsAre(2, 5));
    EXPECT_NEAR(at_root[0].probability, (1.0 + 1.0 / 3) / (1.0 + 1.0 / 2 + 1.0 / 3 + 3), 1e-5);
    EXPECT_GT(at_root[1].probability, 0.0F);
    // Behind 1 2: inside the followers 2 7 8 and 2 3 4 of 1; 2's own followers say the same.
    const Cursor behind = source.advance(root, 2);
    EXPECT_THAT(tokens_of(proposals(source, behind)), ElementsAre(7, 3));
    EXPECT_LT(proposals(source, behind)[0].bin, source.n_bins() / 4);  // a dynamic list, inside
    EXPECT_THAT(tokens_of(proposals(source, source.advance(behind, 7))), ElementsAre(8));
    EXPECT_THAT(tokens_of(proposals(source, source.advance(behind, 3))), ElementsAre(4, 6));
    // A token that no follower has, and then one that is known.
    const Cursor lost = source.advance(behind, 50);
    EXPECT_THAT(proposals(source, lost), IsEmpty());
    EXPECT_THAT(tokens_of(proposals(source, source.advance(lost, 1))), ElementsAre(2, 5));
    EXPECT_EQ(source.root(text), root);
}

TEST(Cacheback, TheRootMayStandInsideAFollower) {
    Cacheback source({}, kVocab);
    // 3 was followed by 10 and 11 lately, but by 4 where 1 2 came before.
    const Tokens text{1, 2, 3, 4, 9, 3, 11, 9, 3, 10, 9, 1, 2, 3};
    observe(source, text, text.size());
    const auto at_root = proposals(source, source.root(text));
    EXPECT_EQ(at_root.front().token, 4);
    EXPECT_THAT(tokens_of(at_root), testing::UnorderedElementsAre(4, 10, 11));
}

TEST(Cacheback, TheFrozenTableJoinsBehindTheDynamicOne) {
    const TempFolder folder;
    Cacheback source({}, kVocab, frozen_table({1, 30, 31, 32, 1, 30, 31, 33}, folder.path() / "t"));
    const Tokens text{1, 2, 3, 4, 1};
    observe(source, text, text.size());
    const Cursor root = source.root(text);
    const auto at_root = proposals(source, root);
    EXPECT_THAT(tokens_of(at_root), testing::UnorderedElementsAre(2, 30));
    for (const Proposal& proposal : at_root) EXPECT_EQ(proposal.bin >= source.n_bins() / 2, proposal.token == 30);
    EXPECT_THAT(tokens_of(proposals(source, source.advance(source.advance(root, 30), 31))),
                testing::UnorderedElementsAre(32, 33));
    source.reset();  // the frozen one stays
    observe(source, text, 1);
    EXPECT_THAT(tokens_of(proposals(source, source.root(text))), testing::UnorderedElementsAre(2, 30));
}

// Random texts, settings and paths: what every source promises.
TEST(Cacheback, ProposalsAreDistinctOrderedAndInRange) {
    const TempFolder folder;
    const Tokens corpus = random_text(400, 20, 5);
    for (const std::int64_t ll : {1, 2, 3}) {
        for (const std::int64_t fl : {1, 3}) {
            const CachebackOptions options{.leader_tokens = ll, .follower_tokens = fl, .max_leaders = 40};
            Cacheback source(options, kVocab, frozen_table(corpus, folder.path() / "t", {.leader_tokens = 2}));
            const Tokens text = random_text(500, 14, 6);
            std::mt19937 random(8);
            for (std::size_t n = 1; n <= text.size(); n += 1 + random() % 9) {
                observe(source, std::span(text).first(n), 1);
                const PathNoise noise = random() % 2 == 0 ? PathNoise() : PathNoise(9);
                Cursor cursor = source.root(std::span(text).first(n));
                for (int depth = 0; depth < 6; ++depth) {
                    const auto position = static_cast<std::int64_t>(n) + depth;
                    const auto found = proposals(source, cursor, 1 + random() % 20, noise, position);
                    std::set<TokenId> distinct;
                    float last = 1e30F;
                    for (const Proposal& proposal : found) {
                        ASSERT_TRUE(proposal.token >= 0 && proposal.token < kVocab);
                        ASSERT_TRUE(proposal.probability > 0.0F && proposal.probability < 1.0F);
                        ASSERT_LT(proposal.bin, source.n_bins());
                        ASSERT_TRUE(distinct.insert(proposal.token).second);
                        const float rank = noise.rank(proposal.probability, position, proposal.token);
                        ASSERT_LE(rank, last + 1e-6F);
                        last = rank;
                    }
                    const bool follows = !found.empty() && random() % 4 != 0;
                    cursor = source.advance(cursor, follows ? found[random() % found.size()].token
                                                            : static_cast<TokenId>(random() % kVocab));
                }
            }
        }
    }
}

TEST(Cacheback, ItsTreeKeepsBudgetDepthAndReserve) {
    const Tokens text = random_text(2000, 60, 4);
    Cacheback source({}, kVocab);
    observe(source, text, text.size());
    for (const std::int64_t budget : {1, 2, 3, 7, 20, 96, 200}) {
        for (const std::int64_t max_depth : {0, 1, 2, 5, 1000}) {
            for (const PathNoise& noise : {PathNoise(), PathNoise(4)}) {
                const TokenTree tree = own_tree(source, text, budget, max_depth, noise);
                const auto most = std::min<std::int64_t>(budget, 96);
                EXPECT_LE(tree.size(), most);
                if (max_depth > 5) {
                    EXPECT_EQ(tree.size(), most);
                }
                std::int32_t n_first = 0;
                for (const TreeNode node : tree.draft_nodes()) {
                    EXPECT_LE(tree.depth(node), max_depth);
                    if (tree.depth(node) <= 3) ++n_first;
                }
                if (budget == 96 && max_depth == 1000) {
                    EXPECT_EQ(n_first, 96 - 1 - 16);
                }
            }
        }
    }
}

TEST(Cacheback, NoiseOrdersTheBranches) {
    // 1 is followed by each of 20 tokens once.
    Tokens text;
    for (TokenId id = 10; id < 30; ++id) text.insert(text.end(), {1, id, 2, 3});
    text.push_back(1);
    Cacheback source({}, kVocab);
    observe(source, text, text.size());
    const auto position = static_cast<std::int64_t>(text.size());
    int n_led_by_noise = 0;
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
        const PathNoise noise(seed);
        const TokenTree tree = own_tree(source, text, 4, kAnyDepth, noise);
        ASSERT_EQ(tree.size(), 4);
        EXPECT_EQ(tree.depth(TreeNode(3)), 3);
        // Best by log(weight of its age) + gumbel.
        TokenId best = 0;
        double best_rank = -1e30;
        for (TokenId id = 10; id < 30; ++id) {
            const double rank = -std::log(30.0 - id) + static_cast<double>(noise.gumbel(position, id));
            if (rank > best_rank) {
                best_rank = rank;
                best = id;
            }
        }
        EXPECT_EQ(tree.token(TreeNode(1)), best);
        if (best != 29) ++n_led_by_noise;
    }
    EXPECT_GT(n_led_by_noise, 10);
    EXPECT_EQ(own_tree(source, text, 4).token(TreeNode(1)), 29);  // most recent first without noise
}

TEST(Cacheback, NoiseOrdersBranchesOfOneFirstTokenWhereTheyPart) {
    Tokens text;
    for (TokenId id = 10; id < 30; ++id) text.insert(text.end(), {1, 2, id, 3});
    text.push_back(1);
    Cacheback source({}, kVocab);
    observe(source, text, text.size());
    const auto position = static_cast<std::int64_t>(text.size());
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        const PathNoise noise(seed);
        const TokenTree tree = own_tree(source, text, 3, kAnyDepth, noise);
        ASSERT_EQ(tree.token(TreeNode(1)), 2);
        TokenId best = 10;
        for (TokenId id = 10; id < 30; ++id)
            if (noise.gumbel(position + 1, id) > noise.gumbel(position + 1, best)) best = id;
        EXPECT_EQ(tree.token(TreeNode(2)), best);
    }
}

TEST(Cacheback, ComesBackAsItWasSaved) {
    const Tokens text = random_text(3000, 60, 11);
    for (const CachebackOptions& options :
         {CachebackOptions{}, CachebackOptions{.leader_tokens = 2, .max_leaders = 100, .max_followers = 3}}) {
        Cacheback source(options, kVocab);
        observe(source, text, text.size());
        const std::vector<std::byte> bytes = saved(source);
        Cacheback other(options, kVocab);
        observe(other, random_text(100, 50, 12), 100);
        TableReader reader(bytes, "t");
        other.load(reader);
        EXPECT_EQ(saved(other), bytes);
        EXPECT_EQ(other.dynamic_table().n_followers(), source.dynamic_table().n_followers());
        const TokenTree tree = own_tree(source, text, 96);
        const TokenTree again = own_tree(other, text, 96);
        EXPECT_TRUE(std::ranges::equal(tree.tokens(), again.tokens()));
        EXPECT_TRUE(std::ranges::equal(tree.parents(), again.parents()));
        // What comes next is learnt as by one that was never away.
        const Tokens more = random_text(200, 60, 13);
        observe(source, {}, 0);
        observe(source, more, more.size());
        observe(other, more, more.size());
        EXPECT_EQ(saved(other), saved(source));
    }
    TableWriter nothing;
    Cacheback({}, kVocab).save(nothing);
    EXPECT_TRUE(nothing.empty());
}

TEST(Cacheback, WhatIsSavedIsBoundedAndTheMostRecent) {
    constexpr std::int64_t kManyIds = 1 << 20;
    Cacheback source({}, kManyIds);
    std::mt19937 random(1);
    Tokens text(900'000);
    for (TokenId& id : text) id = static_cast<TokenId>(random() % 5000);
    observe(source, text, text.size());
    const std::vector<std::byte> bytes = saved(source);
    EXPECT_LE(bytes.size(), Cacheback::kMaxSavedBytes + 1024);
    EXPECT_GT(bytes.size(), Cacheback::kMaxSavedBytes / 3);
    Cacheback other({}, kManyIds);
    TableReader reader(bytes, "t");
    other.load(reader);
    EXPECT_EQ(other.dynamic_table().n_leaders(), 5000U);
    const auto& table = other.dynamic_table();
    EXPECT_THAT(table.follower(table.first_follower(table.first_leader())),
                testing::ElementsAreArray(std::span(text).last(3)));
    // So many leaders that one follower each is too many.
    for (TokenId& id : text) id = static_cast<TokenId>(random() % kManyIds);
    source.reset();
    observe(source, text, text.size());
    EXPECT_LE(saved(source).size(), Cacheback::kMaxSavedBytes + 1024);
}

TEST(Cacheback, RefusesADamagedTableAndStaysAsItWas) {
    const Tokens text = random_text(200, 20, 2);
    Cacheback source({}, kVocab);
    observe(source, text, text.size());
    const std::vector<std::byte> good = saved(source);
    const auto refusal = [&](auto&& change) {
        TableWriter writer;
        change(writer);
        return error_text<FormatError>([&] {
            TableReader reader(writer.bytes(), "t");
            source.load(reader);
        });
    };
    const auto section = [&](std::uint32_t ll, const Tokens& leaders, const std::vector<std::uint32_t>& counts,
                             const Tokens& followers) {
        return refusal([&](TableWriter& writer) {
            writer.u32(ll);
            writer.u32(3);
            writer.i32s(leaders);
            writer.u32s(counts);
            writer.i32s(followers);
        });
    };
    EXPECT_THAT(section(1, {1}, {2}, {1, 2, 3}), HasSubstr("damaged"));
    EXPECT_THAT(section(1, {1, 2}, {1}, {1, 2, 3}), HasSubstr("damaged"));
    EXPECT_THAT(section(1, {100}, {1}, {1, 2, 3}), HasSubstr("damaged"));
    EXPECT_THAT(section(1, {1}, {1}, {1, -1, 3}), HasSubstr("damaged"));
    EXPECT_THAT(section(1, {1, 1}, {0xffffffff, 0xffffffff}, {1, 2, 3}), HasSubstr("damaged"));
    EXPECT_NE(refusal([](TableWriter& writer) { writer.u32(1); }), "nothing thrown");
    EXPECT_EQ(section(2, {1, 2}, {1}, {1, 2, 3}), "nothing thrown");  // of other settings: passed over
    EXPECT_EQ(saved(source), good);
    EXPECT_EQ(section(1, {1}, {1}, {1, 2, 3}), "nothing thrown");
    EXPECT_NE(saved(source), good);
}

TEST(Cacheback, RefusesSettingsThatMakeNoSense) {
    EXPECT_THAT(error_text<RequestError>([] { Cacheback({.follower_tokens = 0}, kVocab); }), HasSubstr("fl=0"));
    EXPECT_THAT(error_text<RequestError>([] { Cacheback({.max_leaders = -1}, kVocab); }), HasSubstr("lc=-1"));
    EXPECT_THAT(error_text<RequestError>([] { Cacheback({.tree_tokens = 16}, kVocab); }), HasSubstr("crt=16"));
}

TEST(Cacheback, ShortTextsAreNoTrouble) {
    Cacheback source({.leader_tokens = 4, .follower_tokens = 5}, kVocab);
    for (std::size_t n = 1; n < 12; ++n) {
        const Tokens text = random_text(n, 2, 1);
        source.reset();
        observe(source, text, n);
        EXPECT_EQ(source.dynamic_table().n_followers() > 0, n >= 9);
        const Cursor root = source.root(text);
        static_cast<void>(proposals(source, source.advance(root, 1)));
        EXPECT_GE(own_tree(source, text, 96).size(), 1);
    }
}

}  // namespace
}  // namespace slipstream::draft
