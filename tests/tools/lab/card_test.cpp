// The whole of `slipstream-lab card` on an emulated card, with everything small: each figure is measured and told,
// nothing is written where it should not be (the machine looks), and a run without time says what it left out.
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <map>
#include <sstream>
#include <string>

#include "tests/cuda_emulation/emulated_machine.h"
#include "tests/tools/run_program.h"
#include "tests/tools/temporary_folder.h"
#include "tools/base/json_object.h"
#include "tools/bench/bench_machine.h"
#include "tools/bench/bench_report.h"
#include "tools/lab/card/card_runs.h"

namespace slipstream::tools {
namespace {

CardSizes small_sizes() {
    CardSizes sizes;
    sizes.copy_bytes = {4096, 65536};
    sizes.copied_bytes = 65536;
    sizes.memory_bytes = 65536;
    sizes.rows = 32;
    sizes.cols = 256;
    sizes.n_matrices = 2;
    sizes.first_types = {DType::BF16, DType::Q4_K};
    sizes.other_types = {DType::Q8_0};
    sizes.first_tokens = {1, 16};
    sizes.other_tokens = {3, 512};
    sizes.n_q_heads = 4;
    sizes.n_kv_heads = 2;
    sizes.head_dim = 64;
    sizes.contexts = {512, 256};
    sizes.tree_tokens = 5;
    sizes.prefill_tokens = 9;
    sizes.d_model = 64;
    sizes.d_ff = 96;
    sizes.vocab = 300;
    sizes.op_tokens = {1, 3};
    sizes.n_launches = 4;
    return sizes;
}

// Lines of the JSON file by their "bench".
std::map<std::string, std::vector<nlohmann::json>> run_small(std::chrono::seconds time) {
    const TemporaryFolder folder;
    const std::string file = (folder.path() / "figures.jsonl").string();
    const emulation::Machine machine({.memory_bytes = std::size_t{256} << 20});
    {
        CudaDevice device(machine.table(), {.memory_bytes = std::size_t{128} << 20});
        const std::unique_ptr<Stream> stream = device.make_stream(StreamKind::Compute);
        const CardSizes sizes = small_sizes();
        testing::internal::CaptureStdout();
        CardReport report(file);
        report.begin(device.properties(), {.memory_bytes_per_second = 1e12, .tensor_flops = 1e14});
        CardClock clock(device, *stream, sizes.memory_bytes);
        CardBench bench{.device = device,
                        .stream = *stream,
                        .sizes = sizes,
                        .report = report,
                        .clock = clock,
                        .deadline = std::chrono::steady_clock::now() + time};
        run_card_bench(bench);
        EXPECT_THAT(testing::internal::GetCapturedStdout(), testing::HasSubstr("matmul over 2 matrices"));
    }
    std::map<std::string, std::vector<nlohmann::json>> lines;
    std::istringstream text(file_text(file));
    for (std::string line; std::getline(text, line);) {
        const nlohmann::json parsed = nlohmann::json::parse(line);
        lines[parsed.at("bench")].push_back(parsed);
    }
    return lines;
}

TEST(BenchCard, MeasuresEverythingOnce) {
    auto lines = run_small(std::chrono::hours(1));
    EXPECT_EQ(lines["card"].size(), 1U);
    EXPECT_EQ(lines["memory"].size(), 1U);
    EXPECT_EQ(lines["copy"].size(), 6U);     // three ways of two sizes
    EXPECT_EQ(lines["matmul"].size(), 12U);  // three types by four numbers of tokens
    EXPECT_EQ(lines["matmul_prompt"].size(), 3U);
    EXPECT_EQ(lines["cublaslt"].size(), 3U);
    ASSERT_EQ(lines["batch_invariance"].size(), 3U);
    for (const nlohmann::json& line : lines["batch_invariance"]) {
        EXPECT_DOUBLE_EQ(line.at("own_over_cublaslt"),
                         line.at("own_seconds").get<double>() / line.at("cublaslt_seconds").get<double>());
        EXPECT_DOUBLE_EQ(line.at("prompt_over_cublaslt"),
                         line.at("prompt_seconds").get<double>() / line.at("cublaslt_seconds").get<double>());
    }
    EXPECT_EQ(lines["matmul_own_x"].size(), 6U);  // 1 and 16 of each
    EXPECT_EQ(lines["matmul_graph"].size(), 9U);  // 1, 3 and 16 of each
    EXPECT_EQ(lines["attention"].size(), 6U);     // three passes at two contexts
    EXPECT_EQ(lines["op"].size(), 18U);           // six ops and three ways to choose, by two numbers of rows
    EXPECT_EQ(lines["launch"].size(), 3U);
    EXPECT_EQ(lines["small_copy"].size(), 2U);
    EXPECT_EQ(lines["copy_events"].size(), 2U);
    ASSERT_EQ(lines["end"].size(), 1U);
    EXPECT_EQ(lines["end"][0].at("left_out"), 0);
    for (const auto& [bench, figures] : lines) {
        for (const nlohmann::json& figure : figures) EXPECT_GT(figure.value("seconds", 1.0), 0.0) << figure.dump();
    }
}

TEST(BenchCard, FloorIsTheLongerOfBytesAndArithmetic) {
    const CardPeaks peaks{.memory_bytes_per_second = 1e12, .tensor_flops = 1e14};
    CardFigure figure{.bytes = 2e9, .flops = 1e10};
    EXPECT_DOUBLE_EQ(floor_seconds(figure, peaks), 2e-3);
    figure.flops = 1e12;
    EXPECT_DOUBLE_EQ(floor_seconds(figure, peaks), 1e-2);
    figure.flops = 0.0;
    figure.road = CardRoad::Link;
    EXPECT_DOUBLE_EQ(floor_seconds(figure, peaks), 0.0);
    EXPECT_DOUBLE_EQ(CardPeaks{.measured_bytes_per_second = 5.0}.memory(), 5.0);
}

// `slipstream bench` holds a card's figures against the card's memory, not the host's.
TEST(BenchMachine, OfACardIsTheCard) {
    const emulation::Machine machine({.memory_bytes = std::size_t{64} << 20});
    CudaDevice device(machine.table(), {.memory_bytes = std::size_t{32} << 20});
    BenchResult result;
    result.mode = BenchMode::Passes;
    result.machine = measure_machine(device, 3);
    EXPECT_EQ(result.machine.kind, DeviceKind::Cuda);
    EXPECT_EQ(result.machine.name, "an emulated card");
    EXPECT_EQ(result.machine.peaks.fma_gflop_per_s, 0.0);
    result.passes.push_back({.tokens = 1, .seconds = {1e-3}, .weight_bytes = 2e9});
    EXPECT_THAT(bench_table({result}), testing::HasSubstr("what the GPU reads is not known"));
    result.machine.peaks.read_gb_per_s = 4000.0;
    const std::string table = bench_table({result});
    EXPECT_THAT(table, testing::HasSubstr("the GPU reads 4000 GB/s by its data"));
    EXPECT_THAT(table, testing::HasSubstr(" 50.0\n"));
    const nlohmann::json json = nlohmann::json::parse(bench_json({result}).to_text(JsonLayout::OneLine));
    EXPECT_EQ(json.at("runs").at(0).at("card"), "an emulated card");
}

TEST(BenchCard, CountsWhatThereIsNoTimeFor) {
    auto lines = run_small(std::chrono::hours(-1));
    EXPECT_EQ(lines["memory"].size(), 1U);  // without it nothing has a floor
    EXPECT_EQ(lines["copy"].size() + lines["matmul"].size() + lines["attention"].size() + lines["op"].size(), 0U);
    ASSERT_EQ(lines["end"].size(), 1U);
    EXPECT_GE(lines["end"][0].at("left_out").get<int>(), 6 + 9 + 6 + 16 + 1);
}

}  // namespace
}  // namespace slipstream::tools
