#include "draft/tables/frozen_table.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "draft/tables/cacheback_options.h"
#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"
#include "kernels/base/error.h"

namespace slipstream::draft {

namespace {

constexpr std::string_view kDamaged = "the frozen table is damaged; build it again";

TableReader section_of(const TableFile& file) {
    auto section = file.section(kFrozenTableSection);
    if (!section)
        throw FormatError(
            fmt::format("{}: not a frozen Cacheback table; make one with: slipstream tables build --kind "
                        "cacheback",
                        file.path().string()));
    return *std::move(section);
}

bool are_ids(std::span<const TokenId> tokens, std::int64_t vocab) {
    return std::ranges::all_of(tokens, [vocab](TokenId token) { return token >= 0 && token < vocab; });
}

bool holds(std::size_t n_words, std::size_t n_rows, std::size_t row) {
    return checked_mul(n_rows, row) == n_words;
}

}  // namespace

FrozenTable::FrozenTable(TableFile file, const FrozenTableKey& key) : file_(std::move(file)) {
    TableReader fields = section_of(file_);
    leader_tokens_ = fields.u32();
    follower_tokens_ = fields.u32();
    const std::uint64_t vocab = fields.u64();
    const std::uint64_t fingerprint = fields.u64();
    if (fingerprint != key.tokenizer_fingerprint || vocab > static_cast<std::uint64_t>(key.vocab))
        throw RequestError(
            fmt::format("{}: made with another tokenizer ({} ids, the model has {}); build one with "
                        "this model",
                        file_.path().string(), vocab, key.vocab));
    leaders_ = fields.i32s();
    first_ = fields.u32s();
    followers_ = fields.i32s();
    fields.finish();
    if (leader_tokens_ == 0 || leader_tokens_ > kMaxLeaderTokens || follower_tokens_ == 0 ||
        follower_tokens_ > kMaxFollowerTokens || first_.size() < 2)
        fields.fail(kDamaged);
    check_leaders(fields, static_cast<std::int64_t>(vocab));
    check_followers(fields, static_cast<std::int64_t>(vocab));
}

FrozenTable FrozenTable::open(const std::filesystem::path& path, const FrozenTableKey& key) {
    return FrozenTable(TableFile(path), key);
}

void FrozenTable::check_leaders(const TableReader& fields, std::int64_t vocab) {
    if (!holds(leaders_.size(), n_leaders(), leader_tokens_) || !are_ids(leaders_, vocab)) fields.fail(kDamaged);
    by_first_token_.assign(static_cast<std::size_t>(vocab) + 1, 0);
    for (Slot slot = 0; slot < n_leaders(); ++slot) {
        if (slot > 0 && !std::ranges::lexicographical_compare(leader(slot - 1), leader(slot))) fields.fail(kDamaged);
        ++by_first_token_[leader(slot).front() + 1];
    }
    for (std::size_t token = 1; token < by_first_token_.size(); ++token)
        by_first_token_[token] += by_first_token_[token - 1];
}

void FrozenTable::check_followers(const TableReader& fields, std::int64_t vocab) {
    const std::size_t n = followers_.size() / follower_tokens_;
    if (!holds(followers_.size(), n, follower_tokens_) || !are_ids(followers_, vocab) || n >= kNone ||
        first_.front() != 0 || first_.back() != n)
        fields.fail(kDamaged);
    is_last_.assign(n, false);
    for (Slot slot = 0; slot < n_leaders(); ++slot) {
        if (first_[slot + 1] <= first_[slot] || first_[slot + 1] > n) fields.fail(kDamaged);
        is_last_[first_[slot + 1] - 1] = true;
    }
}

FrozenTable::Slot FrozenTable::find(std::span<const TokenId> tokens) const {
    DCHECK(tokens.size() == leader_tokens_);
    // A negative id becomes a large number, which no leader starts with.
    const std::size_t token = static_cast<std::uint32_t>(tokens.front());
    if (token + 1 >= by_first_token_.size()) return kNone;
    Slot begin = by_first_token_[token];
    Slot end = by_first_token_[token + 1];
    if (leader_tokens_ == 1) return begin < end ? begin : kNone;
    const Slot behind = end;
    while (begin < end) {
        const Slot middle = begin + (end - begin) / 2;
        if (std::ranges::lexicographical_compare(leader(middle), tokens)) {
            begin = middle + 1;
        } else {
            end = middle;
        }
    }
    return begin < behind && std::ranges::equal(leader(begin), tokens) ? begin : kNone;
}

std::size_t FrozenTable::memory_bytes() const {
    return by_first_token_.capacity() * sizeof(std::uint32_t) + is_last_.capacity() / 8;
}

}  // namespace slipstream::draft
