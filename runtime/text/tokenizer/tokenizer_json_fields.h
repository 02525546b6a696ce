// What the readers of a tokenizer.json's parts share. Includes the whole JSON header: for .cpp files that read JSON
// anyway.
#pragma once

#include <string>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "runtime/text/json_fields.h"

namespace slipstream {

[[noreturn]] inline void refuse_part(const std::string& where, std::string_view what) {
    throw Unsupported(fmt::format("{}: {} is not known to this version", where, printable(what)));
}

/// The field "type" of a part. Throws FormatError where there is none.
[[nodiscard]] inline std::string type_of(const nlohmann::json& part, const std::string& where) {
    if (!part.is_object()) throw FormatError(fmt::format("{}: is no object", where));
    const JsonFields fields(part, where);
    const auto type = fields.string("type");
    if (!type) fields.fail("type", "is missing");
    return *type;
}

[[nodiscard]] inline const nlohmann::json& list_field(const nlohmann::json& part, const char* key,
                                                      const std::string& where) {
    const auto found = part.find(key);
    if (found == part.end() || !found->is_array())
        throw FormatError(fmt::format("{}: field {} is no list", where, key));
    return *found;
}

}  // namespace slipstream
