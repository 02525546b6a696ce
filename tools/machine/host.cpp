#include "tools/machine/host.h"

#include <sched.h>
#include <sys/auxv.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace slipstream::tools {

namespace {

std::optional<std::size_t> read_number(const std::filesystem::path& path) {
    std::ifstream file(path);
    std::size_t value = 0;
    if (file >> value) return value;
    return std::nullopt;
}

// Returns the value of a line of /proc/meminfo in bytes: "MemTotal:  16384 kB" -> 16777216; 0 if there is none.
std::size_t meminfo_bytes(std::string_view key) {
    std::ifstream file("/proc/meminfo");
    std::string name;
    std::size_t kibibytes = 0;
    std::string unit;
    while (file >> name >> kibibytes) {
        if (name == key) return kibibytes * 1024;
        std::getline(file, unit);
    }
    return 0;
}

// Reads a quota and its period, both in microseconds, and returns their quotient: "150000 100000" -> 1.5. Returns
// nothing if there is no limit: "max 100000", "-1 100000".
std::optional<double> cpu_share(std::istream& numbers) {
    std::int64_t quota = 0;
    std::int64_t period = 0;
    if (numbers >> quota >> period && quota > 0 && period > 0)
        return static_cast<double>(quota) / static_cast<double>(period);
    return std::nullopt;
}

std::optional<double> cpu_share(const std::filesystem::path& group) {
    if (std::ifstream version_2(group / "cpu.max"); version_2) return cpu_share(version_2);
    std::stringstream version_1;
    for (const char* name : {"cpu.cfs_quota_us", "cpu.cfs_period_us"}) version_1 << std::ifstream(group / name).rdbuf();
    return cpu_share(version_1);
}

// Returns the CPUs of the affinity mask; empty if it cannot be read.
std::vector<int> allowed_cpus() {
    cpu_set_t set;
    CPU_ZERO(&set);
    std::vector<int> cpus;
    if (sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
        if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
    return cpus;
}

}  // namespace

int physical_cores(const std::filesystem::path& cpu_tree, const std::vector<int>& cpus) {
    std::set<std::pair<std::size_t, std::size_t>> cores;  // package, core
    for (const int cpu : cpus) {
        const std::filesystem::path topology = cpu_tree / fmt::format("cpu{}", cpu) / "topology";
        const auto core = read_number(topology / "core_id");
        const auto package = read_number(topology / "physical_package_id");
        // If the system does not name the core, each CPU counts as a core.
        if (!core) {
            cores.emplace(static_cast<std::size_t>(-1), static_cast<std::size_t>(cpu));
        } else {
            cores.emplace(package.value_or(0), *core);
        }
    }
    return std::max(1, static_cast<int>(cores.size()));
}

int physical_cores() {
    return physical_cores("/sys/devices/system/cpu", allowed_cpus());
}

std::optional<int> cpu_limit(const std::filesystem::path& group_tree, std::string_view own_groups) {
    std::optional<double> least;
    const auto lower = [&](const std::filesystem::path& group) {
        if (const auto share = cpu_share(group)) least = std::min(least.value_or(*share), *share);
    };
    std::istringstream lines{std::string(own_groups)};
    for (std::string line;
         std::getline(lines, line);) {  // lines such as "0::/user.slice/shell", "4:cpu,cpuacct:/docker/1234"
        const std::size_t first = line.find(':');
        const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        const std::filesystem::path tree = controllers.empty() ? group_tree : group_tree / controllers;
        // Inside a container, the path may be the host's; then only the top of the tree exists.
        std::filesystem::path group = std::filesystem::path(line.substr(second + 1)).relative_path();
        for (; !group.empty(); group = group.parent_path()) lower(tree / group);
        lower(tree);
        if (controllers == "cpu,cpuacct" || controllers == "cpuacct,cpu") lower(group_tree / "cpu");
    }
    if (!least) return std::nullopt;
    return static_cast<int>(std::clamp(std::ceil(*least), 1.0, 1e6));
}

int default_threads() {
    std::ifstream file("/proc/self/cgroup");
    const std::string own_groups{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    return std::min(physical_cores(), cpu_limit("/sys/fs/cgroup", own_groups).value_or(physical_cores()));
}

HostMemory host_memory() {
    HostMemory memory{meminfo_bytes("MemTotal:"), meminfo_bytes("MemAvailable:")};
    // Control group version 2, as a container sees its own. "max" does not parse, so there is no limit.
    const auto limit = read_number("/sys/fs/cgroup/memory.max");
    const auto used = read_number("/sys/fs/cgroup/memory.current");
    if (limit && used && *limit < memory.total_bytes) {
        memory.total_bytes = *limit;
        // Page cache counts as used in a control group, but it can be dropped.
        std::ifstream statistics("/sys/fs/cgroup/memory.stat");
        std::string name;
        std::size_t value = 0;
        std::size_t cache = 0;
        while (statistics >> name >> value)
            if (name == "inactive_file" || name == "active_file") cache += value;
        const std::size_t held = *used - std::min(*used, cache);
        memory.available_bytes = std::min(memory.available_bytes, *limit - std::min(*limit, held));
    }
    return memory;
}

std::size_t peak_resident_bytes() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<std::size_t>(usage.ru_maxrss) * 1024;
}

std::filesystem::path program_folder() {
    std::error_code error;
    std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
    if (error) {  // no /proc in this root: use the path by which the program was started
        const auto* const started = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
        if (started == nullptr) return {};
        program = std::filesystem::canonical(started, error);
    }
    return error ? std::filesystem::path() : program.parent_path();
}

std::string cpu_model() {
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);) {
        const std::size_t colon = line.find(": ");
        if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
    }
    return "unknown";
}

std::vector<std::string> cpu_features() {
    std::vector<std::string> features;
#if defined(__x86_64__)
    // __builtin_cpu_supports() requires literals.
    const auto add = [&features](int supported, const char* name) {
        if (supported != 0) features.emplace_back(name);
    };
    add(__builtin_cpu_supports("sse4.2"), "sse4.2");
    add(__builtin_cpu_supports("avx"), "avx");
    add(__builtin_cpu_supports("fma"), "fma");
    add(__builtin_cpu_supports("avx2"), "avx2");
    add(__builtin_cpu_supports("avx512f"), "avx512f");
    add(__builtin_cpu_supports("avx512bw"), "avx512bw");
    add(__builtin_cpu_supports("avx512vl"), "avx512vl");
    add(__builtin_cpu_supports("avx512dq"), "avx512dq");
    add(__builtin_cpu_supports("avx512vnni"), "avx512vnni");
    add(__builtin_cpu_supports("avx512bf16"), "avx512bf16");
#endif
    return features;
}

}  // namespace slipstream::tools
