// A tool that a request offers to the model.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/chat/value.h"

namespace slipstream {

struct OfferedTool {
    std::string name;
    jinja::Value parameters = jinja::Value::none();  // the JSON schema of the arguments, or none
};

using OfferedTools = std::vector<OfferedTool>;

/// Returns the tool called `name`, or null. Valid as long as `tools`.
[[nodiscard]] inline const OfferedTool* find_tool(const OfferedTools& tools, std::string_view name) {
    const auto found = std::ranges::find(tools, name, &OfferedTool::name);
    return found == tools.end() ? nullptr : &*found;
}

}  // namespace slipstream
