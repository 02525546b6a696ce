#include "tests/tools/program_values.h"

#include <regex.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/tools/run_program.h"

namespace slipstream::tools {

namespace {

using nlohmann::json;
using Words = std::span<const std::string>;

// Words are apart by spaces, strings whole.
std::vector<std::string> words_of(std::string_view line) {
    std::vector<std::string> words;
    bool quoted = false;
    bool begins = true;
    for (std::size_t i = 0; i < line.size(); ++i) {
        if (line[i] == ' ' && !quoted) {
            begins = true;
            continue;
        }
        if (begins) words.emplace_back();
        begins = false;
        words.back() += line[i];
        if (line[i] == '\\' && quoted && i + 1 < line.size()) {
            words.back() += line[++i];
        } else if (line[i] == '"') {
            quoted = !quoted;
        }
    }
    return words;
}

bool is_operator(const std::string& word) {
    for (const char* one : {"=", "!=", "<", ">", "<=", ">=", "contains", "~"})
        if (word == one) return true;
    return false;
}

struct Comparison {
    std::vector<std::string> left, right;
    std::string comparison;
    double tolerance = 0.0;
    bool is_percentage = false;  // tolerance is a part of the right side
};

double number_of(const std::string& word) {
    double value = 0.0;
    const char* const end = word.data() + word.size();
    const auto [rest, error] = std::from_chars(word.data(), end, value);
    const std::string unit(rest, end);
    if (error != std::errc() || !std::isfinite(value) || (unit != "" && unit != "k" && unit != "M" && unit != "G"))
        throw std::runtime_error(fmt::format("'{}' is no number", word));
    for (const char one : {'k', 'M', 'G'}) {
        if (unit.empty()) break;
        value *= 1024.0;
        if (unit[0] == one) break;
    }
    return value;
}

Comparison parse(std::string_view line) {
    std::vector<std::string> words = words_of(line);
    const auto found = std::ranges::find_if(words, is_operator);
    if (found == words.end()) throw std::runtime_error(fmt::format("no operator in '{}'", line));
    Comparison result;
    result.comparison = *found;
    result.left.assign(words.begin(), found);
    result.right.assign(found + 1, words.end());
    const auto within = std::ranges::find(result.right, "within");
    if (within != result.right.end()) {
        const std::vector<std::string> limit(within + 1, result.right.end());
        result.right.erase(within, result.right.end());
        result.is_percentage = limit.size() == 2 && limit[1] == "%";
        if (result.comparison != "=" || limit.size() != (result.is_percentage ? 2 : 1))
            throw std::runtime_error(fmt::format("= ... within NUMBER, or NUMBER %, expected in '{}'", line));
        result.tolerance = number_of(limit[0]) * (result.is_percentage ? 0.01 : 1.0);
    }
    for (const auto* side : {&result.left, &result.right})
        if (side->size() % 2 == 0) throw std::runtime_error(fmt::format("a side of '{}' lacks a value", line));
    return result;
}

std::string shown(const json& value) {
    return value.is_discarded() ? "absent" : value.dump();
}

class Values {
public:
    Values(const std::filesystem::path& folder, const std::string& out) : folder_(folder), out_(out) {}

    // A side: values and the + - * / between them. `absent` is a discarded value.
    [[nodiscard]] json of(Words words) const {
        if (words.size() == 1) return value(words[0]);
        double sum = 0.0;
        double product = number(words[0]);
        double sign = 1.0;
        for (std::size_t i = 1; i + 1 < words.size(); i += 2) {
            const double next = number(words[i + 1]);
            if (words[i] == "*") {
                product *= next;
            } else if (words[i] == "/") {
                product /= next;
            } else if (words[i] == "+" || words[i] == "-") {
                sum += sign * product;
                sign = words[i] == "+" ? 1.0 : -1.0;
                product = next;
            } else {
                throw std::runtime_error(fmt::format("+ - * or / expected, found '{}'", words[i]));
            }
        }
        return sum + sign * product;
    }

private:
    [[nodiscard]] double number(const std::string& word) const {
        const json found = value(word);
        if (!found.is_number()) throw std::runtime_error(fmt::format("{} is {}, no number", word, shown(found)));
        return found;
    }

    [[nodiscard]] json value(const std::string& word) const {
        if (word == "absent") return json(json::value_t::discarded);
        if (word == "null" || word == "true" || word == "false" || word.find_first_of("\"[{") == 0)
            return json::parse(word);
        for (const char* function : {"size", "sum", "text"}) {
            if (!word.starts_with(fmt::format("{}(", function)) || !word.ends_with(')')) continue;
            const std::size_t begin = std::string_view(function).size() + 1;
            return applied(function, word.substr(begin, word.size() - begin - 1));
        }
        return word.find(':') == std::string::npos ? json(number_of(word)) : looked_up(word);
    }

    [[nodiscard]] json applied(std::string_view function, const std::string& argument) const {
        if (function == "text") return text(argument);
        if (function == "size" && argument.find(':') == std::string::npos) return text(argument).size();
        const json found = looked_up(argument);
        if (function == "size" && found.is_string()) return found.get_ref<const std::string&>().size();
        if (!found.is_structured()) throw std::runtime_error(fmt::format("{} is {}", argument, shown(found)));
        if (function == "size") return found.size();
        double sum = 0.0;
        int n_numbers = 0;
        for (const json& each : found) {
            if (!each.is_number()) continue;
            sum += each.get<double>();
            ++n_numbers;
        }
        if (n_numbers == 0) throw std::runtime_error(fmt::format("{} has no numbers", argument));
        return sum;
    }

    // FILE:KEY.KEY.0
    [[nodiscard]] json looked_up(const std::string& word) const {
        const std::size_t colon = word.find(':');
        const std::string file = word.substr(0, colon);
        const json whole = json::parse(text(file), nullptr, false);
        if (whole.is_discarded()) throw std::runtime_error(fmt::format("{} is not JSON", file));
        const json* at = &whole;
        for (std::size_t begin = colon + 1, end = 0; begin <= word.size(); begin = end + 1) {
            end = std::min(word.find('.', begin), word.size());
            const std::string key = word.substr(begin, end - begin);
            const bool is_index = at->is_array() && !key.empty() && key.find_first_not_of("0123456789") == key.npos;
            if (at->is_object() && at->contains(key)) {
                at = &at->at(key);
            } else if (is_index && std::stoul(key) < at->size()) {
                at = &at->at(std::stoul(key));
            } else {
                return json(json::value_t::discarded);
            }
        }
        return *at;
    }

    [[nodiscard]] std::string text(const std::string& file) const {
        if (file == "out") return out_;
        if (!std::filesystem::exists(folder_ / file)) throw std::runtime_error(fmt::format("there is no {}", file));
        return file_text((folder_ / file).string());
    }

    const std::filesystem::path& folder_;
    const std::string& out_;
};

// Whether a part of `text` matches.
bool matches(const std::string& expression, const std::string& text, int flags) {
    regex_t compiled{};
    const int error = regcomp(&compiled, expression.c_str(), REG_EXTENDED | REG_NOSUB | flags);
    if (error != 0) throw std::runtime_error(fmt::format("'{}' is no regular expression", expression));
    const std::unique_ptr<regex_t, void (*)(regex_t*)> owner(&compiled, regfree);
    regmatch_t range{0, static_cast<regoff_t>(text.size())};  // text may have bytes 0
    return regexec(&compiled, text.c_str(), 1, &range, REG_STARTEND) == 0;
}

bool is_true(const Comparison& all, const json& left, const json& right) {
    const std::string& comparison = all.comparison;
    if (comparison == "=" && all.tolerance > 0.0) {
        const double bound = all.tolerance * (all.is_percentage ? std::abs(right.get<double>()) : 1.0);
        return std::abs(left.get<double>() - right.get<double>()) <= bound;
    }
    if (comparison == "=" || comparison == "!=") {
        const bool equal =
            left.is_discarded() || right.is_discarded() ? left.is_discarded() && right.is_discarded() : left == right;
        return equal == (comparison == "=");
    }
    if (comparison == "contains" || comparison == "~") {
        const auto& text = left.get_ref<const std::string&>();
        const auto& part = right.get_ref<const std::string&>();
        return comparison == "contains" ? text.find(part) != std::string::npos
                                        : matches(fmt::format("^({})$", part), text, 0);
    }
    if (!left.is_number() || !right.is_number()) throw std::runtime_error("numbers expected");
    if (comparison == "<") return left < right;
    if (comparison == ">") return left > right;
    return comparison == "<=" ? left <= right : left >= right;
}

}  // namespace

ValueReader::ValueReader(std::filesystem::path folder, std::string out)
    : folder_(std::move(folder)), out_(std::move(out)) {}

void ValueReader::check_syntax(std::string_view line) {
    static_cast<void>(parse(line));
}

bool ValueReader::reads_out(std::string_view line) {
    return std::ranges::any_of(words_of(line), [](const std::string& word) {
        const std::size_t bracket = word.find('(');
        const std::string file = word.starts_with('"') || bracket == word.npos ? word : word.substr(bracket + 1);
        return file.starts_with("out:") || file == "out)";
    });
}

std::string ValueReader::judge(std::string_view line) const {
    const Comparison all = parse(line);
    const Values values(folder_, out_);
    const json left = values.of(all.left);
    const json right = values.of(all.right);
    const std::vector<std::string> absent{"absent"};
    if (all.left != absent && all.right != absent && (left.is_discarded() || right.is_discarded()))
        throw std::runtime_error(left.is_discarded() ? "the left side is absent" : "the right side is absent");
    try {
        if (is_true(all, left, right)) return "";
    } catch (const std::exception& error) {
        throw std::runtime_error(fmt::format("{} {} {}: {}", shown(left), all.comparison, shown(right), error.what()));
    }
    return fmt::format("{} {} {}", shown(left), all.comparison, shown(right));
}

bool matches_part(const std::string& expression, const std::string& text) {
    return matches(expression, text, REG_NEWLINE);
}

}  // namespace slipstream::tools
