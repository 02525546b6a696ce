#include "tools/engine/kept_splits.h"

#include <fstream>
#include <sstream>
#include <string>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/base/error.h"

namespace slipstream::tools {

namespace {

// A line a split, the first of a key counts: "19,9 KEY".
constexpr const char* kFileName = "splits.txt";

// "19,9"; nothing where it is something else.
std::optional<std::vector<std::int64_t>> parse_layers(const std::string& text) {
    std::vector<std::int64_t> layers;
    std::istringstream list(text);
    for (std::string part; std::getline(list, part, ',');) {
        if (part.empty() || part.size() > 6 || part.find_first_not_of("0123456789") != std::string::npos)
            return std::nullopt;
        layers.push_back(std::stoll(part));
        if (layers.back() == 0) return std::nullopt;
    }
    if (layers.empty()) return std::nullopt;
    return layers;
}

}  // namespace

std::optional<std::vector<std::int64_t>> kept_split(const std::filesystem::path& folder, std::string_view key) {
    std::ifstream file(folder / kFileName);
    for (std::string line; std::getline(file, line);) {
        const std::size_t space = line.find(' ');
        if (space == std::string::npos || std::string_view(line).substr(space + 1) != key) continue;
        if (auto layers = parse_layers(line.substr(0, space))) return layers;
    }
    return std::nullopt;
}

std::vector<std::int64_t> keep_split(const std::filesystem::path& folder, std::string_view key,
                                     const std::vector<std::int64_t>& layers) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    {
        // One write, at the end: lines of two programs do not mix.
        std::ofstream file(folder / kFileName, std::ios::app);
        const std::string line = fmt::format("{} {}\n", fmt::join(layers, ","), key);
        file.write(line.data(), static_cast<std::streamsize>(line.size()));
        if (!file.flush())
            throw IoError(
                fmt::format("{}: the split of the model over the devices cannot be kept there; name another "
                            "folder by --tables, or give --shares {}",
                            (folder / kFileName).string(), fmt::join(layers, ",")));
    }
    return kept_split(folder, key).value_or(layers);
}

}  // namespace slipstream::tools
