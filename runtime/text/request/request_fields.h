// Access to the fields of a request's objects.
#pragma once

#include <string_view>

#include "runtime/text/chat/value.h"

namespace slipstream {

/// Returns the value of the field `key`, or null if it is absent or null.
[[nodiscard]] inline const jinja::Value* find_field(const jinja::Dict& object, std::string_view key) {
    const jinja::Value* value = object.find(key);
    return value == nullptr || value->is_none() ? nullptr : value;
}

}  // namespace slipstream
