#include "tools/machine/environment.h"

#include <cstdlib>

namespace slipstream::tools {

EnvironmentReader process_environment() {
    return [](const std::string& name) -> std::optional<std::string> {
        const char* value = std::getenv(name.c_str());
        if (value == nullptr || *value == '\0') return std::nullopt;
        return std::string(value);
    };
}

}  // namespace slipstream::tools
