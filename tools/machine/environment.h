// The process environment as a value that is passed down, so that tests can replace it.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace slipstream::tools {

/// Returns the value of a variable; nothing if it is not set or empty.
using EnvironmentReader = std::function<std::optional<std::string>(const std::string& name)>;

/// Returns a reader of this process's environment.
[[nodiscard]] EnvironmentReader process_environment();

}  // namespace slipstream::tools
