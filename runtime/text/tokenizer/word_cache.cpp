#include "runtime/text/tokenizer/word_cache.h"

#include "runtime/text/tokenizer/string_index.h"

namespace slipstream {

namespace {

constexpr std::size_t kFirstSlots = 256;

}  // namespace

std::optional<std::span<const TokenId>> WordCache::find(std::string_view word) {
    if (word.size() > kMaxWordBytes) return std::nullopt;
    if (slots_.empty()) slots_.resize(kFirstSlots);
    asked_hash_ = hash_of(word);
    std::size_t at = asked_hash_ & (slots_.size() - 1);
    for (; slots_[at] != 0; at = (at + 1) & (slots_.size() - 1)) {
        const Entry& entry = entries_[slots_[at] - 1];
        if (entry.hash == asked_hash_ && word_of(entry) == word)
            return std::span(ids_).subspan(entry.ids_at, entry.n_ids);
    }
    asked_slot_ = at;
    return std::nullopt;
}

void WordCache::remember(std::string_view word, std::span<const TokenId> ids) {
    if (word.size() > kMaxWordBytes) return;
    entries_.push_back({asked_hash_, static_cast<std::uint32_t>(words_.size()), static_cast<std::uint32_t>(ids_.size()),
                        static_cast<std::uint16_t>(word.size()), static_cast<std::uint16_t>(ids.size())});
    words_ += word;
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    slots_[asked_slot_] = static_cast<std::uint32_t>(entries_.size());
    if (entries_.size() >= kMaxWords) {
        entries_.clear();
        words_.clear();
        ids_.clear();
        slots_.assign(slots_.size(), 0);
    } else if (2 * entries_.size() >= slots_.size()) {
        grow();
    }
}

void WordCache::grow() {
    slots_.assign(4 * slots_.size(), 0);
    for (std::size_t i = 0; i < entries_.size(); ++i) {
        std::size_t at = entries_[i].hash & (slots_.size() - 1);
        while (slots_[at] != 0) at = (at + 1) & (slots_.size() - 1);
        slots_[at] = static_cast<std::uint32_t>(i + 1);
    }
}

}  // namespace slipstream
