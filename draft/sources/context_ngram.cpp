#include "draft/sources/context_ngram.h"

#include <algorithm>

#include "kernels/base/check.h"

namespace slipstream::draft {

ContextDrafts context_drafts(std::span<const TokenId> text, std::size_t w) {
    CHECK(w >= 1, "drafts of {} tokens", w);
    ContextDrafts found;
    std::size_t n_seen = 0;
    for (std::size_t behind = text.empty() ? 0 : text.size() - 1; behind > 0 && n_seen < kMostPlaces; --behind) {
        if (text[behind - 1] != text.back()) continue;
        ++n_seen;
        if (behind + w > text.size()) continue;
        found.drafts[found.n_places++] = {.tokens = text.subspan(behind, w), .count = 1};
    }
    const std::span<ContextDraft> all = std::span(found.drafts).first(found.n_places);
    const auto order = [](const ContextDraft& a, const ContextDraft& b) {
        return std::ranges::lexicographical_compare(a.tokens, b.tokens);
    };
    // Puts equal drafts next to each other, the most recent first.
    std::ranges::sort(all, [&](const ContextDraft& a, const ContextDraft& b) {
        if (order(a, b) || order(b, a)) return order(a, b);
        return a.tokens.data() > b.tokens.data();
    });
    for (const ContextDraft& draft : all) {
        if (found.n_drafts > 0 && std::ranges::equal(all[found.n_drafts - 1].tokens, draft.tokens)) {
            ++all[found.n_drafts - 1].count;
        } else {
            all[found.n_drafts++] = draft;
        }
    }
    std::ranges::sort(all.first(found.n_drafts), [](const ContextDraft& a, const ContextDraft& b) {
        return a.count != b.count ? a.count > b.count : a.tokens.data() > b.tokens.data();
    });
    return found;
}

}  // namespace slipstream::draft
