#include "offload/host_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace slipstream {

namespace {

constexpr std::size_t kUnknown = std::numeric_limits<std::size_t>::max();

// Returns the number after `key` in a file of lines "key number ..."; nullopt if there is none, or it may not fit.
std::optional<std::size_t> number_of(const std::filesystem::path& path, std::string_view key) {
    std::ifstream file(path);
    std::string line;
    while (std::getline(file, line)) {
        if (!line.starts_with(key) || line.size() <= key.size() || line[key.size()] != ' ') continue;
        const std::size_t begin = line.find_first_of("0123456789");
        if (begin == std::string::npos) return std::nullopt;
        const std::string digits = line.substr(begin, line.find_first_not_of("0123456789", begin) - begin);
        if (digits.size() > 18) return std::nullopt;  // numbers of up to 18 digits fit in 64 bits
        return std::stoull(digits);
    }
    return std::nullopt;
}

// Returns the number that a file holds; nullopt if the file is missing or holds a word ("max": no limit).
std::optional<std::size_t> number_in(const std::filesystem::path& path) {
    std::ifstream file(path);
    std::size_t number = 0;
    if (file >> number) return number;
    return std::nullopt;
}

// Returns the bytes that a control group has left below its limit; kUnknown if it has no limit. Cached files count as
// left, since the kernel drops them before it enforces the limit.
std::size_t left_in_group(const std::filesystem::path& group) {
    const auto limit = number_in(group / "memory.max");
    const auto used = number_in(group / "memory.current");
    if (!limit || !used) return kUnknown;
    const std::filesystem::path details = group / "memory.stat";
    const std::size_t cached =
        number_of(details, "inactive_file").value_or(0) + number_of(details, "active_file").value_or(0);
    const std::size_t held = *used - std::min(*used, cached);
    return *limit - std::min(*limit, held);
}

// Returns the control group (version 2) of this process, relative to the root group: a/b, if /proc/self/cgroup has the
// line "0::/a/b". Returns an empty path for the root group, or if there is none.
std::filesystem::path own_group(const std::filesystem::path& root) {
    std::ifstream file(root / "proc/self/cgroup");
    std::string line;
    while (std::getline(file, line)) {
        if (line.starts_with("0::/")) return std::filesystem::path(line.substr(4)).lexically_normal();
    }
    return {};
}

}  // namespace

std::size_t available_host_bytes(const std::filesystem::path& root) {
    std::size_t available = kUnknown;
    if (const auto kib = number_of(root / "proc/meminfo", "MemAvailable:")) available = *kib * 1024;
    const std::filesystem::path mount = root / "sys/fs/cgroup";
    std::filesystem::path group = own_group(root);
    for (;;) {
        available = std::min(available, left_in_group(mount / group));
        if (group.empty() || group == group.parent_path()) return available;
        group = group.parent_path();
    }
}

}  // namespace slipstream
