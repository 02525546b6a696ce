#include "runtime/text/chat/text_builder.h"

#include "runtime/text/chat/template_error.h"

namespace slipstream::jinja {

void TextBuilder::repeat(std::int64_t count, std::string_view piece) {
    if (count <= 0 || piece.empty()) return;
    if (static_cast<std::uint64_t>(count) > (max_bytes_ - text_.size()) / piece.size()) too_long();
    for (; count > 0; --count) text_.append(piece);
}

void TextBuilder::too_long() const {
    fail("a text grows beyond {} bytes", max_bytes_);
}

}  // namespace slipstream::jinja
