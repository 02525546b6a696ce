// Rates of the machine that are measured once: figures in the file are changed, so that a start which takes them cannot
// have measured.
#include "tools/engine/kept_rates.h"

#include <sys/stat.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/tools/temporary_folder.h"
#include "tools/base/build_version.h"
#include "tools/engine/engine.h"

namespace slipstream::tools {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// Powers of two, which rounding leaves as they are; no machine has them.
constexpr double kCopies = 16.0;
constexpr double kLayer = 1024.0;

class KeptRates : public testing::Test {
protected:
    KeptRates() { options_.file = folder_.path() / "tables" / kRatesFile; }

    MachineRates rates(int n_threads = 1, RateEffort effort = RateEffort::All) {
        notes_.clear();
        details_.clear();
        const EngineCallbacks callbacks{
            .on_note = [this](std::string_view line) { notes_.append(line).append("\n"); },
            .on_detail = [this](std::string_view line) { details_.append(line).append("\n"); }};
        return machine_rates({.config = &opened_.config(),
                              .weights = &weights_,
                              .kv_dtype = DType::F16,
                              .n_threads = n_threads,
                              .effort = effort},
                             options_, callbacks);
    }

    [[nodiscard]] std::vector<std::string> lines() const {
        std::ifstream file(*options_.file);
        std::vector<std::string> lines;
        for (std::string line; std::getline(file, line);) lines.push_back(line);
        return lines;
    }
    void write(const std::vector<std::string>& lines) const {
        std::ofstream file(*options_.file);
        for (const std::string& line : lines) file << line << "\n";
    }
    [[nodiscard]] bool was_measured() const { return details_.find("measuring what ") != std::string::npos; }
    /// Changes the last line of the file.
    void mark(double spread) const {
        std::vector<std::string> all = lines();
        json line = json::parse(all.back());
        line["copy_bytes_per_second"] = kCopies;
        line["layer_seconds"] = kLayer;
        line["spread"] = spread;
        all.back() = line.dump();
        write(all);
    }

    TemporaryFolder folder_;
    RatesOptions options_;
    OpenedModel opened_{SLIPSTREAM_SOURCE_DIR "/tools/demo_model/target"};
    ModelWeights weights_ = opened_.files().weights();
    std::string notes_;
    std::string details_;
};

TEST_F(KeptRates, AStartWhoseKeyIsThereMeasuresNothing) {
    EXPECT_EQ(rates().origin, RatesOrigin::Measured);
    EXPECT_TRUE(was_measured());
    ASSERT_EQ(lines().size(), 2U);
    EXPECT_EQ(lines().front(), "slipstream rates 1");
    mark(0.0);
    const std::vector<std::string> before = lines();
    const MachineRates kept = rates();
    EXPECT_FALSE(was_measured());
    EXPECT_EQ(kept.origin, RatesOrigin::Kept);
    EXPECT_EQ(kept.copy_bytes_per_second, kCopies);
    EXPECT_EQ(kept.rates.layer_seconds, kLayer);
    EXPECT_EQ(notes_, "");
    EXPECT_EQ(lines(), before);
    // What was measured with copies serves computing alone, too.
    EXPECT_EQ(rates(1, RateEffort::Compute).rates.layer_seconds, kLayer);
    EXPECT_FALSE(was_measured());
}

TEST_F(KeptRates, AreThoseThatWereMeasured) {
    const MachineRates measured = rates();
    if (measured.is_doubtful()) GTEST_SKIP() << "other programs use this machine";
    const MachineRates kept = rates();
    EXPECT_FALSE(was_measured());
    for (int type = 0; type < kDTypeCount; ++type)
        for (const double n : {1.0, 3.0, 16.0, 500.0})
            EXPECT_EQ(kept.rates.weights[type].seconds(n), measured.rates.weights[type].seconds(n));
    EXPECT_EQ(kept.rates.kv.seconds(2.0), measured.rates.kv.seconds(2.0));
    EXPECT_EQ(kept.rates.layer_token_seconds, measured.rates.layer_token_seconds);
    EXPECT_EQ(kept.rates.host_bytes_per_second, measured.rates.host_bytes_per_second);
    EXPECT_EQ(kept.memory_bytes_per_second, measured.memory_bytes_per_second);
    EXPECT_EQ(kept.host_bytes_per_copied_byte, measured.host_bytes_per_copied_byte);
}

TEST_F(KeptRates, AnotherKeyIsMeasuredAndKeptBesideIt) {
    static_cast<void>(rates(1));
    mark(0.0);
    EXPECT_NE(rates(2).rates.layer_seconds, kLayer);
    EXPECT_TRUE(was_measured());
    EXPECT_EQ(lines().size(), 3U);
    EXPECT_EQ(rates(1).rates.layer_seconds, kLayer);
    EXPECT_FALSE(was_measured());
}

// A build of another commit may have other kernels. Its rates are not taken, and stay in the file.
TEST_F(KeptRates, RatesOfAnotherBuildAreMeasuredAnew) {
    static_cast<void>(rates());
    mark(0.0);
    const std::vector<std::string> own = lines();
    const std::string key = json::parse(own.back())["key"];
    const std::string version(build_version());
    const bool knows = build_commit() != kUnknownCommit;
    const std::string build = knows ? version + " (" + std::string(build_commit()) + ")" : version;
    ASSERT_EQ(key.substr(0, build.size() + 1), build + " ");
    // Keys of earlier versions had no commit.
    std::vector<std::string> others{version + " (0123456789ab)"};
    if (knows) others.push_back(version);
    for (const std::string& other : others) {
        SCOPED_TRACE(other);
        json line = json::parse(own.back());
        line["key"] = other + key.substr(build.size());
        write({own.front(), line.dump()});
        EXPECT_NE(rates().rates.layer_seconds, kLayer);
        EXPECT_TRUE(was_measured());
        EXPECT_EQ(notes_.find("not a file of rates"), std::string::npos);
        ASSERT_EQ(lines().size(), 3U);
        EXPECT_EQ(lines()[1], line.dump());
        EXPECT_EQ(json::parse(lines().back())["key"], key);
    }
}

TEST_F(KeptRates, AreMeasuredAgainOnDemand) {
    static_cast<void>(rates());
    mark(0.0);
    options_.measure = true;
    const MachineRates again = rates();
    EXPECT_TRUE(was_measured());
    // On a busy machine, rates that are not doubtful stay.
    const bool is_busy = notes_.find("the rates measured before are kept") != std::string::npos;
    EXPECT_EQ(again.rates.layer_seconds == kLayer, is_busy);
    ASSERT_EQ(lines().size(), 2U);
    EXPECT_EQ(json::parse(lines().back())["layer_seconds"] == kLayer, is_busy);
}

TEST_F(KeptRates, DoubtfulOnesAreReplacedByTheFirstThatAreNot) {
    static_cast<void>(rates());
    mark(2.0 * kDoubtfulSpread);
    const MachineRates again = rates();
    EXPECT_TRUE(was_measured());
    const bool is_busy = details_.find("this machine is busy: rates are doubtful") != std::string::npos;
    EXPECT_EQ(again.rates.layer_seconds == kLayer, is_busy) << "doubtful rates hold still";
    EXPECT_EQ(json::parse(lines().back())["layer_seconds"] == kLayer, is_busy);
    mark(kDoubtfulSpread);  // just not doubtful
    EXPECT_EQ(rates().rates.layer_seconds, kLayer);
    EXPECT_FALSE(was_measured());
}

TEST_F(KeptRates, DamagedLinesAreMeasuredAgain) {
    static_cast<void>(rates());
    mark(0.0);
    const std::vector<std::string> whole = lines();
    const json marked = json::parse(whole.back());
    std::vector<std::string> damaged{whole.back().substr(0, whole.back().size() / 2), "[]", "{}", "{\"key\": 3}"};
    const auto change = [&](auto&& edit) {
        json line = marked;
        edit(line);
        damaged.push_back(line.dump());
    };
    change([](json& line) { line.erase("kv"); });
    change([](json& line) { line["kv"] = json::array(); });
    change([](json& line) { line["kv"][0][1] = 0.0; });
    change([](json& line) { line["kv"][1][0] = line["kv"][0][0]; });
    change([](json& line) { line["kv"] = "much"; });
    change([](json& line) { line["weights"] = json::object(); });
    change([](json& line) { line["kv"][0][1] = 1e308; });
    change([](json& line) { line["copy_bytes_per_second"] = 1e308; });
    change([](json& line) { line["layer_seconds"] = -1.0; });
    change([](json& line) { line["copy_bytes_per_second"] = 0.0; });
    change([](json& line) { line["spread"] = nullptr; });
    for (const std::string& line : damaged) {
        write({whole.front(), line});
        EXPECT_NE(rates().rates.layer_seconds, kLayer) << line;
        EXPECT_TRUE(was_measured()) << line;
        ASSERT_EQ(lines().size(), 2U) << line;
        EXPECT_EQ(json::parse(lines().back())["key"], marked["key"]);
    }
}

TEST_F(KeptRates, AFileOfSomethingElseStaysAsItIs) {
    options_.file = folder_.write("letter.txt", "Dear friend,\nthis is no table.\n");
    EXPECT_GT(rates().copy_bytes_per_second, 0.0);
    EXPECT_THAT(notes_, HasSubstr("letter.txt: not a file of rates"));
    EXPECT_EQ(lines(), (std::vector<std::string>{"Dear friend,", "this is no table."}));
    // A read from a pipe without a writer would never return.
    options_.file = folder_.path() / "pipe";
    ASSERT_EQ(mkfifo(options_.file->c_str(), 0600), 0);
    EXPECT_GT(rates().copy_bytes_per_second, 0.0);
    EXPECT_THAT(notes_, HasSubstr("pipe: not a file of rates"));
    options_.file = folder_.write("empty.txt", "");
    static_cast<void>(rates());
    EXPECT_EQ(lines().size(), 2U);
}

TEST_F(KeptRates, WhatCannotBeKeptIsSaid) {
    options_.file = "/proc/nowhere/rates.txt";
    EXPECT_GT(rates().copy_bytes_per_second, 0.0);
    EXPECT_THAT(notes_, testing::AllOf(HasSubstr("/proc/nowhere"), HasSubstr("it is measured at each start"),
                                       HasSubstr("--rates")));
    options_.file.reset();
    EXPECT_GT(rates().copy_bytes_per_second, 0.0);
    EXPECT_THAT(notes_, testing::Not(HasSubstr("--rates")));
}

TEST_F(KeptRates, ManyStartsAtOnce) {
    std::vector<std::thread> starts;
    for (int i = 0; i < 6; ++i)
        starts.emplace_back([this, i] {
            for (int round = 0; round < 3; ++round)
                static_cast<void>(machine_rates(
                    {.config = &opened_.config(), .weights = &weights_, .n_threads = 1 + i % 2}, options_, {}));
        });
    for (std::thread& start : starts) start.join();
    const std::vector<std::string> all = lines();
    EXPECT_EQ(all.front(), "slipstream rates 1");
    EXPECT_GE(all.size(), 2U);
    EXPECT_LE(all.size(), 3U);
    for (std::size_t i = 1; i < all.size(); ++i) EXPECT_TRUE(json::parse(all[i], nullptr, false).is_object()) << all[i];
    for (const auto& entry : std::filesystem::directory_iterator(options_.file->parent_path()))
        EXPECT_EQ(entry.path(), *options_.file) << "no part is left";
}

TEST(SteadyRates, AreRoundedAndNeverFallWithTheTokens) {
    MachineRates raw;
    raw.rates.kv = ByteCost({{1.0, 3.1e-10}, {4.0, 2.3e-10}, {8.0, 2.5e-10}, {16.0, 9e-10}});
    raw.rates.layer_seconds = 1.234e-5;
    raw.copy_bytes_per_second = 9.87e9;
    const MachineRates steady = steady_rates(raw);
    double last = 0.0;
    for (const double n : {1.0, 2.0, 4.0, 6.0, 8.0, 12.0, 16.0, 64.0}) {
        EXPECT_GE(steady.rates.kv.seconds(n), last) << n;
        last = steady.rates.kv.seconds(n);
    }
    EXPECT_EQ(steady.rates.kv.seconds(1.0), steady.rates.kv.seconds(4.0));
    for (const auto& [rounded, from] : std::vector<std::pair<double, double>>{{steady.rates.kv.seconds(4.0), 2.3e-10},
                                                                              {steady.rates.kv.seconds(16.0), 9e-10},
                                                                              {steady.rates.layer_seconds, 1.234e-5},
                                                                              {steady.copy_bytes_per_second, 9.87e9}}) {
        const double steps = 8.0 * std::log2(rounded);
        EXPECT_NEAR(steps, std::round(steps), 1e-6);
        EXPECT_NEAR(std::log2(rounded / from), 0.0, 1.0 / 16.0 + 1e-9);
    }
    EXPECT_EQ(steady.memory_bytes_per_second, 0.0) << "no limit stays no limit";
    EXPECT_EQ(steady_rates(steady).rates.kv.seconds(5.0), steady.rates.kv.seconds(5.0));
}

}  // namespace
}  // namespace slipstream::tools
