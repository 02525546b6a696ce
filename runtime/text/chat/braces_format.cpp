// "...{}...".format(...) (Python library reference, "Format String Syntax").
#include <charconv>

#include "runtime/text/chat/attributes.h"
#include "runtime/text/chat/format_spec.h"
#include "runtime/text/chat/markup.h"
#include "runtime/text/chat/objects.h"
#include "runtime/text/chat/python_format.h"
#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/runtime.h"
#include "runtime/text/chat/template_error.h"

namespace slipstream::jinja {

namespace {

constexpr int kMaxNesting = 2;  // fields in the specification of a field

std::optional<std::int64_t> number_of(std::string_view text) {
    std::int64_t number = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool whole = !text.empty() && text.front() != '-' && stop == text.data() + text.size();
    if (whole && error != std::errc()) fail("Too many decimal digits in format string");
    return whole ? std::optional(number) : std::nullopt;
}

class BracesFormatter {
public:
    BracesFormatter(Runtime& runtime, const Text& text, const Arguments& arguments)
        : runtime_(runtime), is_markup_(text.is_markup), arguments_(arguments) {}

    std::string run(std::string_view text, int nesting) {
        if (nesting > kMaxNesting) fail("Max string recursion exceeded");
        TextBuilder out = runtime_.builder();
        while (!text.empty()) {
            const std::size_t brace = std::min(text.find_first_of("{}"), text.size());
            out.append(text.substr(0, brace));
            text.remove_prefix(brace);
            if (text.empty()) break;
            if (text.size() > 1 && text[1] == text[0]) {
                out.append(text[0]);
                text.remove_prefix(2);
            } else if (text[0] == '}') {
                fail("Single '}}' encountered in format string");
            } else {
                text.remove_prefix(1);
                field(out, take_field(text), nesting);
            }
        }
        return out.take();
    }

private:
    // The inside of "{...}", whose opening brace has been taken.
    static std::string_view take_field(std::string_view& text) {
        int open = 1;
        for (std::size_t at = 0; at < text.size(); ++at) {
            open += text[at] == '{' ? 1 : text[at] == '}' ? -1 : 0;
            if (open > 0) continue;
            const std::string_view inside = text.substr(0, at);
            text.remove_prefix(at + 1);
            return inside;
        }
        if (text.empty()) fail("Single '{{' encountered in format string");
        fail("expected '}}' before end of string");
    }

    void field(TextBuilder& out, std::string_view inside, int nesting) {
        runtime_.spend(1);
        const std::size_t name_end = std::min(find_outside_brackets(inside), inside.size());
        Value value = look_up(inside.substr(0, name_end));
        std::string_view rest = inside.substr(name_end);
        if (rest.starts_with('!')) {
            if (rest.size() < 2 || (rest.size() > 2 && rest[2] != ':')) fail("expected ':' after conversion specifier");
            value = converted(value, rest[1]);
            rest.remove_prefix(2);
        }
        std::string spec;
        if (!rest.empty()) spec = run(rest.substr(1), nesting + 1);
        runtime_.spend_for(value);
        if (!is_markup_) return format_value(out, value, spec);
        const bool is_safe = value.is_text() && value.text().is_markup;
        if (is_safe && !spec.empty()) fail("Unsupported format specification for Markup.");
        TextBuilder formatted = runtime_.builder();
        format_value(formatted, value, spec);
        out.append(is_safe ? formatted.take() : escape_html(formatted.text()));
    }

    // Where the field's name ends: ! or : outside of [].
    static std::size_t find_outside_brackets(std::string_view inside) {
        bool bracket = false;
        for (std::size_t i = 0; i < inside.size(); ++i) {
            if (inside[i] == '[') bracket = true;
            if (inside[i] == ']') bracket = false;
            if (!bracket && (inside[i] == '!' || inside[i] == ':')) return i;
        }
        return inside.size();
    }

    Value converted(const Value& value, char conversion) {
        if (conversion == 's') return to_text(runtime_, value);
        if (conversion != 'r') fail("Unknown conversion specifier {}", quoted(std::string_view(&conversion, 1)));
        runtime_.spend_for(value);
        TextBuilder written = runtime_.builder();
        write_repr(written, value);
        return runtime_.text(written.take());
    }

    Value look_up(std::string_view name) {
        const std::size_t end = std::min(name.find_first_of(".["), name.size());
        Value value = argument(name.substr(0, end));
        for (name.remove_prefix(end); !name.empty();) {
            if (name.front() == '.') {
                name.remove_prefix(1);
                const std::size_t stop = std::min(name.find_first_of(".["), name.size());
                if (stop == 0) fail("Empty attribute in format string");
                value = get_attribute(runtime_, value, name.substr(0, stop));
                name.remove_prefix(stop);
                continue;
            }
            const std::size_t stop = name.find(']');
            if (name.front() != '[' || stop == std::string_view::npos) fail("Missing ']' in format string");
            const std::string_view key = name.substr(1, stop - 1);
            if (key.empty()) fail("Empty attribute in format string");
            const auto index = number_of(key);
            value = get_item(runtime_, value, index ? Value(*index) : Value(key));
            name.remove_prefix(stop + 1);
        }
        return value;
    }

    Value argument(std::string_view name) {
        std::optional<std::int64_t> index = number_of(name);
        if (name.empty()) index = next_++;
        if (index) {
            if (static_cast<std::uint64_t>(*index) >= arguments_.positional.size())
                fail("Replacement index {} out of range for positional args tuple", *index);
            return arguments_.positional[static_cast<std::size_t>(*index)];
        }
        for (const auto& [key, value] : arguments_.named)
            if (key == name) return value;
        fail("no argument {} for the format", quoted(name));
    }

    Runtime& runtime_;
    bool is_markup_;
    const Arguments& arguments_;
    std::int64_t next_ = 0;
};

}  // namespace

Value format_braces(Runtime& runtime, const Value& text, const Arguments& arguments) {
    return runtime.text(BracesFormatter(runtime, text.text(), arguments).run(text.view(), 0), text.text());
}

}  // namespace slipstream::jinja
