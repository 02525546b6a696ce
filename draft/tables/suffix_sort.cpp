#include "draft/tables/suffix_sort.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

constexpr std::size_t kSuffixesPerReport = std::size_t{1} << 20;

// Suffixes [begin, end) of the array, equal as far as they have been compared.
struct Group {
    std::uint32_t begin;
    std::uint32_t end;
};

class SuffixSort {
public:
    SuffixSort(std::span<const std::int32_t> text, const SortProgress& progress) : text_(text), progress_(progress) {
        CHECK(text.size() < std::numeric_limits<std::uint32_t>::max(), "{} tokens", text.size());
    }

    std::vector<std::uint32_t> run() {
        sort_by_first_token();
        for (std::size_t h = 1; !open_.empty(); h *= 2) {
            std::vector<Group> still_open;
            for (const Group& group : open_) refine(group, h, still_open);
            open_ = std::move(still_open);
        }
        return std::move(suffixes_);
    }

private:
    void sort_by_first_token() {
        std::int32_t most = -1;
        for (const std::int32_t token : text_) {
            CHECK(token >= 0, "token {}", token);
            most = std::max(most, token);
        }
        std::vector<std::uint32_t> begins(static_cast<std::size_t>(std::int64_t{most} + 2));
        for (const std::int32_t token : text_) ++begins[static_cast<std::size_t>(token) + 1];
        for (std::size_t i = 1; i < begins.size(); ++i) begins[i] += begins[i - 1];
        rank_.resize(text_.size());
        for (std::size_t i = 0; i < text_.size(); ++i) rank_[i] = begins[static_cast<std::size_t>(text_[i])];
        for (std::size_t i = 0; i + 1 < begins.size(); ++i) note_group({begins[i], begins[i + 1]}, open_);
        suffixes_.resize(text_.size());
        for (std::size_t i = 0; i < text_.size(); ++i)
            suffixes_[begins[static_cast<std::size_t>(text_[i])]++] = static_cast<std::uint32_t>(i);
    }

    void note_group(const Group& group, std::vector<Group>& open) {
        if (group.end - group.begin > 1)
            open.push_back(group);
        else
            n_sorted_ += group.end - group.begin;
    }

    // Sorts a group by what stands h further on. Ranks are the begins of groups, so that splitting a group keeps every
    // comparison that was decided; they may change only after all of the group's keys have been read.
    void refine(const Group& group, std::size_t h, std::vector<Group>& still_open) {
        keys_.clear();
        for (std::uint32_t i = group.begin; i < group.end; ++i) {
            const std::size_t further = suffixes_[i] + h;
            const std::uint64_t rank = further < text_.size() ? std::uint64_t{rank_[further]} + 1 : 0;
            keys_.push_back(rank << 32 | suffixes_[i]);
        }
        std::ranges::sort(keys_);
        std::uint32_t begin = group.begin;
        for (std::uint32_t i = group.begin; i < group.end; ++i) {
            const std::size_t at = i - group.begin;
            if (keys_[at] >> 32 != keys_[begin - group.begin] >> 32) {
                note_group({begin, i}, still_open);
                begin = i;
            }
            suffixes_[i] = static_cast<std::uint32_t>(keys_[at]);
            rank_[suffixes_[i]] = begin;
        }
        note_group({begin, group.end}, still_open);
        n_since_report_ += keys_.size();
        if (n_since_report_ >= kSuffixesPerReport) {
            n_since_report_ = 0;
            if (progress_) progress_(static_cast<double>(n_sorted_), static_cast<double>(text_.size()));
        }
    }

    std::span<const std::int32_t> text_;
    const SortProgress& progress_;
    std::vector<std::uint32_t> suffixes_;  // [n]
    std::vector<std::uint32_t> rank_;      // [n], of the suffix that starts there: its group's begin
    std::vector<Group> open_;
    std::vector<std::uint64_t> keys_;  // of one group: rank further on, suffix
    std::size_t n_sorted_ = 0;
    std::size_t n_since_report_ = 0;
};

}  // namespace

std::vector<std::uint32_t> suffix_array(std::span<const std::int32_t> text, const SortProgress& progress) {
    return SuffixSort(text, progress).run();
}

}  // namespace slipstream::draft
