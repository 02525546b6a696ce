#include "tools/machine/host.h"

#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/tools/temporary_folder.h"

namespace slipstream::tools {
namespace {

void add_cpu(const TemporaryFolder& folder, int cpu, int package, int core) {
    folder.write(fmt::format("cpu{}/topology/physical_package_id", cpu), fmt::format("{}\n", package));
    folder.write(fmt::format("cpu{}/topology/core_id", cpu), fmt::format("{}\n", core));
}

TEST(Host, ThreadsOfOneCoreCountOnce) {
    const TemporaryFolder folder;
    for (int cpu = 0; cpu < 4; ++cpu) add_cpu(folder, cpu, 0, cpu % 2);
    add_cpu(folder, 4, 1, 0);
    EXPECT_EQ(physical_cores(folder.path(), {0, 1, 2, 3}), 2);
    EXPECT_EQ(physical_cores(folder.path(), {0, 2}), 1);
    EXPECT_EQ(physical_cores(folder.path(), {0, 4}), 2);  // the same number in two packages
}

TEST(Host, WhereNothingIsSaidEachCpuIsACore) {
    const TemporaryFolder folder;
    EXPECT_EQ(physical_cores(folder.path(), {0, 1, 5}), 3);
    EXPECT_EQ(physical_cores(folder.path(), {}), 1);
}

TEST(Host, ControlGroupsOfVersion2LimitTheCpus) {
    const TemporaryFolder tree;
    EXPECT_EQ(cpu_limit(tree.path(), "0::/user.slice/shell\n"), std::nullopt);
    tree.write("user.slice/shell/cpu.max", "max 100000\n");
    EXPECT_EQ(cpu_limit(tree.path(), "0::/user.slice/shell\n"), std::nullopt);
    tree.write("user.slice/cpu.max", "250000 100000\n");  // what is above holds too
    EXPECT_EQ(cpu_limit(tree.path(), "0::/user.slice/shell\n"), 3);
    tree.write("user.slice/shell/cpu.max", "20000 100000\n");
    EXPECT_EQ(cpu_limit(tree.path(), "0::/user.slice/shell\n"), 1);
    EXPECT_EQ(cpu_limit(tree.path(), "0::/elsewhere\n"), std::nullopt);
    tree.write("cpu.max", "200000 100000\n");  // a container's own group is the top of its tree
    EXPECT_EQ(cpu_limit(tree.path(), "0::/\n"), 2);
    EXPECT_EQ(cpu_limit(tree.path(), "0::/../../host/path\n"), 2);
}

TEST(Host, ControlGroupsOfVersion1LimitTheCpus) {
    const TemporaryFolder tree;
    const std::string groups = "5:memory:/docker/1\n4:cpu,cpuacct:/docker/1\n1:name=systemd:/\n";
    tree.write("cpu,cpuacct/docker/1/cpu.cfs_quota_us", "-1\n");
    tree.write("cpu,cpuacct/docker/1/cpu.cfs_period_us", "100000\n");
    EXPECT_EQ(cpu_limit(tree.path(), groups), std::nullopt);
    tree.write("cpu,cpuacct/docker/1/cpu.cfs_quota_us", "350000\n");
    EXPECT_EQ(cpu_limit(tree.path(), groups), 4);
}

TEST(Host, KnowsThisMachine) {
    EXPECT_GE(default_threads(), 1);
    EXPECT_LE(default_threads(), physical_cores());
    EXPECT_GE(physical_cores(), 1);
    const HostMemory memory = host_memory();
    EXPECT_GT(memory.total_bytes, 0U);
    EXPECT_LE(memory.available_bytes, memory.total_bytes);
    EXPECT_GT(peak_resident_bytes(), 0U);
    EXPECT_TRUE(std::filesystem::is_directory(program_folder()));
}

}  // namespace
}  // namespace slipstream::tools
