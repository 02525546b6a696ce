// What the slots and the pages of a KV view hold, against the cache of which they are a part.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/float16.h"
#include "kernels/cpu/attention/kv_layout.h"
#include "kernels/cpu/attention/page_layout.h"
#include "runtime/view/view_builder.h"

namespace slipstream {

/// One layer of a view on a CPU device. `Viewed` has a model, a cache, a view, its builder, and a forward pass.
template <typename Viewed>
class ViewSlots {
public:
    ViewSlots(Viewed& viewed, std::int64_t layer)
        : viewed_(viewed),
          layer_(layer),
          shape_(viewed.cache.layout(layer)),
          offset_(viewed.view.n_text() - viewed.view.n_slots()),
          rows_(groups_of(viewed.builder.chosen(layer))),
          paged_(groups_of(viewed.builder.chosen_pages(layer))) {
        for (const GroupMove& move : viewed.builder.chosen(layer)) rows_[move.head][move.to] = move.from;
        std::vector<std::byte> chunk(shape_.chunk_bytes());
        for (std::int64_t i = 0; i * kChunkTokens < viewed.view.n_text(); ++i) {
            viewed.cache.read_chunk(viewed.forward->exec(), layer, i, chunk.data());
            chunks_.push_back(chunk);
        }
    }

    /// Returns what is wrong; empty: every slot holds the bytes of its position, pages hold the chosen groups in the
    /// order of the text, each number within half a step, and no position is there twice. Positions that no query sees
    /// any more, past a layer's window, may hold anything.
    [[nodiscard]] std::string problem() {
        for (std::int64_t head = 0; head < shape_.n_kv_heads; ++head) {
            std::vector<bool> there(static_cast<std::size_t>(viewed_.view.n_text()), false);
            for (std::int64_t slot = 0; slot < viewed_.view.n_slots(); ++slot) {
                const std::int64_t position = position_of(head, slot);
                if (position < 0 || position >= viewed_.view.n_text() || there[position])
                    return fmt::format("layer {}, head {}: slot {} is position {}", layer_, head, slot, position);
                there[position] = true;
                if (!is_seen(position)) continue;
                ++n_checked_;
                if (!is_same(head, slot, position))
                    return fmt::format("layer {}, head {}: slot {} of {} is not position {} of {}", layer_, head, slot,
                                       viewed_.view.n_slots(), position, viewed_.view.n_text());
            }
            if (viewed_.view.page_slots(layer_) == 0) continue;
            if (std::string what = page_problem(head, there); !what.empty())
                return fmt::format("layer {}, head {}: {}", layer_, head, what);
        }
        return {};
    }
    /// Returns how many rows problem() has compared.
    [[nodiscard]] std::int64_t n_checked() const { return n_checked_; }
    /// Returns how many of them are in pages.
    [[nodiscard]] std::int64_t n_paged() const { return n_paged_; }

private:
    using Groups = std::vector<std::vector<std::int64_t>>;  // [heads][groups kept]: the group of the text
    [[nodiscard]] Groups groups_of(std::span<const GroupMove> moves) const {
        Groups groups(static_cast<std::size_t>(shape_.n_kv_heads));
        for (const GroupMove& move : moves) groups[move.head].push_back(move.from);
        return groups;
    }
    [[nodiscard]] bool is_seen(std::int64_t position) const {
        const std::int64_t window = viewed_.model.config().window(layer_);
        return window == 0 || position + window > viewed_.view.n_text();
    }
    [[nodiscard]] std::int64_t position_of(std::int64_t head, std::int64_t slot) const {
        const auto& groups = rows_[head];
        const std::int64_t group = slot / kGroupTokens;
        if (group >= std::ssize(groups)) return slot + offset_;
        return groups[group] * kGroupTokens + slot % kGroupTokens;
    }
    [[nodiscard]] std::size_t k_offset(std::int64_t head, std::int64_t at, std::int64_t d) const {
        return cpu::k_step_offset(shape_, head, at / kStepTokens) +
               cpu::element_bytes(shape_, d * kStepTokens + at % kStepTokens);
    }
    [[nodiscard]] std::size_t v_offset(std::int64_t head, std::int64_t at, std::int64_t d) const {
        return cpu::v_row_offset(shape_, head, at) + cpu::element_bytes(shape_, d);
    }
    [[nodiscard]] std::size_t scale_offset(std::int64_t head, std::int64_t at, std::int64_t block) const {
        return cpu::k_step_offset(shape_, head, at / kStepTokens) + cpu::scale_offset(shape_, block, at % kStepTokens);
    }
    [[nodiscard]] bool is_same(std::int64_t head, std::int64_t slot, std::int64_t position) const {
        const std::byte* mine = viewed_.view.chunks(layer_)[slot / kChunkTokens];
        const std::byte* own = chunks_[position / kChunkTokens].data();
        slot %= kChunkTokens;
        position %= kChunkTokens;
        const std::size_t element = cpu::element_bytes(shape_, 1);
        bool same = true;
        for (std::int64_t d = 0; d < shape_.head_dim; ++d)
            same = same &&
                   std::memcmp(mine + k_offset(head, slot, d), own + k_offset(head, position, d), element) == 0 &&
                   std::memcmp(mine + v_offset(head, slot, d), own + v_offset(head, position, d), element) == 0;
        for (std::int64_t block = 0; block < shape_.head_scales(); ++block)
            for (const std::size_t part : {std::size_t{0}, shape_.part_bytes()})
                same = same && std::memcmp(mine + part + scale_offset(head, slot, block),
                                           own + part + scale_offset(head, position, block), 2) == 0;
        return same;
    }
    // Returns a number of a row of the cache, which is F16 or Q8_0; `part`: 0 for K, part_bytes() for V.
    [[nodiscard]] float number(std::int64_t head, std::int64_t position, std::int64_t d, std::size_t part) const {
        const std::byte* own = chunks_[position / kChunkTokens].data();
        const std::int64_t at = position % kChunkTokens;
        const std::byte* element = own + (part == 0 ? k_offset(head, at, d) : v_offset(head, at, d));
        std::uint16_t bits = 0;
        if (!shape_.has_scales()) {
            std::memcpy(&bits, element, sizeof(bits));
            return to_float(Half{bits});
        }
        std::memcpy(&bits, own + part + scale_offset(head, at, d / kQ8Block), sizeof(bits));
        const float scale = std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
        return scale * static_cast<float>(static_cast<std::int8_t>(*element));
    }
    [[nodiscard]] std::string page_problem(std::int64_t head, std::vector<bool>& there) {
        const PageRange& range = viewed_.builder.pages_of(layer_, head);
        std::vector<std::int64_t> groups = paged_[head];
        // A build of a view that keeps everything leaves full pages as they are: earlier groups without a gap.
        if (viewed_.builder.options().budget_tokens >= viewed_.cache.context_tokens()) {
            const auto n = static_cast<std::size_t>(range.n_slots / kGroupTokens);
            const std::int64_t first =
                groups.empty() ? viewed_.builder.options().sink_tokens / kGroupTokens + range.n_slots / kGroupTokens
                               : groups.front();
            for (std::int64_t group = first - 1; groups.size() < n; --group) groups.insert(groups.begin(), group);
        }
        if (range.n_slots != std::ssize(groups) * kGroupTokens)
            return fmt::format("{} slots in pages, {} groups", range.n_slots, groups.size());
        const LayerPages& pages = viewed_.view.pages(layer_);
        if (range.n_slots > pages.most_slots) return fmt::format("{} of {} slots", range.n_slots, pages.most_slots);
        if (const PageRange& read = pages.ranges[head];
            read.first_page != range.first_page || read.n_slots != range.n_slots)
            return fmt::format("{} slots from page {} are read", read.n_slots, read.first_page);
        std::int64_t before = -1;
        for (std::int64_t slot = 0; slot < range.n_slots; ++slot) {
            const std::int64_t position = groups[slot / kGroupTokens] * kGroupTokens + slot % kGroupTokens;
            if (position <= before || position >= viewed_.view.n_text() || there[position])
                return fmt::format("slot {} in pages is position {}", slot, position);
            there[position] = true;
            before = position;
            ++n_checked_;
            ++n_paged_;
            const std::size_t page =
                static_cast<std::size_t>(range.first_page + slot / kPageSlots) * viewed_.view.page_bytes(layer_);
            const cpu::PageParts<const std::byte> parts(pages.pages + page, shape_.head_dim);
            const std::int64_t at = slot % kPageSlots;
            for (std::int64_t d = 0; d < shape_.head_dim; ++d) {
                const std::uint32_t k = parts.k_codes[d * cpu::kSlotWords + at % 8] >> (at / 8 * 4) & 15U;
                const std::uint32_t v = parts.v_codes[at / 8 * shape_.head_dim + d] >> (at % 8 * 4) & 15U;
                if (!is_near(k, parts.k_scales[d], parts.k_minimums[d], number(head, position, d, 0)) ||
                    !is_near(v, parts.v_scales[at], parts.v_minimums[at],
                             number(head, position, d, shape_.part_bytes())))
                    return fmt::format("slot {} in pages is not position {}", slot, position);
            }
        }
        return {};
    }
    [[nodiscard]] static bool is_near(std::uint32_t code, Half scale, Half minimum, float number) {
        const float step = to_float(scale);
        const float decoded = step * static_cast<float>(code) + to_float(minimum);
        return std::abs(decoded - number) <= 0.501F * step + 1e-5F * std::abs(number);
    }

    Viewed& viewed_;
    std::int64_t layer_;
    KvLayout shape_;
    std::int64_t offset_;                         // of positions past what was chosen
    Groups rows_;                                 // in the order of slots
    Groups paged_;                                // in the order of the text
    std::vector<std::vector<std::byte>> chunks_;  // of the cache
    std::int64_t n_checked_ = 0;
    std::int64_t n_paged_ = 0;
};

}  // namespace slipstream
