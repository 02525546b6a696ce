// What `inspect` says of a session of generate, a chat, and what they keep beside them of a prompt that is not
// finished.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace slipstream::tools {

enum class ReportLayout : std::uint8_t { Text, Json };

/// Returns the report of the session or chat at `path`; no value if the file is neither. Takes no lock, so that a
/// session may be inspected while it grows. Throws FormatError if it is damaged at its beginning.
[[nodiscard]] std::optional<std::string> session_report(const std::filesystem::path& path, ReportLayout layout);

}  // namespace slipstream::tools
