// Cacheback's tables and trees, pass by pass, against a plain reference over recorded texts
// (tests/golden/cacheback/make.py).
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "draft/sources/cacheback.h"
#include "draft/tables/frozen_table_builder.h"
#include "tests/support/temp_folder.h"

namespace slipstream::draft {
namespace {

using Tokens = std::vector<TokenId>;

constexpr std::int64_t kVocab = 4096;
constexpr std::int64_t kAnyDepth = 1000;

std::string golden_path(const std::string& name) {
    return SLIPSTREAM_GOLDEN_DIR "/cacheback/" + name + ".txt";
}

struct Recorded {
    Tokens corpus;
    struct Exchange {
        Tokens prompt, answer;
    };
    std::vector<Exchange> exchanges;
};

Recorded read_recorded() {
    Recorded recorded;
    std::ifstream file(golden_path("recorded"));
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string kind;
        words >> kind;
        Tokens ids;
        for (TokenId id = 0; words >> id;) ids.push_back(id);
        if (kind == "corpus") {
            recorded.corpus = ids;
        } else if (kind == "prompt") {
            recorded.exchanges.push_back({ids, {}});
        } else {
            recorded.exchanges.back().answer = ids;
        }
    }
    return recorded;
}

std::optional<FrozenTable> frozen_table(const CachebackOptions& options, const Tokens& corpus,
                                        const std::filesystem::path& path) {
    const FrozenTableKey key{.vocab = kVocab, .tokenizer_fingerprint = 1};
    Documents documents(kVocab);
    documents.add(corpus);
    const BuiltFrozenTable table = build_frozen_table(options, documents, key.tokenizer_fingerprint, {});
    write_table_file(path, {&table.section, 1});
    return FrozenTable::open(path, key);
}

// "COMMITTED token:parent ..." of one pass, as the reference writes it; commits to the text.
std::string pass(Cacheback& source, Tokens& text, std::span<const TokenId> rest, std::int64_t budget) {
    TokenTree tree;
    tree.reset(text.back());
    const PathNoise no_noise;
    source.propose_shape(tree, {.text = text, .budget = budget, .max_depth = kAnyDepth, .noise = &no_noise});
    std::size_t n = 0;
    for (TreeNode node = kTreeRoot; n < rest.size(); ++n) {
        const auto child = tree.child(node, rest[n]);
        if (!child) break;
        node = *child;
    }
    n = std::min(n + 1, rest.size());
    text.insert(text.end(), rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(n));
    source.observe({.text = text, .n_new = static_cast<std::int64_t>(n), .tree = &tree});
    std::string line = fmt::format("{}", n);
    for (const TreeNode node : tree.draft_nodes())
        line += fmt::format(" {}:{}", tree.token(node), tree.parent(node).index);
    return line;
}

struct Case {
    std::string name;
    CachebackOptions options;
    bool dual;
    std::int64_t budget;
};

void PrintTo(const Case& shown, std::ostream* out) {
    *out << shown.name;
}

class CachebackGolden : public testing::TestWithParam<Case> {};

TEST_P(CachebackGolden, AgreesPassByPass) {
    const auto& [name, options, dual, budget] = GetParam();
    const Recorded recorded = read_recorded();
    ASSERT_EQ(recorded.exchanges.size(), 2U);
    const TempFolder folder;
    Cacheback source(options, kVocab,
                     dual ? frozen_table(options, recorded.corpus, folder.path() / "t") : std::nullopt);
    std::ifstream expected(golden_path(name));
    std::string line;
    int n_passes = 0;
    for (const auto& [prompt, answer] : recorded.exchanges) {  // the table is kept from one to the next
        source.observe({});
        Tokens text = prompt;
        source.observe({.text = text, .n_new = static_cast<std::int64_t>(text.size())});
        while (text.size() < prompt.size() + answer.size()) {
            ASSERT_TRUE(std::getline(expected, line));
            ASSERT_EQ(pass(source, text, std::span(answer).subspan(text.size() - prompt.size()), budget), line)
                << "pass " << n_passes;
            ++n_passes;
        }
    }
    EXPECT_FALSE(std::getline(expected, line));
    EXPECT_GT(n_passes, 100);
}

CachebackOptions settings(std::int64_t ll, std::int64_t fl, std::int64_t lc, std::int64_t fc, std::int64_t tdl,
                          std::int64_t crt) {
    return {.leader_tokens = ll,
            .follower_tokens = fl,
            .max_leaders = lc,
            .max_followers = fc,
            .tree_tokens = tdl,
            .reserved_tokens = crt};
}

INSTANTIATE_TEST_SUITE_P(Settings, CachebackGolden,
                         testing::Values(Case{"paper", {}, false, 96}, Case{"dual", {}, true, 40},
                                         Case{"evicting", settings(1, 2, 24, 3, 24, 6), false, 24},
                                         Case{"pairs", settings(2, 3, 40, 2, 30, 8), true, 30}));

}  // namespace
}  // namespace slipstream::draft
