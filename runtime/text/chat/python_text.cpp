#include "runtime/text/chat/python_text.h"

#include <fmt/format.h>

#include "runtime/text/chat/numbers.h"
#include "runtime/text/chat/template_error.h"
#include "runtime/text/chat/unicode.h"

namespace slipstream::jinja {

namespace {

constexpr std::size_t kShownBytes = 200;

std::string escaped(const Char& c) {
    // A broken part shows its first byte, as Python's surrogateescape does in spirit.
    if (c.is_broken()) return fmt::format("\\x{:02x}", static_cast<unsigned char>(c.bytes[0]));
    if (c.code == '\n') return "\\n";
    if (c.code == '\r') return "\\r";
    if (c.code == '\t') return "\\t";
    const auto code = static_cast<unsigned>(c.code);
    return code < 0x100     ? fmt::format("\\x{:02x}", code)
           : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                            : fmt::format("\\U{:08x}", code);
}

void write_text_repr(TextBuilder& out, const MarkedText& text) {
    const std::string_view bytes = text.bytes;
    const char quote = bytes.find('\'') != bytes.npos && bytes.find('"') == bytes.npos ? '"' : '\'';
    out.append(quote);
    std::size_t done = 0;  // what stands for itself is copied in runs
    for (std::size_t at = 0; at < bytes.size();) {
        const Char c = first_char(bytes.substr(at));
        const bool takes_backslash = c.code == static_cast<unsigned char>(quote) || c.code == '\\';
        if (takes_backslash || c.is_broken() || !is_printable(c.code)) {
            out.append(text, {done, at});
            done = takes_backslash ? at : at + c.bytes.size();
            out.append(takes_backslash ? "\\" : escaped(c), text.is_said_at(at) ? Origin::Said : Origin::Template);
        }
        at += c.bytes.size();
    }
    out.append(text, {done, bytes.size()});
    out.append(quote);
}

void write_items(Runtime& runtime, TextBuilder& out, const Value& value) {
    const bool is_tuple = value.is(Kind::Tuple);
    out.append(is_tuple ? '(' : '[');
    for (std::size_t i = 0; i < value.items().size(); ++i) {
        if (i > 0) out.append(", ");
        write_repr(runtime, out, value.items()[i]);
    }
    if (is_tuple && value.items().size() == 1) out.append(',');
    out.append(is_tuple ? ')' : ']');
}

void write_sequence(Runtime& runtime, TextBuilder& out, const Value& value) {
    switch (value.kind()) {
        case Kind::Range:
            return out.append(value.sequence().shown);
        case Kind::Generator:
            return out.append("<generator>");
        case Kind::Keys:
        case Kind::Values:
        case Kind::Items:
            out.append(type_name(value));
            out.append('(');
            write_items(runtime, out, value);
            return out.append(')');
        default:
            return write_items(runtime, out, value);
    }
}

void write_dict(Runtime& runtime, TextBuilder& out, const Dict& dict) {
    out.append('{');
    bool is_first = true;
    for (const auto& [key, value] : dict.items()) {
        if (!std::exchange(is_first, false)) out.append(", ");
        write_repr(runtime, out, key);
        out.append(": ");
        write_repr(runtime, out, value);
    }
    out.append('}');
}

}  // namespace

void write_repr(Runtime& runtime, TextBuilder& out, const Value& value) {
    runtime.spend(1);
    switch (value.kind()) {
        case Kind::Text:
            runtime.spend_chars(value.view().size());
            return write_text_repr(out, value.text().marked);
        case Kind::Dict:
            return write_dict(runtime, out, value.dict());
        case Kind::Object:
            return out.append(value.object().shown());
        case Kind::None:
            return out.append("None");
        case Kind::Bool:
            return out.append(value.truth() ? "True" : "False");
        case Kind::Int:
            return out.append(fmt::format_int(value.integer()).c_str());
        case Kind::LongInt:
            return out.append(value.view());
        case Kind::Float:
            return out.append(float_text(value.real()));
        case Kind::Undefined:
        case Kind::Missing:
            return out.append("Undefined");
        default:
            return write_sequence(runtime, out, value);
    }
}

void write_str(Runtime& runtime, TextBuilder& out, const Value& value) {
    if (value.is_text()) {
        runtime.spend_bytes(value.view().size());
        out.append(value.text().marked);
    } else if (!value.is_undefined()) {
        write_repr(runtime, out, value);
    }
}

Value to_text(Runtime& runtime, const Value& value) {
    if (value.is_text()) return value;
    TextBuilder out = runtime.builder();
    write_str(runtime, out, value);
    return runtime.text(out);
}

std::string quoted(std::string_view text) {
    return shown(Value(text));
}

std::string shown(const Value& value) {
    Runtime runtime({.max_steps = kShownBytes, .max_text_bytes = 16 * kShownBytes}, {});
    TextBuilder out = runtime.builder();
    if (value.is_text() && value.view().size() > kShownBytes) {
        write_text_repr(out, {std::string(value.view().substr(0, kShownBytes)), {}});
        return out.take().bytes + "...";
    }
    try {
        write_repr(runtime, out, value);
        return out.take().bytes;
    } catch (const TemplateError&) {
        return fmt::format("<{}>", type_name(value));  // too much for a message
    }
}

}  // namespace slipstream::jinja
