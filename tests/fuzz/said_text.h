// What people say makes no control token, whatever the vocabulary of a fuzz target holds.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/base/error.h"
#include "runtime/text/tokenizer/tokenizer.h"

namespace slipstream {

/// `text` as a message: no id of it begins or ends texts, but for the BOS that prompts begin with.
inline void check_said_text(const Tokenizer& tokenizer, std::string_view text) {
    MarkedText prompt{.bytes = "a", .said = {}};
    prompt.bytes += text;
    append_span(prompt.said, {1, prompt.bytes.size()});
    std::vector<TokenId> ends = tokenizer.end_tokens();
    for (const auto id : {tokenizer.bos_id(), tokenizer.eos_id()})
        if (id) ends.push_back(*id);
    std::vector<TokenId> ids;
    try {
        ids = tokenizer.encode_prompt(prompt);
    } catch (const RequestError&) {  // a pattern or a rule without end, of this text
        return;
    }
    const std::size_t first = tokenizer.adds_bos() || ids.size() == 1 ? 1 : 0;
    for (std::size_t i = first; i < ids.size(); ++i) {
        const TokenKind kind = tokenizer.token_kind(ids[i]);
        const bool is_control = kind == TokenKind::Control || kind == TokenKind::UserDefined;
        CHECK(!is_control || std::ranges::find(ends, ids[i]) == ends.end(), "id {} of what was said", ids[i]);
    }
}

}  // namespace slipstream
