// The id of a token: its index in the vocabulary.
#pragma once

#include <cstdint>

namespace slipstream {

using TokenId = std::int32_t;

}  // namespace slipstream
