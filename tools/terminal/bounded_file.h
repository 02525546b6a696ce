// Reads a whole text that the user names: from a regular file, a pipe or stdin. The size is limited, so that a wrong
// name (a device, a model file) is refused at once and not only when memory is full.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace slipstream::tools {

/// Returns the size limit in bytes for a text that must fit into a context of `context_tokens` (>= 0) tokens: 64 bytes
/// per token, at least 1 MiB. nullopt, and more than 2^20 tokens, count as 2^20 tokens.
[[nodiscard]] std::size_t most_text_bytes(std::optional<std::int64_t> context_tokens);

/// Returns all bytes of `path`; an empty path or "-" means stdin. Throws RequestError if `path` is neither a regular
/// file nor a pipe (stdin may also be a device) or if there are more than `most_bytes` bytes, IoError if the file
/// cannot be opened or read, and Interrupted after a signal. The errors name `what`, which says in words what was to be
/// read.
[[nodiscard]] std::string read_text(const std::filesystem::path& path, std::string_view what, std::size_t most_bytes);

/// Size limit in bytes for texts that no context length limits: input of `tables`, `perplexity` and `tokenize`, token
/// ids, recorded runs. 512 MiB, because Tokenizer::encode() refuses longer texts.
inline constexpr std::size_t kMostCorpusBytes = std::size_t{512} << 20;
/// Size limit in bytes for a configuration file or a chat template.
inline constexpr std::size_t kMostSettingBytes = std::size_t{4} << 20;

}  // namespace slipstream::tools
