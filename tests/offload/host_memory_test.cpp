// available_host_bytes over made-up system files: machine, container, nested groups, nothing known.
#include "offload/host_memory.h"

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/temp_folder.h"

namespace slipstream {
namespace {

constexpr std::size_t kUnknown = std::numeric_limits<std::size_t>::max();

class AvailableHostBytes : public testing::Test {
protected:
    void write(const std::string& path, const std::string& content) {
        const std::filesystem::path file = root() / path;
        std::filesystem::create_directories(file.parent_path());
        std::ofstream(file) << content;
    }
    void write_group(const std::string& path, const std::string& limit, std::size_t used, std::size_t cached) {
        const std::string folder = "sys/fs/cgroup" + path;
        write(folder + "/memory.max", limit + "\n");
        write(folder + "/memory.current", std::to_string(used) + "\n");
        write(folder + "/memory.stat",
              "anon 5\nfile 9\ninactive_file " + std::to_string(cached) + "\nactive_file 10\nfile_mapped 3\n");
    }
    std::filesystem::path root() const { return folder_.path(); }
    TempFolder folder_;
};

TEST_F(AvailableHostBytes, KnowsNoLimitWhereNothingTells) {
    EXPECT_EQ(available_host_bytes(root()), kUnknown);
    write("proc/meminfo", "MemTotal:       1000 kB\nMemAvailable: many kB\n");
    write("proc/self/cgroup", "2:memory:/old/version\n");
    EXPECT_EQ(available_host_bytes(root()), kUnknown);
}

TEST_F(AvailableHostBytes, IsTheMachinesWithoutAContainer) {
    write("proc/meminfo", "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    600 kB\nBuffers: 3 kB\n");
    EXPECT_EQ(available_host_bytes(root()), 600U * 1024);
    write("proc/self/cgroup", "0::/user/app\n");
    write_group("/user/app", "max", 10, 0);
    EXPECT_EQ(available_host_bytes(root()), 600U * 1024);
}

TEST_F(AvailableHostBytes, IsTheLeastOfTheGroupsAroundThisProcess) {
    write("proc/meminfo", "MemAvailable:    600 kB\n");
    write("proc/self/cgroup", "0::/user/app\n");
    write_group("/user/app", "100000", 50000, 20000);  // 50000 + 20010 of cached files
    EXPECT_EQ(available_host_bytes(root()), 70010U);
    write_group("/user", "200000", 190000, 0);
    EXPECT_EQ(available_host_bytes(root()), 10010U);
    write_group("", "300000", 400000, 50);  // above its limit: nothing is left
    EXPECT_EQ(available_host_bytes(root()), 0U);
    write_group("/other", "1", 1, 0);
    EXPECT_EQ(available_host_bytes(root()), 0U);
}

TEST_F(AvailableHostBytes, SeesAContainersOwnRoot) {
    write("proc/self/cgroup", "0::/\n");
    write_group("", "100000", 99000, 0);
    EXPECT_EQ(available_host_bytes(root()), 1010U);
}

TEST_F(AvailableHostBytes, OfThisMachineIsSomething) {
    EXPECT_GT(available_host_bytes(), 1U << 20);
}

}  // namespace
}  // namespace slipstream
