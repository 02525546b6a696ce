#include "runtime/text/chat/text_work.h"

#include <algorithm>

#include "runtime/text/chat/operators.h"
#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/template_error.h"

namespace slipstream::jinja {

Value strip_text(Runtime& runtime, const Value& self, Ends ends, const Given& given) {
    const std::string_view text = self.view();
    const bool of_chars = given.has_some(0);
    const TextSpan span =
        of_chars ? stripped(text, ends, given.text(0, "strip() argument").bytes()) : stripped(text, ends);
    const std::size_t gone = text.size() - (span.end - span.begin);
    runtime.spend_chars(gone * (of_chars ? 1 + given[0].view().size() : 1));
    return gone == 0 ? self : runtime.part(self.text(), span);
}

Value map_text(Runtime& runtime, const Value& self, LetterCase to) {
    runtime.spend_chars(2 * self.view().size());
    TextBuilder out = runtime.builder();
    append_mapped(out, self.text().marked, {0, self.view().size()}, to);
    return runtime.text(out);
}

Value capitalize_text(Runtime& runtime, const Value& self) {
    runtime.spend_chars(self.view().size());
    TextBuilder out = runtime.builder();
    const std::size_t head = self.view().empty() ? 0 : first_char(self.view()).bytes.size();
    append_mapped(out, self.text().marked, {0, head}, LetterCase::Title);
    append_mapped(out, self.text().marked, {head, self.view().size()}, LetterCase::Lower);
    return runtime.text(out);
}

Value replace_text(Runtime& runtime, const Value& self, const Text& from, const Text& to, std::int64_t count) {
    const std::string_view text = self.view();
    runtime.spend_bytes(text.size());
    TextBuilder out = runtime.builder();
    std::size_t done = 0;
    for (std::size_t at = 0; count != 0; --count) {
        // An empty text stands before each character and at the end.
        const std::size_t found = find_text(text, from.bytes(), at);
        if (found == std::string_view::npos) break;
        runtime.spend_bytes(to.bytes().size());
        out.append(self.text().marked, {done, found});
        out.append(to.marked);
        done = found + from.bytes().size();
        at = done;
        if (from.bytes().empty()) {
            if (at == text.size()) break;
            at += first_char(text.substr(at)).bytes.size();
        }
    }
    out.append(self.text().marked, {done, text.size()});
    return runtime.text(out);
}

namespace {

const Value& argument_of(const Arguments& arguments, std::string_view field, std::size_t& next) {
    const bool is_number = std::all_of(field.begin(), field.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (is_number) {
        const std::size_t index = field.empty() ? next++ : static_cast<std::size_t>(*parse_int(field));
        if (index >= arguments.positional.size())
            fail("Replacement index {} out of range for positional args tuple", index);
        return arguments.positional[index];
    }
    for (const auto& [name, value] : arguments.named)
        if (name == field) return value;
    fail("'{}'", field);
}

}  // namespace

Value format_text(Runtime& runtime, const Value& self, const Given& given) {
    const std::string_view text = self.view();
    runtime.spend_bytes(text.size());
    TextBuilder out = runtime.builder();
    std::size_t next = 0;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t brace = std::min(text.find_first_of("{}", at), text.size());
        out.append(self.text().marked, {at, brace});
        if (brace == text.size()) break;
        if (brace + 1 < text.size() && text[brace + 1] == text[brace]) {
            out.append(self.text().marked, {brace, brace + 1});
            at = brace + 2;
            continue;
        }
        if (text[brace] == '}') fail("Single '}}' encountered in format string");
        const std::size_t end = text.find('}', brace);
        if (end == std::string_view::npos) fail("expected '}}' before end of string");
        const std::string_view field = text.substr(brace + 1, end - brace - 1);
        if (field.find_first_of(":!.[{") != std::string_view::npos)
            fail("the format {} is not served in chat templates: format() takes {{}}, {{0}} and {{name}}",
                 quoted(text.substr(brace, end + 1 - brace)));
        runtime.spend(static_cast<std::int64_t>(given.all->named.size()) + 1);
        write_str(runtime, out, argument_of(*given.all, field, next));
        at = end + 1;
    }
    return runtime.text(out);
}

std::vector<Line> lines_of(Runtime& runtime, std::string_view text) {
    std::vector<Line> lines;
    for (std::size_t begin = 0; begin < text.size();) {
        std::size_t end = begin;
        while (end < text.size() && !is_line_break(first_char(text.substr(end)).code))
            end += first_char(text.substr(end)).bytes.size();
        std::size_t after = end;
        if (after < text.size())
            after += text.substr(after).starts_with("\r\n") ? 2 : first_char(text.substr(after)).bytes.size();
        runtime.check_items(4 * lines.size());  // twice as many, of two values' size
        lines.push_back({{begin, end}, after});
        begin = after;
    }
    return lines;
}

}  // namespace slipstream::jinja
