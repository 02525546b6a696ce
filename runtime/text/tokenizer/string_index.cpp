#include "runtime/text/tokenizer/string_index.h"

#include <bit>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace slipstream {

std::uint64_t hash_of(std::string_view text) {
    return XXH3_64bits(text.data(), text.size());
}

StringIndex::StringIndex(std::size_t n_strings) : slots_(std::bit_ceil(2 * n_strings + 2)), mask_(slots_.size() - 1) {}

}  // namespace slipstream
