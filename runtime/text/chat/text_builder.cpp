#include "runtime/text/chat/text_builder.h"

#include <algorithm>

#include "runtime/text/chat/template_error.h"

namespace slipstream {

namespace jinja {

void Account::overdrawn() const {
    fail("the template needs more than {} bytes at a time", max_bytes_);
}

void TextBuilder::grow(std::size_t more) {
    const std::size_t size = text_.bytes.size();
    if (more > max_bytes_ - size) fail("a text grows beyond {} bytes", max_bytes_);
    const std::size_t wanted = std::min(std::max(size + more, 2 * size), max_bytes_);
    account_.take(wanted - text_bytes_);
    text_bytes_ = wanted;
    std::string larger;  // a new string: reserve() of a string with capacity may allocate more than requested
    larger.reserve(wanted);
    text_.bytes = std::move(larger.append(text_.bytes));
}

void TextBuilder::mark(TextSpan span) {
    if (!text_.said.empty() && text_.said.back().end == span.begin) {
        text_.said.back().end = span.end;
        return;
    }
    account_.take(sizeof(TextSpan) * 2);
    mark_bytes_ += sizeof(TextSpan) * 2;  // charged twice, since a vector doubles its capacity
    text_.said.push_back(span);
}

void TextBuilder::append(const MarkedText& text, TextSpan part) {
    const std::size_t at = text_.bytes.size();
    append(std::string_view(text.bytes).substr(part.begin, part.end - part.begin));
    for (const TextSpan& span : spans_after(text.said, part.begin)) {
        if (span.begin >= part.end) break;
        mark({std::max(span.begin, part.begin) - part.begin + at, std::min(span.end, part.end) - part.begin + at});
    }
}

void TextBuilder::repeat(std::int64_t count, const MarkedText& text) {
    if (count <= 0 || text.bytes.empty()) return;
    if (static_cast<std::uint64_t>(count) > max_bytes_ / text.bytes.size())
        fail("a text grows beyond {} bytes", max_bytes_);
    make_room(count * text.bytes.size());
    if (text.said.empty() && text.bytes.size() == 1) {
        text_.bytes.append(static_cast<std::size_t>(count), text.bytes.front());
        return;
    }
    for (; count > 0; --count) append(text);
}

}  // namespace jinja

}  // namespace slipstream
