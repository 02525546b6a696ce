#include <algorithm>
#include <cmath>

#include "runtime/text/chat/json_text.h"
#include "runtime/text/chat/numbers.h"
#include "runtime/text/chat/operators.h"
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
            case Kind::Text:
                return string(value.text());
            case Kind::List:
            case Kind::Tuple:
                return array(value.items(), level);
            case Kind::Dict:
                return object(value.dict(), level);
            default:
                if (!scalar(value)) fail("Object of type {} is not JSON serializable", type_name(value));
        }
    }

private:
    bool scalar(const Value& value) {
        switch (value.kind()) {
            case Kind::None:
                out_.append("null");
                return true;
            case Kind::Bool:
                out_.append(value.truth() ? "true" : "false");
                return true;
            case Kind::Int:
                out_.append(fmt::format_int(value.integer()).c_str());
                return true;
            case Kind::LongInt:
                out_.append(value.view());
                return true;
            case Kind::Float:
                if (std::isnan(value.real())) {
                    out_.append("NaN");
                } else if (std::isinf(value.real())) {
                    out_.append(value.real() < 0 ? "-Infinity" : "Infinity");
                } else {
                    out_.append(float_text(value.real()));
                }
                return true;
            default:
                return false;
        }
    }

    void string(const Text& text) {
        const std::string_view bytes = text.bytes();
        runtime_.spend_chars(bytes.size());
        out_.append('"');
        std::size_t done = 0;  // what stands for itself is copied in runs
        for (std::size_t at = 0; at < bytes.size();) {
            const Char c = first_char(bytes.substr(at));
            const bool is_plain =
                c.code >= 0x20 && c.code != '"' && c.code != '\\' && (c.code < 0x80 || !style_.is_ascii);
            if (!is_plain) {
                out_.append(text.marked, {done, at});
                escape(c.code, text.marked.is_said_at(at) ? Origin::Said : Origin::Template);
                done = at + c.bytes.size();
            }
            at += c.bytes.size();
        }
        out_.append(text.marked, {done, bytes.size()});
        out_.append('"');
    }

    void escape(char32_t code, Origin origin) {
        constexpr std::string_view kShort = "\"\\\n\r\t\f\b";
        constexpr std::string_view kLetters = "\"\\nrtfb";
        const std::size_t found = code < 0x80 ? kShort.find(static_cast<char>(code)) : std::string_view::npos;
        if (found != std::string_view::npos) {
            out_.append(fmt::format("\\{}", kLetters[found]), origin);
        } else if (code < 0x10000) {
            out_.append(fmt::format("\\u{:04x}", static_cast<unsigned>(code)), origin);
        } else {  // UTF-16, as JSON spells what does not fit four digits
            out_.append(fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + ((code - 0x10000) >> 10U),
                                    0xdc00 + ((code - 0x10000) & 0x3ffU)),
                        origin);
        }
    }

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
        if (style_.sorts_keys)
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
        if (value.is_text()) return string(value.text());
        out_.append('"');
        if (!scalar(value)) fail("keys must be str, int, float, bool or None, not {}", type_name(value));
        out_.append('"');
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
