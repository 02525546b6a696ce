// Remembers how a model was split over devices if the split decides the bits of a text: layers over devices of several
// kinds, kv heads over unequal devices. Such a split is planned once and kept in a file in the folder of the tables,
// since it depends on measured rates, which differ from start to start.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

namespace slipstream::tools {

/// Parses "19,9": layers or kv heads of each device, one or more. Returns no value if `text` is anything else.
[[nodiscard]] std::optional<std::vector<std::int64_t>> parse_parts(std::string_view text);
/// Parses "19,9": layers or kv heads of each device. Returns no value unless `text` is a list of `n_devices` numbers
/// whose sum is `n_parts`.
[[nodiscard]] std::optional<std::vector<std::int64_t>> parse_parts(std::string_view text, std::size_t n_devices,
                                                                   std::int64_t n_parts);

/// Returns the numbers that were kept in `folder` for `key`, one line of text: those of the key's first line that has
/// `n_devices` numbers whose sum is `n_parts`; no value if there is none. All other lines of the file are ignored.
[[nodiscard]] std::optional<std::vector<std::int64_t>> kept_split(const std::filesystem::path& folder,
                                                                  std::string_view key, std::size_t n_devices,
                                                                  std::int64_t n_parts);

/// Keeps `parts` for `key`, unless another program has kept a split for it first. Returns what is kept. Throws IoError
/// if it cannot be written.
[[nodiscard]] std::vector<std::int64_t> keep_split(const std::filesystem::path& folder, std::string_view key,
                                                   const std::vector<std::int64_t>& parts);

}  // namespace slipstream::tools
