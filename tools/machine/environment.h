// The process environment as a value that is passed down, so that tests can give their own.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace slipstream::tools {

/// The value of a variable; nothing where it is not set, or empty.
using EnvironmentReader = std::function<std::optional<std::string>(const std::string& name)>;

/// What this process was started with.
[[nodiscard]] EnvironmentReader process_environment();

}  // namespace slipstream::tools
