// Token ids in text files: integers separated by white space or commas.
#pragma once

#include <string_view>
#include <vector>

#include "runtime/model/model_config.h"

namespace slipstream::tools {

/// Returns the ids, each in [0, limit). `name` is the file's, for messages. Throws FormatError, which names the first
/// word that is no such id.
[[nodiscard]] std::vector<TokenId> parse_token_ids(std::string_view text, std::string_view name, std::int64_t limit);

}  // namespace slipstream::tools
