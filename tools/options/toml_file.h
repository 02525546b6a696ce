// The configuration file: TOML (toml.io, v1.0), as much of it as options need. Tables of one level, and as values
// strings, numbers, booleans and arrays of them; the rest (nested tables, dates) is refused by line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace slipstream::tools {

struct TomlEntry {
    std::string section;  // "" before the first [section]
    std::string key;
    std::vector<std::string> values;  // one, or an array's elements; numbers in decimal, booleans "true" or "false"
    int line = 0;
};

/// Entries in file order. Throws UsageError "name:line: ..." where the text is not TOML or beyond what is said above.
[[nodiscard]] std::vector<TomlEntry> parse_toml(std::string_view text, std::string_view name);

}  // namespace slipstream::tools
