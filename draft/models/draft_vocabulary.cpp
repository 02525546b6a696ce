#include "draft/models/draft_vocabulary.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/text/printable.h"
#include "runtime/text/tokenizer/tokenizer.h"

namespace slipstream::draft {

namespace {

// Most tokens that one vocabulary may have more than the other, as padding (llama.cpp allows as many).
constexpr std::int64_t kMostPadding = 128;

[[noreturn]] void refuse(const std::string& difference) {
    throw RequestError(
        fmt::format("the draft model does not share the target's vocabulary: {}; use another draft model", difference));
}

std::vector<TokenId> sorted_end_tokens(const Tokenizer& tokenizer) {
    std::vector<TokenId> ids = tokenizer.end_tokens();
    std::ranges::sort(ids);
    return ids;
}

std::string name_of(const std::optional<TokenId>& id) {
    return id ? std::to_string(*id) : "none";
}

void compare(const Tokenizer& target, const Tokenizer& draft) {
    const std::int64_t n_shared = std::min(target.vocab_size(), draft.vocab_size());
    for (TokenId id = 0; id < n_shared; ++id)
        if (target.piece(id) != draft.piece(id))
            refuse(fmt::format("token {} is '{}' there and '{}' in the target", id, printable(draft.piece(id)),
                               printable(target.piece(id))));
    if (std::max(target.vocab_size(), draft.vocab_size()) - n_shared > kMostPadding)
        refuse(fmt::format("it has {} tokens and the target {}, more than {} apart", draft.vocab_size(),
                           target.vocab_size(), kMostPadding));
    if (target.bos_id() != draft.bos_id())
        refuse(fmt::format("the beginning of a text is token {} there and {} in the target", name_of(draft.bos_id()),
                           name_of(target.bos_id())));
    const std::vector<TokenId> ends = sorted_end_tokens(target);
    if (const std::vector<TokenId> others = sorted_end_tokens(draft); others != ends)
        refuse(fmt::format("its end tokens are [{}] and the target's [{}]", fmt::join(others, ", "),
                           fmt::join(ends, ", ")));
}

}  // namespace

void check_draft_vocabulary(const ModelFiles& target, const ModelFiles& draft) {
    compare(*make_tokenizer(target.tokenizer_source()), *make_tokenizer(draft.tokenizer_source()));
}

}  // namespace slipstream::draft
