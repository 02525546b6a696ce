#include "draft/tables/documents.h"

#include <limits>

#include <fmt/format.h>

#include "kernels/base/check.h"
#include "kernels/base/error.h"

namespace slipstream::draft {

Documents::Documents(std::int64_t vocab) : vocab_(static_cast<std::int32_t>(vocab)) {
    CHECK(vocab > 0 && vocab < std::numeric_limits<std::int32_t>::max(), "{}", vocab);
}

void Documents::add(std::span<const TokenId> document) {
    if (document.empty()) return;
    if (document.size() >= kMaxTokens - tokens_.size())
        throw RequestError(fmt::format("a table of {} and {} tokens was asked for, the most are {}; leave some out",
                                       tokens_.size(), document.size(), kMaxTokens));
    for (const TokenId token : document) CHECK(token >= 0 && token < vocab_, "token {} of {}", token, vocab_);
    tokens_.insert(tokens_.end(), document.begin(), document.end());
    tokens_.push_back(vocab_);
    ++n_documents_;
}

}  // namespace slipstream::draft
