// A chain: the best child of the best child and so on, gamma guesses deep. The shape of classical speculative decoding
// (Leviathan et al. 2023, arXiv 2211.17192, algorithm 1), from any source.
#pragma once

#include <cstdint>
#include <functional>

#include "draft/models/model_source.h"
#include "draft/sources/table_source.h"

namespace slipstream::draft {

inline constexpr std::int64_t kLongestChain = 32;

/// Of chains of 1 to `longest` guesses, each accepted with the same probability behind an accepted one, the length that
/// commits most tokens a second (Leviathan et al. 2023, section 3.4). `seconds`: of making and checking a chain.
struct ChainChoice {
    std::int64_t guesses = 1;
    double tokens_per_second = 0.0;
};
[[nodiscard]] ChainChoice best_chain(double acceptance, std::int64_t longest,
                                     const std::function<double(std::int64_t guesses)>& seconds);

/// Grows a chain of at most `gamma` guesses under node 0 of `tree` (node 0 only), inside the request's limits; shorter
/// where the source has nothing more to say.
void propose_chain(TokenTree& tree, const ShapeRequest& request, std::int64_t gamma, TableSource& source);
/// The same from a source with passes of its own, one a guess; its max_nodes() is one more limit.
void propose_chain(TokenTree& tree, const ShapeRequest& request, std::int64_t gamma, ModelSource& source);

}  // namespace slipstream::draft
