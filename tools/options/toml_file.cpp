#include "tools/options/toml_file.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <toml++/toml.h>

#include "tools/base/usage_error.h"

namespace slipstream::tools {

namespace {

class Reader {
public:
    explicit Reader(std::string_view name) : name_(name) {}

    void read(const std::string& section, const toml::table& table) {
        for (const auto& [key, node] : table) {
            if (const toml::table* inner = node.as_table()) {
                if (!section.empty()) fail(node, "a section is one name in brackets, [command]");
                read(std::string(key.str()), *inner);
            } else {
                add(section, std::string(key.str()), static_cast<int>(key.source().begin.line), node);
            }
        }
    }

    /// Returns the entries in file order; the library's tables are sorted by key.
    std::vector<TomlEntry> entries() {
        std::ranges::stable_sort(entries_, {}, &TomlEntry::line);
        return std::move(entries_);
    }

private:
    [[noreturn]] void fail(const toml::node& node, std::string_view what) const {
        throw UsageError(fmt::format("{}:{}: {}", name_, node.source().begin.line, what));
    }

    [[nodiscard]] std::string scalar(const toml::node& node) const {
        if (const auto* text = node.as_string()) return text->get();
        if (const auto* number = node.as_integer()) return fmt::format("{}", number->get());
        if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
        if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
        fail(node, "a value is a number, true, false, a \"text\" in quotes, or [an array] of these");
    }

    void add(const std::string& section, std::string key, int line, const toml::node& node) {
        TomlEntry entry{.section = section, .key = std::move(key), .values = {}, .line = line};
        if (const toml::array* list = node.as_array()) {
            for (const toml::node& value : *list) entry.values.push_back(scalar(value));
        } else {
            entry.values.push_back(scalar(node));
        }
        entries_.push_back(std::move(entry));
    }

    std::string_view name_;
    std::vector<TomlEntry> entries_;
};

}  // namespace

std::vector<TomlEntry> parse_toml(std::string_view text, std::string_view name) {
    Reader reader(name);
    try {
        reader.read("", toml::parse(text));
    } catch (const toml::parse_error& error) {
        throw UsageError(fmt::format("{}:{}: {}", name, error.source().begin.line, error.description()));
    }
    return reader.entries();
}

}  // namespace slipstream::tools
