// json.dumps(): Python's spelling of JSON, to the byte.
#include <algorithm>
#include <cmath>

#include "runtime/text/chat/json_text.h"
#include "runtime/text/chat/objects.h"
#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/runtime.h"
#include "runtime/text/chat/sorting.h"
#include "runtime/text/chat/template_error.h"
#include "runtime/text/chat/unicode.h"

namespace slipstream::jinja {

namespace {

class Writer {
public:
    Writer(Runtime& runtime, TextBuilder& out, const JsonStyle& style) : runtime_(runtime), out_(out), style_(style) {}

    void write(const Value& value, int level) {
        runtime_.spend(1);
        switch (value.kind()) {
            case Kind::None:
                return out_.append("null");
            case Kind::Bool:
                return out_.append(value.truth() ? "true" : "false");
            case Kind::Int:
                return out_.append(fmt::format("{}", value.integer()));
            case Kind::Float:
                return out_.append(number(value.real()));
            case Kind::Text:
                return string(value.view());
            case Kind::List:
            case Kind::Tuple:
                return array(value.items(), level);
            case Kind::Dict:
                return object(value.dict(), level);
            default:
                if (const LongInteger* number = LongInteger::of(value)) return out_.append(number->digits());
                fail("Object of type {} is not JSON serializable", type_name(value));
        }
    }

private:
    static std::string number(double value) {
        if (std::isnan(value)) return "NaN";
        if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
        return float_text(value);
    }

    void string(std::string_view text) {
        runtime_.spend(static_cast<std::int64_t>(text.size() / 16));
        out_.append('"');
        while (!text.empty()) character(take_char(text));
        out_.append('"');
    }

    void character(const Char& c) {
        switch (c.code) {
            case '"':
                return out_.append("\\\"");
            case '\\':
                return out_.append("\\\\");
            case '\n':
                return out_.append("\\n");
            case '\r':
                return out_.append("\\r");
            case '\t':
                return out_.append("\\t");
            case '\f':
                return out_.append("\\f");
            case '\b':
                return out_.append("\\b");
            default:
                break;
        }
        if (c.code < 0x20) {
            escape(c.code);
        } else if (style_.characters == JsonCharacters::Unicode || c.code < 0x80) {
            out_.append(c.bytes);
        } else if (c.code < 0x10000) {
            escape(c.code);
        } else {
            // UTF-16, as JSON spells what does not fit four digits.
            escape(0xd800 + ((c.code - 0x10000) >> 10U));
            escape(0xdc00 + ((c.code - 0x10000) & 0x3ffU));
        }
    }

    void escape(char32_t unit) { out_.append(fmt::format("\\u{:04x}", static_cast<unsigned>(unit))); }

    void line_break(int level) {
        if (!style_.indent) return;
        out_.append('\n');
        out_.repeat(level, *style_.indent);
    }

    void array(const std::vector<Value>& items, int level) {
        if (items.empty()) return out_.append("[]");
        out_.append('[');
        for (std::size_t i = 0; i < items.size(); ++i) {
            if (i > 0) out_.append(style_.item_separator);
            line_break(level + 1);
            write(items[i], level + 1);
        }
        line_break(level);
        out_.append(']');
    }

    void object(const Dict& dict, int level) {
        if (dict.size() == 0) return out_.append("{}");
        std::vector<const Dict::Item*> items;
        for (const Dict::Item& item : dict.items()) items.push_back(&item);
        if (style_.keys == JsonKeys::Sorted)
            merge_sort(items, [this](const auto* a, const auto* b) { return less(runtime_, a->first, b->first); });
        out_.append('{');
        for (std::size_t i = 0; i < items.size(); ++i) {
            if (i > 0) out_.append(style_.item_separator);
            line_break(level + 1);
            key(items[i]->first);
            out_.append(style_.key_separator);
            write(items[i]->second, level + 1);
        }
        line_break(level);
        out_.append('}');
    }

    void key(const Value& value) {
        switch (value.kind()) {
            case Kind::Text:
                return string(value.view());
            case Kind::None:
                return string("null");
            case Kind::Bool:
                return string(value.truth() ? "true" : "false");
            case Kind::Int:
                return string(fmt::format("{}", value.integer()));
            case Kind::Float:
                return string(number(value.real()));
            default:
                fail("keys must be str, int, float, bool or None, not {}", type_name(value));
        }
    }

    Runtime& runtime_;
    TextBuilder& out_;
    const JsonStyle& style_;
};

}  // namespace

void write_json(Runtime& runtime, TextBuilder& out, const Value& value, const JsonStyle& style) {
    Writer(runtime, out, style).write(value, 0);
}

}  // namespace slipstream::jinja
