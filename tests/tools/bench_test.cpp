// The parts of bench that measure nothing: figures counted from shapes, prompts out of files, requests out of options.
#include <functional>
#include <map>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/support/layers.h"
#include "tests/tools/temporary_folder.h"
#include "tools/base/usage_error.h"
#include "tools/bench/bench_figures.h"
#include "tools/bench/bench_prompts.h"
#include "tools/bench/bench_report.h"
#include "tools/bench/bench_request.h"
#include "tools/bench/bench_tokens.h"
#include "tools/options/compute_options.h"
#include "tools/terminal/console.h"

namespace slipstream::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

template <typename Expected>
std::string error_of(const std::function<void()>& work) {
    try {
        work();
    } catch (const Expected& error) {
        return error.what();
    }
    ADD_FAILURE() << "no error of the expected kind";
    return "";
}

TEST(BenchFigures, MedianAndSpread) {
    const Summary odd = summarize({3.0, 1.0, 2.0});
    EXPECT_EQ(odd.median, 2.0);
    EXPECT_EQ(odd.lowest, 1.0);
    EXPECT_EQ(odd.highest, 3.0);
    EXPECT_EQ(odd.spread(), 1.0);
    EXPECT_EQ(summarize({4.0, 1.0, 2.0, 8.0}).median, 3.0);
    EXPECT_EQ(summarize({5.0}).spread(), 0.0);
    EXPECT_DEATH(static_cast<void>(summarize({})), "");
}

TEST(BenchFigures, WeightBytesAreThoseOfAllViews) {
    std::byte memory{};
    const auto matrix = [&](DType dtype, std::int64_t rows, std::int64_t cols) {
        return ConstTensorView(matrix_view<const std::byte>(&memory, dtype, rows, cols));
    };
    ModelWeights weights;
    weights.token_embedding = matrix(DType::BF16, 100, 64);  // gathered, not read
    LayerWeights layer;
    layer[TensorRole::Q] = matrix(DType::BF16, 64, 64);
    layer[TensorRole::KBias] = vector_view<const std::byte>(&memory, DType::F32, 32);
    layer[TensorRole::Down] = matrix(DType::Q8_0, 64, 96);  // 34 bytes for 32 weights
    weights.layers = {layer, layer};
    weights.output_norm = vector_view<const std::byte>(&memory, DType::F32, 64);
    weights.lm_head = matrix(DType::F32, 100, 64);
    ModelConfig config;
    set_layers(config, {.n_layers = 2, .d_ff = 16, .n_q_heads = 2, .n_kv_heads = 2, .head_dim = 8});
    const WeightBytes bytes = weight_bytes(config, weights, 8);
    EXPECT_EQ(bytes.layers, 2.0 * (64 * 64 * 2 + 32 * 4 + 64 * 3 * 34));
    EXPECT_EQ(bytes.head, 64.0 * 4 + 100 * 64 * 4);
    EXPECT_EQ(bytes.all(), bytes.layers + bytes.head);
    // Of four experts a token chooses one; two tokens choose 1 - (3/4)^2 of them.
    for (LayerConfig& each : config.layers) each.feed_forward.experts = {.n_experts = 4, .n_chosen = 1, .d_ff = 32};
    for (LayerWeights& each : weights.layers) {
        each.experts.resize(4);
        for (ExpertWeights& expert : each.experts) expert[TensorRole::Up] = matrix(DType::BF16, 32, 64);
    }
    constexpr double kExpert = 32 * 64 * 2;
    EXPECT_EQ(weight_bytes(config, weights, 1).layers, bytes.layers + 2 * kExpert);
    EXPECT_EQ(weight_bytes(config, weights, 2).layers, bytes.layers + 2 * 4 * kExpert * 7 / 16);
}

TEST(BenchFigures, KvBytesAreThoseThatWindowsShow) {
    ModelConfig config;
    set_layers(config, {.n_layers = 3, .d_ff = 16, .n_q_heads = 2, .n_kv_heads = 2, .head_dim = 8});
    const std::vector<KvLayout> kv = config.kv_layouts(DType::F16);
    constexpr double kRow = 2.0 * 2 * 8 * 2;  // K and V of a position of a layer
    EXPECT_EQ(kv_read_bytes(config, kv, 0, 1), 3 * kRow);
    EXPECT_EQ(kv_read_bytes(config, kv, 1000, 8), 3 * 1008 * kRow);
    set_windows(config, {0, 100, 1});
    // The first token sees 99 positions before its own, or none.
    EXPECT_EQ(kv_read_bytes(config, kv, 1000, 8), (1008 + 107 + 8) * kRow);
    EXPECT_EQ(kv_read_bytes(config, kv, 50, 1), (51 + 51 + 1) * kRow);
}

TEST(BenchFigures, PhasesAddUp) {
    const PhaseFigures phase{.name = "decode",
                             .samples = {{.tokens = 10, .seconds = 2.0, .weight_bytes = 5.0, .kv_bytes = 1.0},
                                         {.tokens = 30, .seconds = 3.0, .weight_bytes = 7.0, .kv_bytes = 2.0},
                                         {.tokens = 10, .seconds = 1.0, .weight_bytes = 6.0, .kv_bytes = 3.0}}};
    const PhaseSample total = phase.total();
    EXPECT_EQ(total.tokens, 50);
    EXPECT_EQ(total.seconds, 6.0);
    EXPECT_EQ(total.weight_bytes, 18.0);
    EXPECT_EQ(total.kv_bytes, 6.0);
    EXPECT_EQ(phase.seconds().median, 2.0);
    EXPECT_EQ(phase.tokens_per_second().median, 10.0);
    EXPECT_EQ(phase.tokens_per_second().lowest, 5.0);
}

TEST(BenchPrompts, TakesTheThreeForms) {
    const std::vector<BenchPrompt> prompts = parse_bench_prompts(
        "{\"prompt\": \"a\", \"question\": \"no\"}\r\n\n  \n{\"turns\": [\"b\", \"c\"], \"id\": 7}\n{\"question\": "
        "\"d\"}",
        "f", 100);
    ASSERT_EQ(prompts.size(), 3U);
    EXPECT_THAT(prompts[0].turns, ElementsAre("a"));
    EXPECT_THAT(prompts[1].turns, ElementsAre("b", "c"));
    EXPECT_THAT(prompts[2].turns, ElementsAre("d"));
    EXPECT_EQ(prompts[0].line, 1);
    EXPECT_EQ(prompts[1].line, 4);
    EXPECT_EQ(prompts[2].line, 5);
}

TEST(BenchPrompts, NoMoreLinesThanWanted) {
    EXPECT_EQ(parse_bench_prompts("{\"prompt\": \"a\"}\nnot JSON", "f", 1).size(), 1U);
}

TEST(BenchPrompts, NamesTheLineThatIsWrong) {
    const auto message = [](const std::string& second) {
        return error_of<FormatError>(
            [&] { static_cast<void>(parse_bench_prompts("{\"prompt\": \"a\"}\n" + second, "f.jsonl", 9)); });
    };
    EXPECT_THAT(message("{\"prompt\": "), HasSubstr("f.jsonl:2: not JSON"));
    EXPECT_THAT(message("[1]"), HasSubstr("f.jsonl:2: holds JSON, but no object"));
    EXPECT_THAT(message("{\"text\": 1}"), HasSubstr("f.jsonl:2: no field prompt, turns or question"));
    EXPECT_THAT(message("{\"prompt\": 1}"), HasSubstr("f.jsonl:2: field prompt is not a text"));
    EXPECT_THAT(message("{\"turns\": \"x\"}"), HasSubstr("f.jsonl:2: field turns is not a list"));
    EXPECT_THAT(message("{\"turns\": []}"), HasSubstr("f.jsonl:2: field turns is an empty list"));
    EXPECT_THAT(message("{\"turns\": [\"x\", 1]}"), HasSubstr("f.jsonl:2: field turns holds something"));
    EXPECT_THAT(error_of<RequestError>([] { static_cast<void>(parse_bench_prompts(" \n\n", "f.jsonl", 9)); }),
                HasSubstr("f.jsonl: holds no prompts"));
}

class BenchRequests : public testing::Test {
protected:
    Settings settings(const OptionValues& command_line) {
        return Settings(
            commands_.front(), commands_, command_line, [](const std::string&) { return std::nullopt; }, {}, "");
    }
    BenchRequest request(const OptionValues& command_line) {
        Settings own = settings(command_line);
        return bench_request({own, console_});
    }
    std::string refusal(const OptionValues& command_line) {
        return error_of<UsageError>([&] { static_cast<void>(request(command_line)); });
    }
    std::string sweep_refusal(const std::string& sweep) {
        return error_of<UsageError>([&] { static_cast<void>(sweep_points(settings({{"sweep", {sweep}}}))); });
    }

    std::vector<CommandSpec> commands_{bench_command()};
    Console console_{Verbosity::Quiet, TerminalUse::NoColors, std::nullopt};
};

TEST_F(BenchRequests, ModesFollowFromOptions) {
    EXPECT_EQ(request({}).mode, BenchMode::Plain);
    EXPECT_EQ(request({}).repeat, 5);
    const BenchRequest passes = request({{"passes", {"1,16,4096"}}, {"depth", {"131072"}}});
    EXPECT_EQ(passes.mode, BenchMode::Passes);
    EXPECT_THAT(passes.passes, ElementsAre(1, 16, 4096));
    EXPECT_EQ(passes.depth, 131072);
    EXPECT_EQ(passes.drafts.at(0).list, "auto");  // as generate has it
    const TemporaryFolder folder;
    const std::string file = folder.write("p.jsonl", "{\"prompt\": \"a\"}\n{\"prompt\": \"b\"}\n").string();
    const BenchRequest prompts = request({{"prompts", {file}}});
    EXPECT_EQ(prompts.mode, BenchMode::Prompts);
    EXPECT_EQ(prompts.repeat, 1);
    EXPECT_EQ(prompts.prompts.size(), 2U);
    EXPECT_EQ(request({{"prompts", {file}}, {"max-prompts", {"1"}}}).prompts.size(), 1U);
    EXPECT_EQ(request({{"draft", {"none", "auto"}}}).mode, BenchMode::Plain);
}

TEST_F(BenchRequests, WhatCannotActIsRefused) {
    EXPECT_THAT(refusal({{"depth", {"1"}}}), HasSubstr("--depth has an effect only with --passes"));
    EXPECT_THAT(refusal({{"max-prompts", {"1"}}}), HasSubstr("--max-prompts has an effect only with --prompts"));
    EXPECT_THAT(refusal({{"passes", {"1"}}, {"prompt-tokens", {"1"}}}),
                HasSubstr("--prompt-tokens has an effect only without"));
    EXPECT_THAT(refusal({{"passes", {"1"}}, {"max-tokens", {"1"}}}),
                HasSubstr("--max-tokens has an effect only without --passes"));
    EXPECT_THAT(refusal({{"passes", {"1"}}, {"prompts", {"x"}}}), HasSubstr("exclude each other"));
    for (const char* option : {"temperature", "seed"})
        EXPECT_THAT(refusal({{"passes", {"1"}}, {option, {"1"}}}), HasSubstr("without --passes"));
    EXPECT_THAT(refusal({{"passes", {"1"}}, {"file", {"t.txt"}}}),
                HasSubstr("--file has an effect only without --passes and --prompts"));
    EXPECT_THAT(refusal({{"view-rebuild", {"64"}}, {"draft", {"suffix"}}}), HasSubstr("'retrieval'"));
    EXPECT_THAT(refusal({{"hot", {"true"}}}), HasSubstr("with --prompts"));
    EXPECT_THAT(refusal({{"draft", {"none", "magic"}}}), HasSubstr("unknown source 'magic'"));
    EXPECT_THAT(refusal({{"prompt", {""}}}), HasSubstr("--prompt: an empty text"));
    EXPECT_THAT(refusal({{"repeat", {"0"}}}), HasSubstr("--repeat"));
    for (const char* list : {"", "0", "-1", "4097", "1,", ",1", "1,,2", "1 2", "x", "99999999999999999999"})
        EXPECT_THAT(refusal({{"passes", {list}}}), HasSubstr(fmt::format("found '{}'", list)));
}

TEST_F(BenchRequests, ASweepGivesTheOptionAnew) {
    const std::vector<SweepPoint> points = sweep_points(settings({{"sweep", {"threads=1;7"}}, {"threads", {"3"}}}));
    ASSERT_EQ(points.size(), 2U);
    EXPECT_EQ(points[0].swept->first, "threads");
    EXPECT_EQ(points[1].swept->second, "7");
    EXPECT_EQ(thread_setting(points[0].settings), 1);
    EXPECT_EQ(thread_setting(points[1].settings), 7);
    const std::vector<SweepPoint> none = sweep_points(settings({{"threads", {"3"}}}));
    ASSERT_EQ(none.size(), 1U);
    EXPECT_FALSE(none[0].swept);
    EXPECT_EQ(thread_setting(none[0].settings), 3);
    // Values with commas and '='.
    EXPECT_EQ(*sweep_points(settings({{"sweep", {"passes=1,2;4"}}}))[0].settings.text("passes"), "1,2");
    EXPECT_EQ(*sweep_points(settings({{"sweep", {"model=a=b"}}}))[0].settings.text("model"), "a=b");
}

TEST_F(BenchRequests, ASweepThatMeansNothingIsRefused) {
    EXPECT_THAT(sweep_refusal("threads"), HasSubstr("'OPTION=a;b;c' expected"));
    EXPECT_THAT(sweep_refusal("=1"), HasSubstr("'OPTION=a;b;c' expected"));
    EXPECT_THAT(sweep_refusal("threads="), HasSubstr("an empty value"));
    EXPECT_THAT(sweep_refusal("threads=1;"), HasSubstr("an empty value"));
    EXPECT_THAT(sweep_refusal("heat=1"), HasSubstr("the values of 'heat' cannot be compared"));
    for (const char* name : {"sweep", "json", "stats", "quiet", "config"})
        EXPECT_THAT(sweep_refusal(fmt::format("{}=1", name)), HasSubstr("cannot be compared"));
    Settings own = sweep_points(settings({{"sweep", {"threads=0"}}}))[0].settings;
    EXPECT_THAT(error_of<UsageError>([&] {
                    static_cast<void>(bench_request({own, console_}));
                }),
                HasSubstr("--sweep threads: a whole number"));
}

// A result whose figures are easy to follow.
DraftFigures column(const std::string& list, const std::vector<double>& seconds) {
    DraftFigures figures{.list = list, .budget = 8};
    for (const double s : seconds) figures.decode.push_back({.tokens = 10, .seconds = s});
    figures.passes = 15;
    figures.nodes = 60;
    figures.sources.add({}, {{.name = "suffix", .offered = 40, .accepted = 10, .seconds = 0.5}});
    return figures;
}

TEST(BenchFigures, RatiosAreOfPairs) {
    // The machine slowed down by four between the pairs; the ratio did not change.
    const DraftFigures plain = column("none", {1.0, 4.0, 2.0});
    const DraftFigures guessed = column("suffix", {0.5, 2.0, 1.6});
    const auto ratio = paired_ratio(guessed, plain);
    ASSERT_TRUE(ratio.has_value());
    EXPECT_DOUBLE_EQ(ratio->median, 2.0);
    EXPECT_DOUBLE_EQ(ratio->lowest, 1.25);
    EXPECT_DOUBLE_EQ(ratio->highest, 2.0);
    EXPECT_DOUBLE_EQ(guessed.tokens_per_second(), 30.0 / 4.1);
    EXPECT_DOUBLE_EQ(guessed.tokens_per_pass(), 2.0);
    EXPECT_DOUBLE_EQ(guessed.nodes_per_pass(), 4.0);
    // A text that ended at once says nothing.
    DraftFigures empty = plain;
    for (PhaseSample& sample : empty.decode) sample.tokens = 0;
    EXPECT_EQ(paired_ratio(guessed, empty), std::nullopt);
    EXPECT_EQ(DraftFigures{}.tokens_per_pass(), 0.0);
}

TEST(SourceTotals, AddUpWhetherOrNotADrafterForgets) {
    SourceTotals totals;
    totals.add({}, {{.name = "a", .offered = 10, .accepted = 4, .seconds = 1.0}});
    totals.add({{.name = "a", .offered = 10, .accepted = 4, .seconds = 1.0}},
               {{.name = "a", .offered = 13, .accepted = 5, .seconds = 1.5}, {.name = "b", .offered = 2}});
    ASSERT_EQ(totals.totals().size(), 2U);
    EXPECT_EQ(totals.totals()[0].offered, 13);
    EXPECT_EQ(totals.totals()[0].accepted, 5);
    EXPECT_DOUBLE_EQ(totals.totals()[0].seconds, 1.5);
    EXPECT_EQ(totals.totals()[1].acceptance(), 0.0);
    EXPECT_EQ(totals.json().to_text(JsonLayout::OneLine),
              "{\"a\":{\"offered\":13,\"accepted\":5,\"seconds\":1.5},"
              "\"b\":{\"offered\":2,\"accepted\":0,\"seconds\":0.0}}\n");
}

TEST(BenchReport, DraftsHaveATableOfTheirOwn) {
    BenchResult result;
    result.mode = BenchMode::Prompts;
    result.sampling = "greedy";
    result.phases.push_back({.name = "prefill", .samples = {{.tokens = 4, .seconds = 1.0}}});
    result.drafts = {column("none", {1.0, 4.0}), column("suffix", {0.5, 2.0})};
    result.drafts[1].texts = result.drafts[1].texts_equal = 2;
    const std::string table = bench_table({result});
    EXPECT_THAT(table, HasSubstr("speculative decoding, greedy"));
    EXPECT_THAT(table, HasSubstr("2.000"));
    EXPECT_THAT(table, HasSubstr("2 of 2"));
    EXPECT_THAT(table, HasSubstr("25.0"));
    const std::string json = bench_json({result}).to_text(JsonLayout::OneLine);
    EXPECT_THAT(json, HasSubstr("\"ratio\":2.0"));
    EXPECT_THAT(json, HasSubstr("\"texts_equal\":2"));
    // None were given: no table, an empty list.
    result.drafts.clear();
    EXPECT_THAT(bench_table({result}), testing::Not(HasSubstr("speculative")));
    EXPECT_THAT(bench_json({result}).to_text(JsonLayout::OneLine), HasSubstr("\"drafts\":[]"));
}

BenchResult result_of_passes() {
    BenchResult result;
    result.mode = BenchMode::Passes;
    result.machine = {.name = "a cpu", .n_threads = 2, .peaks = {.read_gb_per_s = 20.0, .fma_gflop_per_s = 100.0}};
    result.form = "scalar";
    result.model = "m.gguf";
    result.depth = 16;
    result.repeat = 3;
    result.passes = {{.tokens = 1, .seconds = {0.002, 0.001, 0.003}, .weight_bytes = 15e6, .kv_bytes = 5e6},
                     {.tokens = 8, .seconds = {0.005, 0.005, 0.005}, .weight_bytes = 15e6, .kv_bytes = 6e6}};
    return result;
}

TEST(BenchReport, ThePassesTable) {
    const std::string table = bench_table({result_of_passes()});
    EXPECT_THAT(table, HasSubstr("a cpu, scalar kernels\n"));
    EXPECT_THAT(table, HasSubstr("2 threads: reads 20.0 GB/s, 100 GFLOP/s of f32\n"));
    EXPECT_THAT(table,
                HasSubstr("\n"
                          "tokens  depth     ms  spread %  ratio  tokens/s  weight MB  KV MB   GB/s  % of read\n"
                          "     1     16  2.000     100.0  1.000     500.0      15.00  5.000  10.00       50.0\n"
                          "     8     16  5.000       0.0  2.500      1600      15.00  6.000  4.200       21.0\n"));
}

TEST(BenchReport, ASweepIsOneTable) {
    BenchResult first = result_of_passes();
    first.swept.emplace("threads", "1");
    BenchResult second = result_of_passes();
    second.swept.emplace("threads", "16");
    const std::string table = bench_table({first, second});
    EXPECT_THAT(table, HasSubstr("\nthreads 16: m.gguf"));
    EXPECT_THAT(table, HasSubstr("\nthreads  tokens"));
    EXPECT_THAT(table, HasSubstr("\n      1       8"));
    EXPECT_THAT(table, HasSubstr("\n     16       1"));
}

TEST(BenchTokens, AreRepeatedWhereTheyStoodBefore) {
    const std::vector<TokenId> fresh = seeded_tokens(80, 30000);
    EXPECT_FALSE(repeats_itself(fresh, 20));
    std::vector<TokenId> copied = fresh;
    copied.insert(copied.end(), fresh.begin() + 10, fresh.begin() + 60);
    EXPECT_TRUE(repeats_itself(copied, 80)) << "out of the prompt";
    EXPECT_FALSE(repeats_itself(copied, 20)) << "43 of 103";
    EXPECT_FALSE(repeats_itself(copied, 110)) << "too few to tell";
}

}  // namespace
}  // namespace slipstream::tools
