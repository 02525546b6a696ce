#include "runtime/text/chat/markup.h"

#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/runtime.h"

namespace slipstream::jinja {

std::string escape_html(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    for (const char c : text) {
        switch (c) {
            case '&':
                out += "&amp;";
                break;
            case '>':
                out += "&gt;";
                break;
            case '<':
                out += "&lt;";
                break;
            case '\'':
                out += "&#39;";
                break;
            case '"':
                out += "&#34;";
                break;
            default:
                out.push_back(c);
        }
    }
    return out;
}

Value escape(Runtime& runtime, const Value& value) {
    if (value.is_text() && value.text().is_markup) return value;
    const Value text = to_text(runtime, value);
    runtime.spend_for(text);
    return runtime.markup(escape_html(text.view()));
}

Value add_texts(Runtime& runtime, const Value& a, const Value& b) {
    runtime.spend(a.weight() + b.weight());
    TextBuilder out = runtime.builder();
    const bool marked = a.text().is_markup || b.text().is_markup;
    out.append(marked ? escape(runtime, a).view() : a.view());
    out.append(marked ? escape(runtime, b).view() : b.view());
    return runtime.text(out.take(), a.text().is_markup ? a.text() : b.text());
}

}  // namespace slipstream::jinja
