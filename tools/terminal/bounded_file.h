// Texts of people, read whole: from a regular file, a pipe or stdin, and no more than a text can be, so that a name
// that was meant otherwise (a device, a model) is refused at once and not when memory is full.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace slipstream::tools {

/// Most bytes of a text that is to fit into a context of so many tokens; without a number, of the longest there is.
[[nodiscard]] std::size_t most_text_bytes(std::optional<std::int64_t> context_tokens);

/// All bytes of `path` (empty or "-": stdin). RequestError that names `what` where it is no such file or holds more
/// than `most_bytes`; IoError where it cannot be read; Interrupted.
[[nodiscard]] std::string read_text(const std::filesystem::path& path, std::string_view what, std::size_t most_bytes);

/// Most bytes of a text that no context bounds (tables, perplexity, ids, recordings): what a tokenizer takes at once.
inline constexpr std::size_t kMostCorpusBytes = std::size_t{512} << 20;
/// Most bytes of a configuration file or a template.
inline constexpr std::size_t kMostSettingBytes = std::size_t{4} << 20;

}  // namespace slipstream::tools
