// Tables made out of a model, against passes over one token each and sums over the whole embedding; their file.
#include "draft/tables/model_ngrams.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "draft/drafter.h"
#include "kernels/base/error.h"
#include "kernels/cpu_device.h"
#include "runtime/pass/forward.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace slipstream::draft {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

struct Loaded {
    explicit Loaded(const TinyModelOptions& options)
        : files(make_tiny_model(options)), device({.n_threads = 2}), model(*files, device, {.context_tokens = 64}) {}
    std::unique_ptr<ModelFiles> files;
    CpuDevice device;
    Model model;
};

/// What the model says after one token alone, from a pass of its own.
std::vector<float> logits_after(const Model& model, TokenId token) {
    KvCache cache(model.device(), model.kv_layouts(), 1, 1);
    Forward forward(model, {.max_tokens = 1, .max_logit_rows = 1});
    const NodeId node = cache.add_node(kCommittedTip);
    const std::int32_t row = 0;
    const ConstTensorView logits = forward.run(cache, {&token, 1}, {&node, 1}, {&row, 1});
    return {float_row(logits, 0), float_row(logits, 0) + model.config().vocab};
}

// The router of a mixture throws for a token whose hidden state is not finite.
TEST(ModelNgrams, ATokenThatAMixtureCannotComputeHasNoBigrams) {
    const Loaded whole({.vocab = 97, .n_experts = 4});
    const Loaded damaged({.vocab = 97, .n_experts = 4});
    const ConstTensorView embedding = damaged.files->weights().token_embedding;
    constexpr TokenId kDamaged = 33;
    const std::size_t row = row_bytes(embedding.dtype, embedding.cols());
    std::memset(const_cast<std::byte*>(embedding.data) + kDamaged * row, 0xff, row);  // NaN in every type of float
    ASSERT_THROW(static_cast<void>(logits_after(damaged.model, kDamaged)), FormatError);
    const auto expected = build_model_ngrams(whole.model, *whole.files, {.k = 3, .pass_tokens = 10});
    const auto ngrams = build_model_ngrams(damaged.model, *damaged.files, {.k = 3, .pass_tokens = 10});
    ASSERT_TRUE(expected && ngrams);
    for (TokenId token = 0; token < 97; ++token)
        for (std::size_t i = 3 * token; i < 3 * static_cast<std::size_t>(token) + 3; ++i)
            EXPECT_EQ(ngrams->bigrams.tokens[i], token == kDamaged ? -1 : expected->bigrams.tokens[i]) << token;
}

TEST(ModelNgrams, BigramsAreTheModelsBestAfterEachTokenAlone) {
    const Loaded loaded({.vocab = 97});
    // Passes of 256 tokens, of 10 (which 97 does not divide into), and of what 5 rows of logits leave.
    for (const ModelNgramsOptions& options :
         {ModelNgramsOptions{.k = 7}, ModelNgramsOptions{.k = 7, .pass_tokens = 10},
          ModelNgramsOptions{.k = 7, .max_logit_bytes = 5 * 97 * sizeof(float)},
          ModelNgramsOptions{.k = 7, .max_logit_bytes = 1}, ModelNgramsOptions{.k = 1000}}) {
        const std::optional<ModelNgrams> ngrams = build_model_ngrams(loaded.model, *loaded.files, options);
        ASSERT_TRUE(ngrams);
        const BigramTable& table = ngrams->bigrams;
        ASSERT_EQ(table.vocab, 97);
        ASSERT_EQ(table.k, std::min<std::int64_t>(options.k, 97));
        for (TokenId token = 0; token < 97; token += 12) {
            const std::vector<float> logits = logits_after(loaded.model, token);
            std::vector<TokenId> order(97);
            std::iota(order.begin(), order.end(), 0);
            std::ranges::stable_sort(order, [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
            double sum = 0.0;
            for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
            for (std::int64_t i = 0; i < table.k; ++i) {
                const auto at = static_cast<std::size_t>(token * table.k + i);
                const TokenId expected = order[i];
                ASSERT_EQ(table.tokens[at], expected) << "rank " << i << " after " << token;
                const double log_p = static_cast<double>(logits[expected]) - std::log(sum);
                EXPECT_NEAR(to_float(table.log_p[at]), log_p, 1e-3 + 5e-4 * std::abs(log_p));
            }
        }
    }
}

TEST(ModelNgrams, AreMadeOnceWhateverTheSampling) {
    const Loaded loaded({.vocab = 97});
    int n_calls = 0;
    DraftContext target;
    target.vocab = 97;
    target.files = loaded.files.get();
    target.model = &loaded.model;
    target.on_progress = [&](std::string_view, double, double) { ++n_calls; };
    DraftOptions options;
    options.sources = {SourceKind::Bigram, SourceKind::Unigram};
    const auto drafter = make_drafter(options, target);
    EXPECT_GT(std::exchange(n_calls, 0), 0);
    for (const double temperature : {0.7, 0.0, 1.3}) drafter->set_sampling({.temperature = temperature});
    EXPECT_EQ(n_calls, 0);
}

std::vector<std::vector<double>> rows_of(const ConstTensorView& table) {
    std::vector<std::vector<double>> rows;
    for (std::int64_t i = 0; i < table.rows(); ++i)
        rows.emplace_back(float_row(table, i), float_row(table, i) + table.cols());
    return rows;
}

TEST(ModelNgrams, UnigramsLieBestWithTheMeanInTheMetricOfTheInputEmbedding) {
    // More tokens than a block of rows, and not a multiple of it.
    for (const std::int64_t vocab : {97, 1100}) {
        const Loaded loaded({.d_model = 32, .d_ff = 32, .n_layers = 1, .vocab = vocab});
        const std::optional<ModelNgrams> ngrams =
            build_model_ngrams(loaded.model, *loaded.files, {.k = 1, .pass_tokens = 64});
        ASSERT_TRUE(ngrams);
        const std::vector<std::vector<double>> v = rows_of(loaded.files->weights().token_embedding);
        const std::vector<std::vector<double>> u = rows_of(loaded.files->weights().lm_head);
        std::vector<double> mean(32, 0.0);
        for (const auto& row : u)
            for (std::size_t i = 0; i < 32; ++i) mean[i] += row[i] / static_cast<double>(vocab);
        // <a, b> = sum over the rows v of (v a)(v b).
        const auto inner = [&v](const std::vector<double>& a, const std::vector<double>& b) {
            double sum = 0.0;
            for (const auto& row : v)
                sum += std::inner_product(row.begin(), row.end(), a.begin(), 0.0) *
                       std::inner_product(row.begin(), row.end(), b.begin(), 0.0);
            return sum;
        };
        std::vector<std::int32_t> order(static_cast<std::size_t>(vocab));
        std::iota(order.begin(), order.end(), 0);
        std::ranges::stable_sort(order, {}, [&](std::int32_t token) { return inner(mean, u[token]); });
        order.resize(std::min(order.size(), std::size_t{256}));
        EXPECT_EQ(ngrams->common, order);
    }
}

TEST(ModelNgrams, QuantisedEmbeddingsAreReadAsTheyAre) {
    const Loaded loaded({.weight_type = DType::Q8_0});
    const std::optional<ModelNgrams> ngrams = build_model_ngrams(loaded.model, *loaded.files, {.k = 3});
    ASSERT_TRUE(ngrams);
    EXPECT_THAT(ngrams->bigrams.tokens, SizeIs(3 * 97));
    for (TokenId token = 0; token < 97; token += 24) {
        const std::vector<float> logits = logits_after(loaded.model, token);
        EXPECT_EQ(ngrams->bigrams.tokens[3 * token], std::ranges::max_element(logits) - logits.begin());
    }
}

TEST(ModelNgrams, ProgressRisesToTheWholeAndWorkCanBeGivenUp) {
    const Loaded loaded({});
    double last = 0.0;
    double total = 0.0;
    int n_calls = 0;
    ModelNgramsOptions options{.k = 3, .pass_tokens = 16, .on_progress = [&](double done, double all) {
                                   EXPECT_GE(done, last);
                                   EXPECT_LE(done, all);
                                   last = done;
                                   total = all;
                                   ++n_calls;
                               }};
    ASSERT_TRUE(build_model_ngrams(loaded.model, *loaded.files, options));
    EXPECT_GT(n_calls, 7);
    EXPECT_NEAR(last / total, 1.0, 1e-9);

    // Cancelled before any of the calls, or from any of them.
    for (int stop_at = 0; stop_at < n_calls; ++stop_at) {
        std::atomic<bool> cancel = stop_at == 0;
        int at = 0;
        options.cancel = &cancel;
        options.on_progress = [&](double, double) { cancel = ++at >= stop_at; };
        EXPECT_FALSE(build_model_ngrams(loaded.model, *loaded.files, options)) << stop_at;
        EXPECT_LE(at, stop_at);
    }
    options.cancel = nullptr;
    options.on_progress = [](double, double) { throw RequestError("given up"); };
    EXPECT_THROW(static_cast<void>(build_model_ngrams(loaded.model, *loaded.files, options)), RequestError);
}

bool same(const ModelNgrams& a, const ModelNgrams& b) {
    return a.bigrams.k == b.bigrams.k && a.bigrams.tokens == b.bigrams.tokens &&
           std::ranges::equal(a.bigrams.log_p, b.bigrams.log_p, {}, &Half::bits, &Half::bits) && a.common == b.common;
}

TEST(ModelNgrams, TablesPersist) {
    const Loaded loaded({});
    const TempFolder folder;
    std::vector<std::string> notes;
    const TableStore store(
        {.folder = folder.path(), .on_note = [&](std::string_view note) { notes.emplace_back(note); }});
    const NgramsPlace place{.store = &store, .fingerprint = 5};
    int n_calls = 0;
    ModelNgramsOptions options{.k = 5, .on_progress = [&](double, double) { ++n_calls; }};
    const auto get = [&] {
        n_calls = 0;
        return load_or_build_model_ngrams(loaded.model, *loaded.files, place, options);
    };
    const std::optional<ModelNgrams> built = get();
    ASSERT_TRUE(built);
    EXPECT_GT(n_calls, 0);
    const std::optional<ModelNgrams> loaded_again = get();
    ASSERT_TRUE(loaded_again);
    EXPECT_EQ(n_calls, 0);
    EXPECT_TRUE(same(*built, *loaded_again));
    // Fewer candidates are in the file; more are not.
    options.k = 4;
    EXPECT_EQ(get()->bigrams.k, 5);
    EXPECT_EQ(n_calls, 0);
    options.k = 9;
    EXPECT_EQ(get()->bigrams.k, 9);
    EXPECT_GT(n_calls, 0);
    EXPECT_TRUE(notes.empty());

    // A section that is no n-grams: set aside, built again.
    std::vector<TableSection> sections = model_ngrams_sections(*built);
    sections[0].name = "something";
    store.save(5, sections, "bigram");
    options.k = 5;
    EXPECT_TRUE(same(get().value(), *built));
    EXPECT_GT(n_calls, 0);
    EXPECT_THAT(notes, SizeIs(1));
    EXPECT_TRUE(same(get().value(), *built));
    EXPECT_EQ(n_calls, 0);
    EXPECT_TRUE(load_or_build_model_ngrams(loaded.model, *loaded.files, {}, options)) << "memory only";
    EXPECT_GT(n_calls, 0);
    // What was cancelled leaves nothing.
    const std::atomic<bool> cancel = true;
    options.cancel = &cancel;
    EXPECT_FALSE(load_or_build_model_ngrams(loaded.model, *loaded.files, {.store = &store, .fingerprint = 6}, options));
    EXPECT_FALSE(std::filesystem::exists(store.path(6, "bigram")));
}

TEST(ModelNgrams, FilesThatDoNotFitAreRefused) {
    const TempFolder folder;
    const std::filesystem::path path = folder.path() / "ngrams";
    const ModelNgrams good{.bigrams = {.vocab = 3,
                                       .k = 2,
                                       .tokens = {1, 2, 0, -1, -1, -1},
                                       .log_p = {to_half(-1.0F), to_half(-2.0F), to_half(0.0F), {}, {}, {}}},
                           .common = {2, 0, 1}};
    write_table_file(path, model_ngrams_sections(good));
    EXPECT_TRUE(same(read_model_ngrams(TableFile(path), 3), good));
    EXPECT_THROW(static_cast<void>(read_model_ngrams(TableFile(path), 4)), FormatError);
    const auto refused = [&](auto&& damage, const char* why) {
        ModelNgrams bad = good;
        damage(bad);
        write_table_file(path, model_ngrams_sections(bad));
        EXPECT_THAT([&] { static_cast<void>(read_model_ngrams(TableFile(path), 3)); },
                    testing::ThrowsMessage<FormatError>(HasSubstr(why)));
    };
    refused([](ModelNgrams& bad) { bad.bigrams.tokens[1] = 3; }, "token 0");
    refused([](ModelNgrams& bad) { bad.bigrams.tokens[1] = 1; }, "token 0");
    refused([](ModelNgrams& bad) { bad.bigrams.tokens[4] = -2; }, "token 2");
    refused([](ModelNgrams& bad) { bad.bigrams.tokens[5] = 1; }, "token 2");
    refused([](ModelNgrams& bad) { bad.bigrams.log_p[0] = to_half(1.0F); }, "token 0");
    refused([](ModelNgrams& bad) { bad.bigrams.log_p[0] = to_half(-3.0F); }, "token 0");
    refused([](ModelNgrams& bad) { bad.bigrams.log_p[0] = to_half(std::nanf("")); }, "token 0");
    refused([](ModelNgrams& bad) { bad.bigrams.tokens.pop_back(); }, "candidates");
    refused([](ModelNgrams& bad) { bad.bigrams.log_p.resize(3); }, "probabilities");
    refused([](ModelNgrams& bad) { bad.bigrams.k = 0; }, "candidates");
    refused([](ModelNgrams& bad) { bad.bigrams.vocab = 2; }, "2 tokens");
    refused([](ModelNgrams& bad) { bad.common.pop_back(); }, "2 common tokens");
    refused([](ModelNgrams& bad) { bad.common.clear(); }, "0 common tokens");
    for (const TokenId token : {0, -1, 3}) refused([&](ModelNgrams& bad) { bad.common[0] = token; }, "common tokens");
    std::vector<TableSection> sections = model_ngrams_sections(good);
    sections.pop_back();
    write_table_file(path, sections);
    EXPECT_THROW(static_cast<void>(read_model_ngrams(TableFile(path), 3)), FormatError);
}

TEST(ModelNgrams, TheDemoModelKnowsCommonWordsAndWhatFollowsThem) {
    const std::unique_ptr<ModelFiles> files =
        ModelFiles::open(std::filesystem::path(SLIPSTREAM_SOURCE_DIR) / "tools" / "demo_model" / "target");
    CpuDevice device({.n_threads = 2});
    const Model model(*files, device, {.context_tokens = 64});
    const std::optional<ModelNgrams> ngrams = build_model_ngrams(model, *files, {});
    ASSERT_TRUE(ngrams);
    // The tokens of a text of the model's own language: how often the next one is among the best.
    std::ifstream in(SLIPSTREAM_GOLDEN_DIR "/recycling/steps.txt");
    std::vector<TokenId> text;
    for (std::string line; std::getline(in, line);)
        if (line[0] == 'n') text.push_back(std::stoi(line.substr(2)));
    ASSERT_EQ(text.size(), 120U);
    const auto most_common = std::span(ngrams->common).first(32);
    const auto n_common = std::ranges::count_if(
        text, [&](TokenId token) { return std::ranges::find(most_common, token) != most_common.end(); });
    EXPECT_GT(n_common, 20) << "of 120; by chance it would be 1";
    for (std::int64_t token = 300; token < 320; ++token) {
        const auto at = static_cast<std::size_t>(token * ngrams->bigrams.k);
        EXPECT_GT(to_float(ngrams->bigrams.log_p[at]), -6.0F) << token;
    }
}

}  // namespace
}  // namespace slipstream::draft
