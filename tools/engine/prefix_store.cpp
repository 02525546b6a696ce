#include "tools/engine/engine.h"

#include <algorithm>
#include <vector>

namespace slipstream::tools {

std::int64_t PrefixStore::reuse(std::span<const TokenId> prompt, const std::function<void(std::int64_t)>& on_loss) {
    const std::vector<TokenId>& held = sequence_->tokens();
    const std::int64_t most = std::min({sequence_->n_computed(), std::ssize(held), std::ssize(prompt) - 1});
    const auto differ = std::mismatch(prompt.begin(), prompt.begin() + most, held.begin());
    const std::int64_t n_kept = sequence_->n_reusable(differ.first - prompt.begin(), std::ssize(prompt));
    if (n_kept == sequence_->n_computed()) return n_kept;
    if (on_loss && sequence_->target().positions_after_cut(n_kept) < n_kept) on_loss(n_kept);
    sequence_->keep_computed(n_kept);
    return sequence_->n_computed();
}

}  // namespace slipstream::tools
