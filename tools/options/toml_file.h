// The configuration file: the part of TOML (toml.io, v1.0) that options need. Tables of one level, and as values
// strings, numbers, booleans and arrays of them; the rest (dotted keys, nested tables, multi-line strings, dates) is
// refused by line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace slipstream::tools {

struct TomlEntry {
    std::string section;  // "" before the first [section]
    std::string key;
    std::vector<std::string> values;  // one, or an array's elements; numbers as spelt, booleans "true" or "false"
    int line = 0;
};

/// Entries in file order. Throws UsageError "name:line: ..." where the text is not TOML or beyond the part above.
[[nodiscard]] std::vector<TomlEntry> parse_toml(std::string_view text, std::string_view name);

}  // namespace slipstream::tools
