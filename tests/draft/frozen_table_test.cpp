// Frozen tables: counted exactly, read back, and refused where they are not what they claim to be.
#include "draft/tables/frozen_table.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "draft/tables/frozen_table_builder.h"
#include "tests/support/error_text.h"
#include "tests/support/temp_folder.h"

namespace slipstream::draft {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Tokens = std::vector<TokenId>;
using Listing = std::map<Tokens, std::vector<Tokens>>;

constexpr FrozenTableKey kKey{.vocab = 5000, .tokenizer_fingerprint = 77};

Tokens copy(std::span<const TokenId> tokens) {
    return {tokens.begin(), tokens.end()};
}

Documents documents_of(const std::vector<Tokens>& texts) {
    Documents documents(kKey.vocab);
    for (const Tokens& text : texts) documents.add(text);
    return documents;
}

class FrozenTableTest : public testing::Test {
protected:
    FrozenTable write(TableSection section) {
        const auto path = folder_.path() / "frozen.table";
        std::vector<TableSection> sections;
        sections.push_back(std::move(section));
        write_table_file(path, sections);
        return FrozenTable::open(path, kKey);
    }
    FrozenTable build(const CachebackOptions& options, const std::vector<Tokens>& texts) {
        BuiltFrozenTable built = build_frozen_table(options, documents_of(texts), kKey.tokenizer_fingerprint, {});
        FrozenTable table = write(std::move(built.section));
        EXPECT_EQ(built.n_leaders, table.n_leaders());
        EXPECT_EQ(built.n_followers, table.n_followers());
        return table;
    }
    static Listing listing(const FrozenTable& table) {
        Listing all;
        for (FrozenTable::Slot leader = 0; leader < table.n_leaders(); ++leader) {
            EXPECT_EQ(table.find(table.leader(leader)), leader);
            std::vector<Tokens>& followers = all[copy(table.leader(leader))];
            for (auto at = table.first_follower(leader); at != FrozenTable::kNone; at = table.next_follower(at))
                followers.push_back(copy(table.follower(at)));
        }
        return all;
    }

    TempFolder folder_;
};

// Counts everything, sorts everything.
Listing plain_listing(const CachebackOptions& options, const std::vector<Tokens>& documents) {
    std::map<Tokens, std::map<Tokens, int>> counts;
    const auto ll = options.leader_tokens;
    const auto length = ll + options.follower_tokens;
    for (const Tokens& document : documents)
        for (auto at = document.begin(); document.end() - at >= length; ++at)
            ++counts[Tokens(at, at + ll)][Tokens(at + ll, at + length)];
    const auto best = [](const auto& entries, std::int64_t n, const auto& count_of) {
        std::vector<std::pair<std::int64_t, Tokens>> order;
        for (const auto& [tokens, value] : entries) order.emplace_back(-count_of(value), tokens);
        std::ranges::sort(order);
        order.resize(std::min(order.size(), static_cast<std::size_t>(n)));
        return order;
    };
    const auto sum = [](const std::map<Tokens, int>& followers) {
        std::int64_t total = 0;
        for (const auto& [tokens, count] : followers) total += count;
        return total;
    };
    Listing all;
    for (const auto& [negative, leader] : best(counts, options.max_leaders, sum))
        for (const auto& [less, follower] :
             best(counts[leader], options.max_followers, [](int count) { return std::int64_t{count}; }))
            all[leader].push_back(follower);
    return all;
}

TEST_F(FrozenTableTest, HoldsTheMostFrequent) {
    std::mt19937 random(3);
    std::vector<Tokens> documents(5);
    for (Tokens& document : documents)
        for (std::size_t n = random() % 400; n > 0; --n)
            document.push_back(static_cast<TokenId>(std::min(random() % 9, random() % 9)));
    documents.push_back({});
    documents.push_back({4999});
    const auto options = [](std::int64_t ll, std::int64_t fl, std::int64_t lc, std::int64_t fc) {
        return CachebackOptions{.leader_tokens = ll, .follower_tokens = fl, .max_leaders = lc, .max_followers = fc};
    };
    for (const CachebackOptions& settings :
         {options(1, 3, 1 << 20, 128), options(1, 1, 4, 3), options(2, 2, 20, 2), options(3, 1, 5, 100)}) {
        const Listing expected = plain_listing(settings, documents);
        ASSERT_FALSE(expected.empty());
        EXPECT_EQ(listing(build(settings, documents)), expected);
        std::vector<Tokens> other_order = documents;
        std::ranges::reverse(other_order);
        EXPECT_EQ(listing(build(settings, other_order)), expected);
    }
}

TEST_F(FrozenTableTest, FindsNothingElse) {
    const FrozenTable table = build({.leader_tokens = 2, .follower_tokens = 1}, {{5, 6, 7, 5, 8, 9}});
    EXPECT_NE(table.find(Tokens{5, 6}), FrozenTable::kNone);
    for (const Tokens& absent :
         {Tokens{5, 7}, Tokens{5, 9}, Tokens{0, 0}, Tokens{8, 9}, Tokens{4999, 1}, Tokens{-1, 5}})
        EXPECT_EQ(table.find(absent), FrozenTable::kNone) << absent[0] << " " << absent[1];
}

TEST_F(FrozenTableTest, AgreesWithTheReference) {
    std::ifstream recorded(SLIPSTREAM_GOLDEN_DIR "/cacheback/recorded.txt");
    std::string line;
    Tokens corpus;
    while (corpus.empty() && std::getline(recorded, line)) {
        std::istringstream words(line);
        std::string kind;
        words >> kind;
        for (TokenId id = 0; kind == "corpus" && words >> id;) corpus.push_back(id);
    }
    ASSERT_FALSE(corpus.empty());
    const FrozenTable table =
        build({.leader_tokens = 2, .follower_tokens = 2, .max_leaders = 60, .max_followers = 2}, {corpus});
    std::string text;
    for (const auto& [leader, followers] : listing(table)) {
        std::vector<std::string> shown;
        for (const Tokens& follower : followers) shown.push_back(fmt::format("{}", fmt::join(follower, " ")));
        text += fmt::format("{} > {}\n", fmt::join(leader, " "), fmt::join(shown, " | "));
    }
    std::ostringstream expected;
    expected << std::ifstream(SLIPSTREAM_GOLDEN_DIR "/cacheback/frozen.txt").rdbuf();
    EXPECT_EQ(text, expected.str());
}

TEST_F(FrozenTableTest, BuildingIsToldAndCanBeGivenUp) {
    const Documents documents = documents_of({Tokens(std::size_t{1} << 18, 3)});
    std::vector<double> shares;
    static_cast<void>(
        build_frozen_table({}, documents, 1, [&](double done, double all) { shares.push_back(done / all); }));
    EXPECT_TRUE(std::ranges::is_sorted(shares));
    EXPECT_GE(shares.size(), 4U);
    EXPECT_EQ(shares.back(), 1.0);
    const auto give_up = [](double, double) { throw IoError("given up"); };
    EXPECT_THAT(error_text<IoError>([&] { static_cast<void>(build_frozen_table({}, documents, 1, give_up)); }),
                "given up");
}

TEST_F(FrozenTableTest, RefusesWhatCannotBe) {
    const auto refusal = [](const CachebackOptions& options) {
        const Documents documents = documents_of({{1, 2, 3}});
        return error_text<RequestError>([&] { static_cast<void>(build_frozen_table(options, documents, 1, {})); });
    };
    EXPECT_THAT(refusal({.leader_tokens = 0}), HasSubstr("ll=0"));
    EXPECT_THAT(refusal({}), HasSubstr("4 tokens"));
}

// A section whose fields may each be wrong.
struct Fields {
    std::uint32_t leader_tokens = 1, follower_tokens = 2;
    std::uint64_t vocab = 5000, fingerprint = 77;
    Tokens leaders{3, 8};
    std::vector<std::uint32_t> first{0, 2, 3};
    Tokens followers{1, 2, 3, 4, 5, 6};
};

TableSection section_of(const Fields& fields) {
    TableSection section{.name = std::string(kFrozenTableSection), .fields = {}};
    section.fields.u32(fields.leader_tokens);
    section.fields.u32(fields.follower_tokens);
    section.fields.u64(fields.vocab);
    section.fields.u64(fields.fingerprint);
    section.fields.i32s(fields.leaders);
    section.fields.u32s(fields.first);
    section.fields.i32s(fields.followers);
    return section;
}

TEST_F(FrozenTableTest, ChecksEveryFieldOfAForgedFile) {
    EXPECT_THAT(listing(write(section_of({}))), ElementsAre(std::pair(Tokens{3}, std::vector<Tokens>{{1, 2}, {3, 4}}),
                                                            std::pair(Tokens{8}, std::vector<Tokens>{{5, 6}})));
    const std::vector<Fields> forged{
        {.leader_tokens = 4000000000U, .leaders = {}, .first = {0}, .followers = {}},
        {.leaders = {}, .first = {0}, .followers = {}},
        {.leader_tokens = 20, .leaders = Tokens(20, 1), .first = {0, 3}},
        {.follower_tokens = 66, .leaders = {3}, .first = {0, 1}, .followers = Tokens(66, 1)},
        {.leader_tokens = 0},
        {.follower_tokens = 0},
        {.leader_tokens = 2},
        {.follower_tokens = 4},
        {.leaders = {8, 3}},
        {.leaders = {3, 3}},
        {.leaders = {3, 5000}},
        {.leaders = {-1, 3}},
        {.leaders = {3}},
        {.first = {}},
        {.first = {0}},
        {.first = {0, 3, 2}},
        {.first = {1, 2, 3}},
        {.first = {0, 0, 3}},
        {.first = {0, 2, 2}},
        {.first = {0, 4, 3}},
        {.first = {0, 4000000000U, 3}},
        {.followers = {1, 2, 3, 4, 5}},
        {.followers = {1, 2, 3, 4, 5, 5000}},
        {.followers = {1, 2, 3, 4, 5, -2}},
        {.vocab = 6},
    };
    for (std::size_t i = 0; i < forged.size(); ++i)
        EXPECT_THAT(error_text<FormatError>([&] { write(section_of(forged[i])); }), HasSubstr("damaged")) << i;
    EXPECT_THAT(error_text<RequestError>([&] { write(section_of({.fingerprint = 78})); }),
                HasSubstr("another tokenizer"));
    EXPECT_THAT(error_text<RequestError>([&] { write(section_of({.vocab = 5001})); }), HasSubstr("5001 ids"));
    EXPECT_THAT(error_text<FormatError>([&] { write({.name = "other", .fields = {}}); }),
                HasSubstr("not a frozen Cacheback table"));
}

}  // namespace
}  // namespace slipstream::draft
