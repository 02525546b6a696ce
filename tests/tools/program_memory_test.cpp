// The table of device memory, as `plan` and `generate` report it, beside the peak of each device's budget after a run
// of the bundled model: its rows sum up to that peak, to the byte.
#include <cstddef>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/tools/run_program.h"

namespace slipstream::tools {
namespace {

// Returns the sum of each row of a table of device memory, without what is free.
std::vector<std::size_t> sums_of(const nlohmann::json& table) {
    std::vector<std::size_t> sums;
    for (const nlohmann::json& row : table) {
        std::size_t& sum = sums.emplace_back(0);
        for (const auto& [name, bytes] : row.items())
            if (name != "device" && name != "free") sum += bytes.get<std::size_t>();
    }
    return sums;
}

// Generates with `options`, and compares the table of the run with its peaks. Returns the statistics.
nlohmann::json run_with_table(const std::vector<std::string>& options) {
    std::vector<std::string> arguments{"generate", "-p", "Once upon a time", "-n", "40", "--temperature", "0"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    std::string text;
    nlohmann::json stats = run_with_statistics(arguments, text);
    EXPECT_NE(text, "");
    EXPECT_EQ(sums_of(stats["plan"]["device_memory"]), stats["peak"]["device_bytes"].get<std::vector<std::size_t>>())
        << testing::PrintToString(options) << stats["plan"]["device_memory"];
    return stats;
}

nlohmann::json planned_table(const std::vector<std::string>& options) {
    std::vector<std::string> arguments{"plan", "--json"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const ProgramResult result = run_program(arguments);
    EXPECT_EQ(result.code, 0) << result.err;
    return nlohmann::json::parse(result.out, nullptr, false)["device_memory"];
}

struct Placement {
    std::vector<std::string> options;
    std::size_t n_devices = 1;
    bool streams = false;
};

std::vector<Placement> placements() {
    return {
        {{"--devices", "cpu", "--device-memory", "64M"}},
        {{"--devices", "cpu", "--device-memory", "20M", "--link-gib-s", "0.5", "--ring", "3M"}, 1, true},
        {{"--devices", "cpu,cpu", "--split", "layers", "--device-memory", "40M"}, 2},
        {{"--devices", "cpu,cpu", "--split", "layers", "--device-memory", "16M,14M", "--link-gib-s", "0.5"}, 2, true}};
}

TEST(DeviceMemory, SumsUpToThePeakOfARun) {
    for (const Placement& placement : placements()) {
        for (const char* draft : {"none", "context"}) {
            std::vector<std::string> options{"-t",  "1",           "--ctx",   "2048", "--tables",
                                             "off", "--no-config", "--draft", draft};
            if (std::string(draft) != "none") options.insert(options.end(), {"--budget", "8"});
            options.insert(options.end(), placement.options.begin(), placement.options.end());
            SCOPED_TRACE(testing::PrintToString(options));
            const nlohmann::json stats = run_with_table(options);
            EXPECT_EQ(stats["plan"]["device_memory"].size(), placement.n_devices);
            EXPECT_EQ(stats["streamed"]["weights_bytes"].get<std::size_t>() > 0, placement.streams);
            EXPECT_EQ(planned_table(options), stats["plan"]["device_memory"]);
        }
    }
}

// Without a budget, too. (One device without a budget has no plan.)
TEST(DeviceMemory, SumsUpToThePeakWithoutABudget) {
    const nlohmann::json stats = run_with_table(
        {"-t", "1", "--ctx", "2048", "--tables", "off", "--draft", "none", "--no-config", "--devices", "cpu,cpu"});
    ASSERT_EQ(stats["plan"]["device_memory"].size(), 2U);
    for (const nlohmann::json& row : stats["plan"]["device_memory"]) EXPECT_TRUE(row["free"].is_null()) << row;
}

}  // namespace
}  // namespace slipstream::tools
