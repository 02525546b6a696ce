// The n-grams of the context that N-Grammys drafts (Stewart et al. 2024, section 4.2, "context-derived n-grams", with q
// = 1; the paper finds 2 and 3 worse everywhere): what followed the last token earlier in the sequence.
//
// A draft is the w tokens after an earlier place of the last token. Drafts are ranked by the number of places that
// those w tokens follow, ties to the most recent. A place with fewer than w tokens after it gives no draft. Deviation
// from the paper: only the most recent 512 places of a token are counted, which bounds the work for common tokens.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/model/model_config.h"

namespace slipstream::draft {

/// Most earlier places of the last token that are examined, most recent first: bounds the work for common tokens, and
/// the size of ContextDrafts::drafts.
inline constexpr std::size_t kMostPlaces = 512;

/// One draft: tokens of the sequence, not owned, and the number of examined places that they follow.
struct ContextDraft {
    std::span<const TokenId> tokens;  // [w]
    std::int64_t count = 0;
};

/// The distinct drafts for the end of a sequence, best first.
struct ContextDrafts {
    std::array<ContextDraft, kMostPlaces> drafts;
    std::size_t n_drafts = 0;
    std::int64_t n_places = 0;  // places that gave a draft
    [[nodiscard]] std::span<const ContextDraft> best(std::size_t k) const {
        return std::span(drafts).first(k < n_drafts ? k : n_drafts);
    }
};

/// Returns the distinct drafts of `w` tokens each (at least 1, CHECKed) that followed earlier places of the last token
/// of `text`, best first. They point into `text`, which must stay alive. Reads each token of `text` at most once to
/// find the places.
[[nodiscard]] ContextDrafts context_drafts(std::span<const TokenId> text, std::size_t w);

}  // namespace slipstream::draft
