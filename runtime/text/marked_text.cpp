#include "runtime/text/marked_text.h"

#include <algorithm>

namespace slipstream {

std::span<const TextSpan> spans_after(std::span<const TextSpan> spans, std::size_t byte) {
    const auto first = std::upper_bound(spans.begin(), spans.end(), byte,
                                        [](std::size_t at, const TextSpan& span) { return at < span.end; });
    return spans.subspan(first - spans.begin());
}

void append_span(std::vector<TextSpan>& spans, TextSpan span) {
    if (span.begin >= span.end) return;
    if (!spans.empty() && spans.back().end == span.begin)
        spans.back().end = span.end;
    else
        spans.push_back(span);
}

bool SaidBytes::any_in(TextSpan span) const {
    if (span.begin >= span.end) return false;
    const auto found = spans_after(spans_, begin_ + span.begin);
    return !found.empty() && found.front().begin < begin_ + span.end;
}

bool SaidBytes::all_in(TextSpan span) const {
    const auto found = spans_after(spans_, begin_ + span.begin);
    return !found.empty() && found.front().begin <= begin_ + span.begin && found.front().end >= begin_ + span.end;
}

std::vector<TextSpan> SaidBytes::spans(std::size_t size) const {
    std::vector<TextSpan> result;
    for (const TextSpan& span : spans_after(spans_, begin_)) {
        if (span.begin >= begin_ + size) break;
        append_span(result, {std::max(span.begin, begin_) - begin_, std::min(span.end, begin_ + size) - begin_});
    }
    return result;
}

bool MarkCarrier::is_mixed(TextSpan span) const {
    return said_.any_in(span) && !said_.all_in(span);
}

void MarkCarrier::replace(TextSpan from, TextSpan to) {
    copy_to(from.begin);
    if (said_.any_in({from.begin, std::max(from.end, from.begin + 1)})) append_span(out_, to);
    from_ = from.end;
    to_ = to.end;
}

void MarkCarrier::copy_to(std::size_t input_end) {
    for (const TextSpan& span : said_.from(from_).spans(input_end - from_))
        append_span(out_, {to_ + span.begin, to_ + span.end});
    to_ += input_end - from_;
    from_ = input_end;
}

std::vector<TextSpan> MarkCarrier::take(std::size_t input_size, std::size_t size) {
    copy_to(input_size);
    return SaidBytes(out_).spans(size);
}

}  // namespace slipstream
