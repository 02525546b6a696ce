// How a model was shared out over devices where that decides the bits of a text: layers over devices of several kinds,
// kv heads over unequal ones. Chosen once, kept in a file beside the tables, and the same from then on: what it is
// chosen by is measured, and a second start must not measure otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

namespace slipstream::tools {

/// "19,9": layers, or kv heads, of each device, one or more. Nothing where it is something else.
[[nodiscard]] std::optional<std::vector<std::int64_t>> parse_parts(std::string_view text);
/// The same for `n_devices`, `n_parts` in all.
[[nodiscard]] std::optional<std::vector<std::int64_t>> parse_parts(std::string_view text, std::size_t n_devices,
                                                                   std::int64_t n_parts);

/// Such numbers as they were kept for `key`, one line of text. Nothing where there are none; what else stands in the
/// file is passed over.
[[nodiscard]] std::optional<std::vector<std::int64_t>> kept_split(const std::filesystem::path& folder,
                                                                  std::string_view key, std::size_t n_devices,
                                                                  std::int64_t n_parts);

/// Keeps `parts` for `key`, unless another program was quicker; what is kept. Throws IoError where it cannot.
[[nodiscard]] std::vector<std::int64_t> keep_split(const std::filesystem::path& folder, std::string_view key,
                                                   const std::vector<std::int64_t>& parts);

}  // namespace slipstream::tools
