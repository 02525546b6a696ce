#include "draft/tables/suffix_sort.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "kernels/base/check.h"

namespace slipstream::draft {

namespace {

constexpr std::size_t kSuffixesPerReport = std::size_t{1} << 20;  // sorted suffixes between two reports

// The suffixes at [begin, end) of the suffix array: all begin with the same tokens, as many as were compared so far.
struct Group {
    std::uint32_t begin;
    std::uint32_t end;
};

class SuffixSort {
public:
    SuffixSort(std::span<const std::int32_t> text, const SortProgress& progress)
        : progress_(progress), suffixes_(text.size()), rank_(text.size()) {
        CHECK(text.size() < std::numeric_limits<std::uint32_t>::max(), "{} tokens", text.size());
        std::iota(suffixes_.begin(), suffixes_.end(), 0U);
        for (std::size_t i = 0; i < text.size(); ++i) {
            CHECK(text[i] >= 0, "token {}", text[i]);
            rank_[i] = static_cast<std::uint32_t>(text[i]);
        }
        note_group({0, static_cast<std::uint32_t>(text.size())}, open_);
    }

    std::vector<std::uint32_t> run() {
        // h = 0 sorts by the tokens themselves.
        for (std::size_t h = 0; !open_.empty(); h = std::max<std::size_t>(1, 2 * h)) {
            std::vector<Group> still_open;
            for (const Group& group : open_) refine(group, h, still_open);
            open_ = std::move(still_open);
        }
        return std::move(suffixes_);
    }

private:
    // Adds the group to `open`, or counts it as sorted if it has one suffix.
    void note_group(const Group& group, std::vector<Group>& open) {
        if (group.end - group.begin > 1)
            open.push_back(group);
        else
            n_sorted_ += group.end - group.begin;
    }

    // Sorts a group by the ranks of the suffixes h further on. A rank is the begin of a group, so splitting a group
    // keeps all comparisons that were decided. Ranks may change only after all keys of the group have been read.
    void refine(const Group& group, std::size_t h, std::vector<Group>& still_open) {
        keys_.clear();
        for (std::uint32_t i = group.begin; i < group.end; ++i) {
            const std::size_t further = suffixes_[i] + h;
            const std::uint64_t rank = further < rank_.size() ? std::uint64_t{rank_[further]} + 1 : 0;
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
            if (progress_) progress_(static_cast<double>(n_sorted_), static_cast<double>(rank_.size()));
        }
    }

    const SortProgress& progress_;
    std::vector<std::uint32_t> suffixes_;  // [n]
    std::vector<std::uint32_t> rank_;  // [n], of the suffix that starts there: its token, later the begin of its group
    std::vector<Group> open_;
    // Keys of the suffixes of one group: rank h tokens further on (high 32 bits), then the suffix.
    std::vector<std::uint64_t> keys_;
    std::size_t n_sorted_ = 0;
    std::size_t n_since_report_ = 0;
};

}  // namespace

std::vector<std::uint32_t> suffix_array(std::span<const std::int32_t> text, const SortProgress& progress) {
    return SuffixSort(text, progress).run();
}

}  // namespace slipstream::draft
