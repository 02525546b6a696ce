#include "tools/engine/kept_splits.h"

#include <charconv>
#include <fstream>
#include <numeric>
#include <string>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/base/error.h"
#include "offload/atomic_file.h"
#include "tools/base/text_parts.h"

namespace slipstream::tools {

namespace {

// Name of the file in the folder of the tables. It has one split per line, "19,9 KEY"; the first line of a key counts.
constexpr const char* kFileName = "splits.txt";
constexpr std::int64_t kMostParts = std::int64_t{1} << 20;  // layers or kv heads of a device; no model has more

}  // namespace

std::optional<std::vector<std::int64_t>> parse_parts(std::string_view text) {
    std::vector<std::int64_t> parts;
    for (const std::string_view part : split_list(text)) {
        std::int64_t n = 0;
        const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), n);
        if (error != std::errc() || end != part.data() + part.size() || n < 1 || n > kMostParts) return std::nullopt;
        parts.push_back(n);
    }
    return parts;
}

std::optional<std::vector<std::int64_t>> parse_parts(std::string_view text, std::size_t n_devices,
                                                     std::int64_t n_parts) {
    auto parts = parse_parts(text);
    if (!parts || parts->size() != n_devices ||
        std::accumulate(parts->begin(), parts->end(), std::int64_t{0}) != n_parts)
        return std::nullopt;
    return parts;
}

std::optional<std::vector<std::int64_t>> kept_split(const std::filesystem::path& folder, std::string_view key,
                                                    std::size_t n_devices, std::int64_t n_parts) {
    std::ifstream file(folder / kFileName);
    for (std::string line; std::getline(file, line);) {
        const std::size_t space = line.find(' ');
        if (space == std::string::npos || std::string_view(line).substr(space + 1) != key) continue;
        if (auto parts = parse_parts(std::string_view(line).substr(0, space), n_devices, n_parts)) return parts;
    }
    return std::nullopt;
}

std::vector<std::int64_t> keep_split(const std::filesystem::path& folder, std::string_view key,
                                     const std::vector<std::int64_t>& parts) {
    std::error_code ignored;  // if the folder cannot be made, writing the file fails
    make_private_folder(folder, ignored);
    // One write at the end of the file: if two programs keep a split at the same time, the first line counts for both.
    if (append_to_private_file(folder / kFileName, fmt::format("{} {}\n", fmt::join(parts, ","), key)) != 0)
        throw IoError(
            fmt::format("{}: the split of the model over the devices cannot be kept there; name another "
                        "folder by --tables, or give --shares {}",
                        (folder / kFileName).string(), fmt::join(parts, ",")));
    return kept_split(folder, key, parts.size(), std::accumulate(parts.begin(), parts.end(), std::int64_t{0}))
        .value_or(parts);
}

}  // namespace slipstream::tools
