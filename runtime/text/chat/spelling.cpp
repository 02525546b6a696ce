#include "runtime/text/chat/spelling.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "kernels/base/check.h"
#include "runtime/text/chat/operators.h"
#include "runtime/text/chat/template_error.h"
#include "runtime/text/chat/unicode.h"
#include "runtime/text/json_parser.h"

namespace slipstream::jinja {

namespace {

// Limits what shown() writes of a value into an error message: a text is cut after this many bytes, and a value of
// another type may take this many steps.
constexpr std::size_t kShownBytes = 200;

// Returns what repr() writes for a character, or an empty text if it writes the character itself. For bytes that are
// not UTF-8, returns an escape of the first byte.
std::string python_escape(const Char& c, char quote) {
    if (c.is_broken()) return fmt::format("\\x{:02x}", static_cast<unsigned char>(c.bytes[0]));
    if (c.code == '\\' || c.code == static_cast<unsigned char>(quote)) return {'\\', static_cast<char>(c.code)};
    if (c.code == '\n') return "\\n";
    if (c.code == '\r') return "\\r";
    if (c.code == '\t') return "\\t";
    if (is_printable(c.code)) return {};
    const auto code = static_cast<unsigned>(c.code);
    return code < 0x100     ? fmt::format("\\x{:02x}", code)
           : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                            : fmt::format("\\U{:08x}", code);
}

std::string json_escape(const Char& c, bool is_ascii) {
    constexpr std::string_view kShort = "\"\\\n\r\t\f\b";
    constexpr std::string_view kLetters = "\"\\nrtfb";
    const std::size_t found = c.code < 0x80 ? kShort.find(static_cast<char>(c.code)) : std::string_view::npos;
    if (found != std::string_view::npos) return {'\\', kLetters[found]};
    if (c.code >= 0x20 && (c.code < 0x80 || !is_ascii)) return {};
    const auto code = static_cast<unsigned>(c.code);
    if (code < 0x10000) return fmt::format("\\u{:04x}", code);
    return fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + ((code - 0x10000) >> 10U), 0xdc00 + ((code - 0x10000) & 0x3ffU));
}

// Writes a value as JSON, or, without a style, as Python's repr() does.
class Writer {
public:
    Writer(Runtime& runtime, TextBuilder& out, const JsonStyle* json) : runtime_(runtime), out_(out), json_(json) {}

    void write(const Value& value, int level) {
        runtime_.spend(1);
        if (value.is_text()) return text(value.text());
        if (value.is_list_or_tuple()) return items(value, level);
        if (value.is(Kind::Dict)) return dict(value.dict(), level);
        if (scalar(value)) return;
        if (json_ != nullptr) fail("Object of type {} is not JSON serializable", type_name(value));
        switch (value.kind()) {
            case Kind::Range:
                return out_.append(value.sequence().shown);
            case Kind::Keys:
            case Kind::Values:
            case Kind::Items:
                out_.append(type_name(value));
                out_.append('(');
                items(value, level);
                return out_.append(')');
            case Kind::Undefined:
                return out_.append("Undefined");
            default:
                return out_.append(value.is(Kind::Object) ? value.object().shown()
                                                          : fmt::format("<{}>", type_name(value)));
        }
    }

private:
    bool scalar(const Value& value) {
        const bool is_json = json_ != nullptr;
        switch (value.kind()) {
            case Kind::None:
                out_.append(is_json ? "null" : "None");
                return true;
            case Kind::Bool:
                out_.append(value.truth() ? (is_json ? "true" : "True") : (is_json ? "false" : "False"));
                return true;
            case Kind::Int:
                out_.append(fmt::format_int(value.integer()).c_str());
                return true;
            case Kind::LongInt:
                out_.append(value.view());
                return true;
            case Kind::Float:
                if (is_json && !std::isfinite(value.real()))
                    out_.append(std::isnan(value.real()) ? "NaN" : value.real() < 0 ? "-Infinity" : "Infinity");
                else
                    out_.append(float_text(value.real()));
                return true;
            default:
                return false;
        }
    }

    void text(const Text& text) {
        const std::string_view bytes = text.bytes();
        runtime_.spend_chars(bytes.size());
        const auto has = [bytes](char c) { return bytes.find(c) != bytes.npos; };
        const char quote = json_ != nullptr || (has('\'') && !has('"')) ? '"' : '\'';
        out_.append(quote);
        std::size_t done = 0;  // end of what was written; unescaped characters are copied in runs
        for (std::size_t at = 0; at < bytes.size();) {
            if (const char byte = bytes[at];
                byte >= 0x20 && byte < 0x7f && byte != '\\' && byte != '"' && byte != '\'') {
                ++at;
                continue;
            }
            const Char c = first_char(bytes.substr(at));
            const std::string escape = json_ != nullptr ? json_escape(c, json_->is_ascii) : python_escape(c, quote);
            if (!escape.empty()) {
                out_.append(text.marked, {done, at});
                out_.append(escape, text.marked.origin_at(at));
                done = at + c.bytes.size();
            }
            at += c.bytes.size();
        }
        out_.append(text.marked, {done, bytes.size()});
        out_.append(quote);
    }

    // Writes what goes before an item: the separator, unless it is the first, and the line break.
    void next_item(bool is_first, int level) {
        if (json_ == nullptr) return out_.append(is_first ? "" : ", ");
        if (!is_first) out_.append(json_->item_separator);
        line_break(level);
    }

    void line_break(int level) {
        if (json_ == nullptr || !json_->indent) return;
        out_.append('\n');
        out_.repeat(level, *json_->indent);
    }

    void items(const Value& value, int level) {
        const bool is_tuple = json_ == nullptr && value.is(Kind::Tuple);
        out_.append(is_tuple ? '(' : '[');
        bool is_first = true;
        for (const Value& item : value.items()) {
            next_item(std::exchange(is_first, false), level + 1);
            write(item, level + 1);
        }
        if (is_tuple && value.items().size() == 1) out_.append(',');
        if (!is_first) line_break(level);
        out_.append(is_tuple ? ')' : ']');
    }

    void dict(const Dict& dict, int level) {
        std::vector<const Dict::Item*> items;
        for (const Dict::Item& item : dict.items()) items.push_back(&item);
        if (json_ != nullptr && json_->sorts_keys)
            merge_sort(items, [this](const auto* a, const auto* b) { return less(runtime_, a->first, b->first); });
        out_.append('{');
        bool is_first = true;
        for (const Dict::Item* item : items) {
            next_item(std::exchange(is_first, false), level + 1);
            key(item->first);
            write(item->second, level + 1);
        }
        if (!is_first) line_break(level);
        out_.append('}');
    }

    void key(const Value& value) {
        if (json_ == nullptr || value.is_text()) {
            write(value, 0);
        } else {
            out_.append('"');
            if (!scalar(value)) fail("keys must be str, int, float, bool or None, not {}", type_name(value));
            out_.append('"');
        }
        if (json_ == nullptr)
            out_.append(": ");
        else
            out_.append(json_->key_separator);
    }

    Runtime& runtime_;
    TextBuilder& out_;
    const JsonStyle* json_;
};

}  // namespace

void write_str(Runtime& runtime, TextBuilder& out, const Value& value) {
    if (value.is_text()) {
        runtime.spend_bytes(value.view().size());
        out.append(value.text().marked);
    } else if (!value.is_undefined()) {
        Writer(runtime, out, nullptr).write(value, 0);
    }
}

Value to_text(Runtime& runtime, const Value& value) {
    if (value.is_text()) return value;
    TextBuilder out = runtime.builder();
    write_str(runtime, out, value);
    return runtime.text(out);
}

void write_json(Runtime& runtime, TextBuilder& out, const Value& value, const JsonStyle& style) {
    Writer(runtime, out, &style).write(value, 0);
}

std::string repr_of(std::string_view text) {
    return shown(Value(text));
}

std::string shown(const Value& value) {
    const bool is_long = value.is_text() && value.view().size() > kShownBytes;
    Runtime runtime({.max_steps = kShownBytes, .max_text_bytes = 16 * kShownBytes}, {});
    TextBuilder out = runtime.builder();
    try {
        Writer(runtime, out, nullptr).write(is_long ? Value(value.view().substr(0, kShownBytes)) : value, 0);
        return out.take().bytes + (is_long ? "..." : "");
    } catch (const TemplateError&) {
        return fmt::format("<{}>", type_name(value));  // too long, or too expensive, for a message
    }
}

// Reads JSON into values without recursion: the JSON parser reports events, and open containers are kept on a stack.

namespace {

// Limits how deeply the containers of a JSON text may be nested, in levels, so that recursion over the value stays
// shallow.
constexpr std::size_t kMaxDepth = 100;

class Reader final : public JsonHandler {
public:
    Reader(std::string_view what, Runtime* runtime, Origin origin) : what_(what), runtime_(runtime), origin_(origin) {}

    bool null() override { return add(Value::none()); }
    bool boolean(bool value) override { return add(Value(value)); }
    bool number_integer(std::int64_t value) override { return add(Value(value)); }
    bool number_unsigned(std::uint64_t value) override {
        if (value > std::uint64_t{INT64_MAX}) return long_integer(fmt::format("{}", value));
        return add(Value(static_cast<std::int64_t>(value)));
    }
    bool number_float(double value, const std::string& text) override {
        // A number of digits only is an integer that nlohmann's types could not hold.
        if (text.find_first_of(".eE") == std::string::npos) return long_integer(text);
        return add(Value(value));
    }
    bool string(std::string& value) override { return add(text(value)); }
    bool binary(nlohmann::json::binary_t& /*value*/) override { CHECK(false, "JSON text holds no binary values"); }

    bool start_object(std::size_t /*size*/) override { return open(Kind::Dict); }
    bool start_array(std::size_t /*size*/) override { return open(Kind::List); }
    bool key(std::string& name) override {
        open_.back().key = text(name);
        return true;
    }
    bool end_object() override {
        Dict items = std::move(open_.back().dict);
        Value dict = runtime_ != nullptr ? runtime_->dict(std::move(items)) : Value::dict(std::move(items));
        open_.pop_back();
        return add(std::move(dict));
    }
    bool end_array() override {
        std::vector<Value> items = std::move(open_.back().items);
        n_open_ -= items.size();
        Value list = runtime_ != nullptr ? runtime_->list(std::move(items)) : Value::list(std::move(items));
        open_.pop_back();
        return add(std::move(list));
    }
    bool parse_error(std::size_t at, const std::string& /*token*/,
                     const nlohmann::json::exception& /*error*/) override {
        fail("{}: not JSON at byte {}", what_, at);
    }

    [[nodiscard]] Value take() { return std::move(result_); }

private:
    struct Open {
        Kind kind;
        std::vector<Value> items;
        Dict dict;
        Value key;
    };

    [[nodiscard]] Value text(std::string& value) {
        MarkedText marked{std::move(value), {}};
        if (origin_ == Origin::Said && !marked.bytes.empty()) marked.said.push_back({0, marked.bytes.size()});
        return runtime_ != nullptr ? runtime_->text(Text{std::move(marked)}) : Value(std::move(marked));
    }

    bool long_integer(std::string digits) { return add({Kind::LongInt, text(digits).cell()}); }

    bool open(Kind kind) {
        if (open_.size() == kMaxDepth) fail("{}: JSON nested deeper than {}", what_, kMaxDepth);
        open_.push_back({kind, {}, {}, {}});
        return true;
    }

    bool add(Value value) {
        if (runtime_ != nullptr) runtime_->spend(1);
        if (open_.empty()) {
            result_ = std::move(value);
        } else if (open_.back().kind == Kind::List) {
            if (runtime_ != nullptr) runtime_->check_items(2 * ++n_open_);
            open_.back().items.push_back(std::move(value));
        } else {
            if (runtime_ != nullptr) runtime_->check_items(4 * open_.back().dict.size());
            open_.back().dict.set(std::move(open_.back().key), std::move(value), runtime_);
        }
        return true;
    }

    std::string_view what_;
    Runtime* runtime_;
    Origin origin_;
    std::vector<Open> open_;
    std::size_t n_open_ = 0;  // number of items in lists that are not closed yet
    Value result_;
};

}  // namespace

Value parse_json(std::string_view text, std::string_view what, Runtime* runtime, Origin origin) {
    Reader reader(what, runtime, origin);
    parse_json_events(text, reader);
    return reader.take();
}

}  // namespace slipstream::jinja
