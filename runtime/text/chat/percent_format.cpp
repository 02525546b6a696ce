// "..." % values (Python library reference, "printf-style String Formatting").
#include <cmath>

#include "runtime/text/chat/format_spec.h"
#include "runtime/text/chat/markup.h"
#include "runtime/text/chat/numbers.h"
#include "runtime/text/chat/objects.h"
#include "runtime/text/chat/python_format.h"
#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/runtime.h"
#include "runtime/text/chat/template_error.h"
#include "runtime/text/chat/unicode.h"

namespace slipstream::jinja {

namespace {

constexpr std::int64_t kMaxWidth = std::int64_t{1} << 31;

class PercentFormatter {
public:
    PercentFormatter(Runtime& runtime, const Value& text, const Value& values)
        : runtime_(runtime),
          rest_(text.view()),
          is_markup_(text.text().is_markup),
          values_(values),
          out_(runtime.builder()) {
        if (!values.is(Kind::Tuple)) single_ = {values};
    }

    std::string run() {
        while (!rest_.empty()) {
            const std::size_t percent = std::min(rest_.find('%'), rest_.size());
            out_.append(rest_.substr(0, percent));
            rest_.remove_prefix(percent);
            if (!rest_.empty()) field();
        }
        // What can be asked for elements counts as a mapping, and mappings need not be used up.
        const bool mapping = values_.is(Kind::Dict) || values_.is(Kind::List) || values_.is_undefined() ||
                             (values_.is(Kind::Object) && dynamic_cast<Range*>(&values_.object()) != nullptr);
        if (used_ < items().size() && !mapping) fail("not all arguments converted during string formatting");
        return out_.take();
    }

private:
    [[nodiscard]] const std::vector<Value>& items() const {
        return values_.is(Kind::Tuple) ? values_.items() : single_;
    }

    char take() {
        if (rest_.empty()) fail("incomplete format");
        const char c = rest_.front();
        rest_.remove_prefix(1);
        return c;
    }

    Value next() {
        if (used_ == items().size()) fail("not enough arguments for format string");
        return items()[used_++];
    }

    Value named() {
        int open = 1;
        std::size_t at = 0;
        for (; at < rest_.size() && open > 0; ++at) open += rest_[at] == '(' ? 1 : rest_[at] == ')' ? -1 : 0;
        if (open > 0) fail("incomplete format key");
        const std::string_view key = rest_.substr(0, at - 1);
        rest_.remove_prefix(at);
        if (!values_.is(Kind::Dict)) fail("format requires a mapping");
        const Value* value = values_.dict().find(key);
        if (value == nullptr) fail("no key {} for the format", quoted(key));
        used_ = items().size();
        return *value;
    }

    // A number, or "*" for the next value; -1 where neither stands.
    std::int64_t number() {
        if (!rest_.empty() && rest_.front() == '*') {
            take();
            const Value value = next();
            if (!value.is_integral()) fail("* wants int");
            return value.integer();
        }
        std::int64_t result = -1;
        while (!rest_.empty() && rest_.front() >= '0' && rest_.front() <= '9') {
            result = std::max<std::int64_t>(result, 0) * 10 + (take() - '0');
            if (result > kMaxWidth) fail("width too big");
        }
        return result;
    }

    void field() {
        take();  // the percent sign
        runtime_.spend(1);
        Value value;
        if (!rest_.empty() && rest_.front() == '(') {
            take();
            value = named();
        }
        FormatSpec spec;
        spec.align = '>';
        flags(spec);
        if (const std::int64_t width = number(); width < -1) {
            spec.align = '<';
            spec.width = -width;
        } else {
            spec.width = std::max<std::int64_t>(width, 0);
        }
        if (!rest_.empty() && rest_.front() == '.') {
            take();
            spec.precision = std::max<std::int64_t>(number(), 0);
        }
        if (!rest_.empty() && (rest_.front() == 'h' || rest_.front() == 'l' || rest_.front() == 'L')) take();
        spec.type = take();
        if (spec.type == '%') {
            out_.append('%');
            return;
        }
        if (value.is_missing()) value = next();
        convert(value, spec);
    }

    void flags(FormatSpec& spec) {
        for (; !rest_.empty(); take()) {
            switch (rest_.front()) {
                case '-':
                    spec.align = '<';
                    spec.fill = " ";
                    break;
                case '+':
                    spec.sign = '+';
                    break;
                case ' ':
                    if (spec.sign == 0) spec.sign = ' ';
                    break;
                case '#':
                    spec.alternate = true;
                    break;
                case '0':
                    if (spec.align == '>') spec.fill = "0";
                    break;
                default:
                    return;
            }
        }
    }

    void convert(const Value& value, FormatSpec spec) {
        switch (spec.type) {
            case 's':
            case 'r':
            case 'a':
                return text(value, spec);
            case 'c':
                return character(value, spec);
            case 'd':
            case 'i':
            case 'u':
            case 'x':
            case 'X':
            case 'o':
                return integer(value, spec);
            case 'e':
            case 'E':
            case 'f':
            case 'F':
            case 'g':
            case 'G':
                return real(value, spec);
            default:
                fail("unsupported format character {}", quoted(std::string_view(&spec.type, 1)));
        }
    }

    void text(const Value& value, FormatSpec& spec) {
        if (spec.type == 'a') fail("the format %a is not served; use %r");
        runtime_.spend_for(value);
        TextBuilder written = runtime_.builder();
        if (spec.type == 's') {
            write_str(written, value);
        } else {
            write_repr(written, value);
        }
        std::string content = written.take();
        const bool safe = spec.type == 's' && value.is_text() && value.text().is_markup;
        if (is_markup_ && !safe) content = escape_html(content);
        if (spec.precision >= 0) content.resize(byte_offset(content, spec.precision));
        spec.fill = " ";
        pad_text(out_, content, spec);
    }

    void character(const Value& value, FormatSpec& spec) {
        spec.fill = " ";
        if (value.is_text() && value.text().n_chars == 1) return pad_text(out_, value.view(), spec);
        if (!value.is_integral()) fail("%c requires int or char");
        const std::int64_t code = value.integer();
        if (code < 0 || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) fail("%c arg not in range(0x110000)");
        std::string content;
        append_utf8(content, static_cast<char32_t>(code));
        pad_text(out_, content, spec);
    }

    void integer(const Value& value, FormatSpec& spec) {
        const bool decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
        refuse_number(value, decimal, spec.type);
        std::optional<std::int64_t> number =
            value.is_integral() ? std::optional(value.integer()) : truncate(value.real());
        if (!number) fail("cannot convert float NaN to integer");
        std::string digits = int_digits(*number, decimal ? 'd' : spec.type, false);
        if (spec.precision > static_cast<std::int64_t>(digits.size())) {
            TextBuilder zeros = runtime_.builder();
            zeros.repeat(spec.precision - static_cast<std::int64_t>(digits.size()), "0");
            digits.insert(0, zeros.text());
        }
        const std::string prefix = spec.alternate && !decimal ? std::string("0") + spec.type : std::string();
        pad(*number < 0, prefix, digits, spec);
    }

    void real(const Value& value, FormatSpec& spec) {
        if (!value.is_number()) fail("must be real number, not {}", type_name(value));
        const double number = value.real();
        const std::int64_t precision = spec.precision < 0 ? 6 : spec.precision;
        pad(std::signbit(number) && !std::isnan(number), "",
            float_digits(std::fabs(number), spec.type, precision, spec.alternate), spec);
    }

    void pad(bool negative, const std::string& prefix, std::string_view digits, FormatSpec& spec) {
        const std::string sign = negative ? "-" : spec.sign == 0 ? "" : std::string(1, spec.sign);
        if (spec.fill == "0") spec.align = '=';
        pad_number(out_, sign + prefix, digits, spec);
    }

    static void refuse_number(const Value& value, bool decimal, char type) {
        if (decimal && !value.is_number())
            fail("%{} format: a real number is required, not {}", type, type_name(value));
        if (!decimal && !value.is_integral())
            fail("%{} format: an integer is required, not {}", type, type_name(value));
    }

    Runtime& runtime_;
    std::string_view rest_;
    bool is_markup_;
    const Value& values_;
    std::vector<Value> single_;
    std::size_t used_ = 0;
    TextBuilder out_;
};

}  // namespace

Value format_percent(Runtime& runtime, const Value& text, const Value& values) {
    return runtime.text(PercentFormatter(runtime, text, values).run(), text.text());
}

}  // namespace slipstream::jinja
