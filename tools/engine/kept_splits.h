// How the layers of a model were shared out over devices of several kinds: chosen once, kept in a file beside the
// tables, and the same from then on. The share of each kind decides the bits of a text, and what it is chosen by is
// measured: a second start must not measure otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

namespace slipstream::tools {

/// "19,9": layers of each of `n_devices`, one or more, of `n_layers` in all. Nothing where it is something else.
[[nodiscard]] std::optional<std::vector<std::int64_t>> parse_layers(std::string_view text, std::size_t n_devices,
                                                                    std::int64_t n_layers);

/// Such layers as they were kept for `key`, one line of text. Nothing where there are none; what else stands in the
/// file is passed over.
[[nodiscard]] std::optional<std::vector<std::int64_t>> kept_split(const std::filesystem::path& folder,
                                                                  std::string_view key, std::size_t n_devices,
                                                                  std::int64_t n_layers);

/// Keeps `layers` for `key`, unless another program was quicker; what is kept. Throws IoError where it cannot.
[[nodiscard]] std::vector<std::int64_t> keep_split(const std::filesystem::path& folder, std::string_view key,
                                                   const std::vector<std::int64_t>& layers);

}  // namespace slipstream::tools
