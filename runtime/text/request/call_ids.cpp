#define XXH_INLINE_ALL
#include "runtime/text/request/call_ids.h"

#include <xxhash.h>

#include <algorithm>

#include <fmt/format.h>

namespace slipstream {

namespace {

constexpr std::size_t kIdBytes = 9;

bool has_nine_characters(std::string_view id) {
    return id.size() == kIdBytes && std::ranges::all_of(id, [](char c) {
               return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
           });
}

std::string in_nine_characters(std::string_view id) {
    return has_nine_characters(id) ? std::string(id) : nine_character_id(id);
}

}  // namespace

std::string nine_character_id(std::string_view text) {
    // Digits of an id, in base 36: nine digits distinguish 36^9, about 2^46.5, ids.
    constexpr std::string_view kDigits = "abcdefghijklmnopqrstuvwxyz0123456789";
    std::uint64_t hash = XXH3_64bits(text.data(), text.size());
    std::string id;
    for (std::size_t i = 0; i < kIdBytes; ++i, hash /= kDigits.size()) id += kDigits[hash % kDigits.size()];
    return id;
}

void CallIds::begin_calls() {
    calls_.clear();
    n_results_ = 0;
}

std::optional<std::string> CallIds::of_call(std::optional<std::string_view> given) {
    const std::size_t position = n_calls_++;
    if (rule_ == Rule::AsGiven) return given ? std::optional(std::string(*given)) : std::nullopt;
    calls_.push_back(given ? in_nine_characters(*given) : nine_character_id(fmt::format("call {}", position)));
    return calls_.back();
}

std::optional<std::string> CallIds::of_result(std::optional<std::string_view> given) {
    if (rule_ == Rule::AsGiven) return given ? std::optional(std::string(*given)) : std::nullopt;
    const std::size_t position = n_results_++;
    if (given) return in_nine_characters(*given);
    return position < calls_.size() ? calls_[position] : nine_character_id(fmt::format("result {}", position));
}

}  // namespace slipstream
