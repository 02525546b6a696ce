// Parses configuration files: TOML (toml.io, v1.0), restricted to what options need. Tables have one level; values are
// strings, numbers, booleans, and arrays of these. Anything else (nested tables, dates) is an error that names the
// line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace slipstream::tools {

struct TomlEntry {
    std::string section;  // "" before the first [section]
    std::string key;
    std::vector<std::string>
        values;  // one value, or an array's elements; numbers in decimal, booleans "true" or "false"
    int line = 0;
};

/// Returns the entries in file order. Throws UsageError "name:line: ..." if the text is not TOML or uses what is not
/// supported; `name` is the file's.
[[nodiscard]] std::vector<TomlEntry> parse_toml(std::string_view text, std::string_view name);

}  // namespace slipstream::tools
