// What followed the last token in this text: the context n-gram drafts of N-Grammys (Stewart et al. 2024, section 4.1,
// "context-derived n-grams", with q = 1; the paper finds 2 and 3 worse everywhere).
//
// A draft is the w tokens after an earlier place of the last token; drafts are ranked by how many places are followed
// by those w tokens, ties to the most recent. A place with fewer than w tokens behind it gives none. Deviation: of a
// common token only the most recent 512 places are counted, so that the work has a bound.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/model/model_config.h"

namespace slipstream::draft {

/// Of the last token, most recent first, that are looked at.
inline constexpr std::size_t kMostPlaces = 512;

/// One draft: tokens of the text, and how many of the places looked at they followed.
struct ContextDraft {
    std::span<const TokenId> tokens;  // [w]
    std::int64_t count = 0;
};

/// The distinct drafts behind the end of a text, best first.
struct ContextDrafts {
    std::array<ContextDraft, kMostPlaces> drafts;
    std::size_t n_drafts = 0;
    std::int64_t n_places = 0;  // that gave a draft
    [[nodiscard]] std::span<const ContextDraft> best(std::size_t k) const {
        return std::span(drafts).first(k < n_drafts ? k : n_drafts);
    }
};

/// Drafts of `w` >= 1 tokens each; they point into `text`. One look at each token of the text.
[[nodiscard]] ContextDrafts context_drafts(std::span<const TokenId> text, std::size_t w);

}  // namespace slipstream::draft
