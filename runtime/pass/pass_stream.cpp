#include "runtime/pass/pass_stream.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "kernels/base/checked_math.h"
#include "kernels/base/error.h"
#include "kernels/base/philox.h"
#include "runtime/pass/error_context.h"

namespace slipstream {

namespace {

constexpr std::int64_t kMostInRing = 4096;  // items in a ring at once

// Returns the slots of the largest items over all of `reads`. Throws OutOfBudget if the ring does not hold two of each.
RingSlots checked_slots(const std::vector<PassReads>& reads, ExpertMisses misses, std::string_view device,
                        std::size_t ring_bytes) {
    RingSlots most;
    for (const PassReads& both : reads) {
        const RingSlots slots = ring_slots(both, misses);
        most.scheduled = std::max(most.scheduled, slots.scheduled);
        most.on_demand = std::max(most.on_demand, slots.on_demand);
    }
    if (ring_bytes >= most.least_ring_bytes()) return most;
    const std::size_t largest = std::max(most.scheduled, most.on_demand);
    const std::string experts =
        std::min(most.scheduled, most.on_demand) == 0
            ? fmt::format("the largest item that streams, {} bytes", largest)
            : fmt::format("the largest item that streams, {} bytes, and two of an expert, {} bytes", most.scheduled,
                          most.on_demand);
    throw OutOfBudget(fmt::format("{}: a ring of {} bytes does not hold two of {}; raise --ring or --device-memory",
                                  device, ring_bytes, experts));
}

// Returns the most items on demand that a layer can need.
std::int64_t most_needed_items(const Model& model) {
    std::vector<std::int64_t> n(model.config().n_layers() + 1, 0);
    for (std::int32_t i = 0; i < std::ssize(model.items()); ++i)
        if (model.is_on_demand(i)) ++n[model.items()[i].layer];
    return *std::ranges::max_element(n);
}

}  // namespace

PassStream::PassStream(const std::vector<PassReads>& reads, PinnedArena& arena, std::size_t ring_bytes,
                       std::span<const std::int32_t> expert_slots, MissRules misses)
    : arena_(&arena), misses_(std::move(misses)) {
    CHECK(!reads.empty());
    Device& device = reads.front().model->device();
    CHECK(misses_.misses == ExpertMisses::Copy || device.shares_host_memory(),
          "{} does not compute from host memory, with the bits that it has itself", device.name());
    parts_ = divide_ring(ring_bytes, checked_slots(reads, misses_.misses, device.name(), ring_bytes));
    std::int64_t n_items = 0;
    std::int64_t n_chunks = 0;
    std::int64_t n_needed = 0;
    for (const PassReads& both : reads) {
        n_items = std::max(n_items, most_scheduled_items(both, parts_.scheduled));
        n_chunks = std::max(n_chunks, ceil_div(both.kv->nodes().context_tokens(), kChunkTokens));
        if (copies_on_demand()) n_needed = std::max(n_needed, most_needed_items(*both.model));
    }
    region_ = device.allocate(ring_bytes, MemoryTag::Ring, "the transfer ring");
    const std::span<std::byte> region(region_.data(), region_.size_bytes());
    copy_in_ = device.make_stream(StreamKind::CopyIn);
    ring_ = std::make_unique<TransferRing>(device, region.first(parts_.scheduled), *copy_in_,
                                           std::clamp<std::int64_t>(2 * n_items, 1, kMostInRing));
    prefetcher_ = std::make_unique<PassPrefetcher>(*ring_, *this, n_items);
    for (Schedule& schedule : schedules_) schedule.items.reserve(n_items);
    segment_.assign(n_chunks, nullptr);
    const bool has_slots = std::ranges::any_of(expert_slots, [](std::int32_t n) { return n > 0; });
    CHECK(copies_on_demand() || !has_slots, "slots, and nothing is copied to them");
    if (n_needed == 0) return;
    needed_.reserve(n_needed);
    demand_copies_ = device.make_stream(StreamKind::CopyIn);
    demand_ring_ = std::make_unique<TransferRing>(device, region.subspan(parts_.scheduled), *demand_copies_,
                                                  std::min<std::int64_t>(2 * n_needed, kMostInRing));
    if (has_slots) make_cache(reads, expert_slots);
}

void PassStream::make_cache(const std::vector<PassReads>& reads, std::span<const std::int32_t> expert_slots) {
    const Model& model = *reads.front().model;
    CHECK(std::ranges::all_of(reads, [&](const PassReads& both) { return both.model == &model; }) &&
              std::ssize(expert_slots) == model.config().n_layers(),
          "slots of {} layers for several models, or one of {}", expert_slots.size(), model.config().n_layers());
    std::vector<ItemCache::Group> groups(expert_slots.size());
    for (std::size_t layer = 0; layer < groups.size(); ++layer) groups[layer].n_slots = expert_slots[layer];
    for (std::int32_t i = 0; i < std::ssize(model.items()); ++i) {
        const WeightItem& item = model.items()[i];
        if (item.expert == kNoExpert) continue;
        CHECK(model.streams(i), "expert {} of layer {} is resident beside slots", item.expert, item.layer);
        ItemCache::Group& group = groups[item.layer];
        group.n_items = std::max(group.n_items, item.expert + 1);
        group.item_bytes = std::max(group.item_bytes, item.bytes);
    }
    Device& device = model.device();
    slots_region_ = device.allocate(ItemCache::region_bytes(groups), MemoryTag::Weights, "slots of experts");
    cache_ = std::make_unique<ItemCache>(device, std::span(slots_region_.data(), slots_region_.size_bytes()), groups,
                                         *demand_copies_);
    cached_model_ = &model;
    std::int32_t most = 0;
    for (const ItemCache::Group& group : groups) {
        uses_.emplace_back(group.n_items);
        most = std::max(most, group.n_items);
    }
    scores_ = ExpertCounts(most);
    held_.reserve(static_cast<std::size_t>(most));
    needed_experts_.reserve(static_cast<std::size_t>(most));
    takes_.reserve(static_cast<std::size_t>(most));
}

PassStream::~PassStream() {
    if (n_made_ > n_begun_) drop_schedule();
}

void PassStream::next_schedule(std::vector<TransferItem>& copies) {
    CHECK(n_made_ <= n_begun_, "a schedule made further ahead than one pass");
    Schedule& made = schedules_[++n_made_ % 2];
    made.reads = reads_;
    HostKv* host = made.reads.kv->host();
    made.host_chunks = host != nullptr ? host->snapshot(*this) : 0;
    make_schedule(made.reads, made.host_chunks, parts_.scheduled, made.items, copies);
}

// Reports to the host KV that no schedule relies on its snapshot any more: the schedule made last runs, or is dropped.
void PassStream::drop_schedule() {
    if (HostKv* host = schedules_[n_made_ % 2].reads.kv->host(); host != nullptr) host->drop_schedule(*this);
}

void PassStream::begin_pass(const PassReads& reads, Stream& compute) {
    CHECK(!in_pass_, "a pass within a pass");
    CHECK(reads.kv->nodes().context_tokens() <= std::ssize(segment_) * kChunkTokens, "a KV of {} tokens, {} chunks",
          reads.kv->nodes().context_tokens(), segment_.size());
    if (n_made_ > n_begun_ && reads_ != reads) invalidate(compute);
    reads_ = reads;
    ++n_begun_;  // before begin_pass(), in which the prefetcher may request the next schedule
    at_ = 0;
    try {
        prefetcher_->begin_pass(compute);
    } catch (...) {
        if (n_made_ >= n_begun_) drop_schedule();
        n_made_ = n_begun_;
        throw;
    }
    in_pass_ = true;
    if (n_made_ == n_begun_) drop_schedule();  // else the next schedule is made, and relies on a newer snapshot
}

template <typename Acquire>
const std::byte* PassStream::wait_for(const char* what, const Acquire& acquire) {
    const auto began = std::chrono::steady_clock::now();
    const std::byte* data = with_context(what, acquire);
    figures_.wait_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    return data;
}

const std::byte* PassStream::acquire_next(Stream& compute) {
    return wait_for(running().items[at_].weight_item >= 0 ? "weights" : "KV",
                    [&] { return prefetcher_->acquire(static_cast<std::int64_t>(at_), compute); });
}

void PassStream::release_next(Stream& compute) {
    const ScheduleItem& item = running().items[at_];
    const CopyTimes times = is_traced() ? prefetcher_->copy_times(static_cast<std::int64_t>(at_)) : CopyTimes{};
    if (item.weight_item >= 0) {
        count_weights(*running().reads.model, item.weight_item, times);
    } else {
        count_kv(item.layer, item.bytes, times);
    }
    prefetcher_->release(static_cast<std::int64_t>(at_), compute);
    ++at_;
}

bool PassStream::holds_item(std::int32_t item) const {
    if (cache_ == nullptr) return false;
    const WeightItem& of = cached_model_->items()[item];
    return of.expert != kNoExpert && cache_->holds(of.layer, of.expert);
}

const std::byte* PassStream::held_item(std::int32_t item, Stream& compute) {
    const WeightItem& of = cached_model_->items()[item];
    return cache_->acquire(of.layer, of.expert, compute);
}

std::int64_t PassStream::need_items(std::span<ItemNeed> items, const PassChoices& choices, Stream& compute) {
    CHECK(in_pass_ && n_used_ == needed_.size(), "{} items are needed, {} of {} used", items.size(), n_used_,
          needed_.size());
    needed_.clear();
    n_copied_ = n_used_ = 0;
    if (items.empty()) return 0;
    const std::int64_t layer = running().reads.model->items()[items.front().item].layer;
    if (cache_ != nullptr) count_pass(layer, items, choices);
    choose_copied(layer, items);
    for (const ItemNeed& need : items) {
        if (need.is_copied)
            needed_.push_back({.item = need.item});
        else if (cache_ != nullptr)  // it gets no slot
            std::erase(needed_experts_, static_cast<std::uint16_t>(cached_model_->items()[need.item].expert));
    }
    const std::int64_t n_evicted = cache_ != nullptr && !needed_.empty() ? give_slots(layer, compute) : 0;
    copy_needed();
    return n_evicted;
}

// Sets what give_slots() and choose_copied() read. Each certain token of the pass counts as if it was committed
// already: else an expert could not get a slot when it is chosen for the first time.
void PassStream::count_pass(std::int64_t layer, std::span<const ItemNeed> items, const PassChoices& choices) {
    const KvNodes& tree = running().reads.kv->nodes();
    scores_ = uses_[layer].counts();
    const std::size_t n_experts = scores_.counts().size();
    held_.assign(n_experts, 0);
    for (std::size_t expert = 0; expert < n_experts; ++expert)
        held_[expert] = cache_->holds(layer, static_cast<std::int32_t>(expert)) ? 1 : 0;
    needed_experts_.clear();
    for (const ItemNeed& need : items)
        needed_experts_.push_back(static_cast<std::uint16_t>(cached_model_->items()[need.item].expert));
    n_certain_ = 0;
    for (const NodeId node : choices.nodes) {
        const std::span<const std::uint16_t> chosen = choices.choices->of(layer, node);
        for (const std::uint16_t expert : chosen)
            if (std::ranges::find(needed_experts_, expert) == needed_experts_.end()) needed_experts_.push_back(expert);
        if (!tree.is_certain(node)) continue;
        scores_.add(chosen);
        ++n_certain_;
    }
}

// Sets which of the items are copied.
void PassStream::choose_copied(std::int64_t layer, std::span<ItemNeed> items) const {
    const std::vector<WeightItem>& of = running().reads.model->items();
    for (ItemNeed& need : items)
        need.is_copied = misses_.shuffle_seed ? drawn(layer, of[need.item].expert, 0) % 2 == 0 : copies_on_demand();
}

// Returns a random number for an expert of the running pass; `what` tells the draws of one expert apart.
std::uint32_t PassStream::drawn(std::int64_t layer, std::int64_t expert, std::uint32_t what) const {
    const std::uint64_t seed = misses_.shuffle_seed.value();
    return philox4x32_10({{static_cast<std::uint32_t>(n_begun_), static_cast<std::uint32_t>(layer),
                           static_cast<std::uint32_t>(expert), what}},
                         {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)})
        .word[0];
}

// Sets takes_ to slots of the copied items that are drawn: half of the items get a free one or that of any held expert
// that the pass does not need.
void PassStream::shuffle_slots(std::int64_t layer) {
    takes_.clear();
    std::int64_t n_free = cache_->n_free(layer);
    for (const NeededItem& needed : needed_) {
        const std::int32_t expert = cached_model_->items()[needed.item].expert;
        if (drawn(layer, expert, 1) % 2 == 0) continue;
        SlotTake take{.expert = expert};
        if (n_free > 0) {
            --n_free;
        } else {
            std::vector<std::int32_t> victims;
            for (std::int32_t other = 0; other < std::ssize(held_); ++other)
                if (held_[other] != 0 && std::ranges::find(needed_experts_, other) == needed_experts_.end())
                    victims.push_back(other);
            if (victims.empty() || n_certain_ == 0) return;  // without tokens it is not known who is needed
            take.victim = victims[drawn(layer, expert, 2) % victims.size()];
            held_[take.victim] = 0;
        }
        takes_.push_back(take);
    }
}

// Decides which of the needed items get a slot, and frees those of the experts that lose theirs. Returns their number.
// Each certain token of the pass may replace one expert.
std::int64_t PassStream::give_slots(std::int64_t layer, Stream& compute) {
    const std::vector<WeightItem>& items = cached_model_->items();
    if (misses_.shuffle_seed) {
        shuffle_slots(layer);
    } else {
        choose_slots({.counts = scores_.counts(),
                      .held = held_,
                      .needed = needed_experts_,
                      .n_free = cache_->n_free(layer),
                      .most_replaced = n_certain_},
                     takes_);
    }
    std::int64_t n_evicted = 0;
    for (const SlotTake& take : takes_) {
        const auto is_it = [&](const NeededItem& needed) { return items[needed.item].expert == take.expert; };
        std::ranges::find_if(needed_, is_it)->gets_slot = true;
        if (take.victim == kNoVictim) continue;
        cache_->evict(layer, take.victim, compute);
        ++n_evicted;
    }
    return n_evicted;
}

void PassStream::count_choices(const ExpertChoices& choices, std::span<const NodeId> path) {
    for (std::size_t layer = 0; layer < uses_.size(); ++layer)
        for (const NodeId node : path)
            if (uses_[layer].n_experts() > 0) uses_[layer].add(choices.of(static_cast<std::int64_t>(layer), node));
}

void PassStream::go_on_from(std::span<const ExpertUse> uses) {
    CHECK(cache_ != nullptr && uses.size() == uses_.size(), "use of {} layers for {}", uses.size(), uses_.size());
    for (std::size_t layer = 0; layer < uses.size(); ++layer) {
        if (uses_[layer].n_experts() == 0 || uses[layer].n_experts() == 0) continue;
        CHECK(uses[layer].n_experts() == uses_[layer].n_experts(), "{} experts for {}", uses[layer].n_experts(),
              uses_[layer].n_experts());
        uses_[layer] = uses[layer];
    }
}

// Returns the experts of a layer that fill_slots() gives a slot.
std::vector<std::int32_t> PassStream::wanted_experts(std::size_t layer) const {
    const auto group = static_cast<std::int64_t>(layer);
    const std::int32_t n_free = cache_->n_free(group);
    if (n_free == 0) return {};
    std::vector<std::int32_t> experts = most_used(uses_[layer].counts().counts(), uses_[layer].n_experts());
    std::erase_if(experts, [&](std::int32_t expert) { return cache_->holds(group, expert); });
    if (std::ssize(experts) > n_free) experts.resize(static_cast<std::size_t>(n_free));
    return experts;
}

std::size_t PassStream::filling_bytes() const {
    std::size_t bytes = 0;
    for (std::size_t layer = 0; layer < uses_.size(); ++layer)
        for (const std::int32_t expert : wanted_experts(layer))
            bytes += cached_model_->items()[cached_model_->expert_item(static_cast<std::int64_t>(layer), expert)].bytes;
    return bytes;
}

void PassStream::fill_slots(Stream& compute, const std::function<void(std::size_t bytes)>& on_filled) {
    CHECK(!in_pass_, "slots are filled in a pass");
    for (std::size_t layer = 0; layer < uses_.size(); ++layer) {
        const std::vector<std::int32_t> experts = wanted_experts(layer);
        if (experts.empty()) continue;
        std::size_t bytes = 0;
        try {
            for (const std::int32_t expert : experts) {
                const std::int32_t item = cached_model_->expert_item(static_cast<std::int64_t>(layer), expert);
                const std::size_t item_bytes = cached_model_->items()[item].bytes;
                cache_->load(static_cast<std::int64_t>(layer), expert,
                             {.source = cached_model_->item_data(item), .bytes = item_bytes});
                bytes += item_bytes;
            }
            with_context("experts", [&] { demand_copies_->synchronize(); });
            on_filled(bytes);
        } catch (...) {
            try {
                cache_->drop_loaded(compute);
            } catch (...) {  // the error of the failed copy is on its way to the caller
            }
            throw;
        }
        cache_->keep_loaded();
        figures_.weights_bytes += bytes;
    }
}

// Enqueues copies of the needed items, in order, until the ring has no room for the next one that gets no slot.
void PassStream::copy_needed() {
    const Model& model = *running().reads.model;
    for (; n_copied_ < needed_.size(); ++n_copied_) {
        NeededItem& needed = needed_[n_copied_];
        const WeightItem& item = model.items()[needed.item];
        const TransferItem copy{.source = model.item_data(needed.item), .bytes = item.bytes};
        if (needed.gets_slot) {
            cache_->load(item.layer, item.expert, copy);
            continue;
        }
        if (!demand_ring_->has_room(copy.bytes)) return;
        with_context("experts", [&] { needed.number = demand_ring_->push(copy); });
    }
}

const std::byte* PassStream::acquire_needed(Stream& compute) {
    const NeededItem& needed = needed_[n_used_];
    return needed.number >= 0 ? demand_ring_->acquire(needed.number, compute) : held_item(needed.item, compute);
}

// Returns the times of the copy of the next item. Slots and ring share a stream, so the copy began no earlier than the
// one before it ended.
CopyTimes PassStream::needed_times() {
    const NeededItem& needed = needed_[n_used_];
    const WeightItem& item = running().reads.model->items()[needed.item];
    CopyTimes times =
        needed.number >= 0 ? demand_ring_->copy_times(needed.number) : cache_->copy_times(item.layer, item.expert);
    times.begin = std::max(times.begin, last_demand_end_);
    last_demand_end_ = times.end = std::max(times.begin, times.end);
    return times;
}

const std::byte* PassStream::acquire_item(std::int32_t item, Stream& compute) {
    if (running().reads.model->is_on_demand(item)) {
        const bool is_next = is_needed_next(item);
        const auto is_unused = [&](const NeededItem& needed) { return needed.item == item; };
        CHECK(in_pass_ &&
                  (is_next || (holds_item(item) && std::none_of(needed_.begin() + static_cast<std::ptrdiff_t>(n_used_),
                                                                needed_.end(), is_unused))),
              "item {} was not needed next", item);
        return wait_for("experts", [&] { return is_next ? acquire_needed(compute) : held_item(item, compute); });
    }
    CHECK(in_pass_ && at_ < running().items.size() && running().items[at_].weight_item == item, "item {} out of order",
          item);
    return acquire_next(compute);
}

void PassStream::release_item(std::int32_t item, Stream& compute) {
    const Model& model = *running().reads.model;
    if (model.is_on_demand(item)) {
        CHECK(in_pass_ && is_needed_next(item), "item {} was not needed next", item);
        count_weights(model, item, is_traced() ? needed_times() : CopyTimes{}, CopyOrder::OnDemand);
        if (const std::int64_t number = needed_[n_used_].number; number >= 0) demand_ring_->release(number, compute);
        ++n_used_;
        return copy_needed();
    }
    CHECK(in_pass_ && at_ < running().items.size() && running().items[at_].weight_item == item, "item {} out of order",
          item);
    release_next(compute);
}

ChunkRange PassStream::streamed(std::int64_t layer) const {
    return {running().reads.kv->resident_chunks(layer), running().host_chunks};
}

std::byte* const* PassStream::chunks(std::int64_t layer) const {
    return running().reads.kv->chunks(layer);
}

std::optional<KvSegment> PassStream::acquire_kv(std::int64_t layer, Stream& compute) {
    CHECK(in_pass_);
    const std::vector<ScheduleItem>& items = running().items;
    if (at_ == items.size() || items[at_].weight_item >= 0 || items[at_].layer != layer) return std::nullopt;
    const ChunkRange range = items[at_].chunks;
    const std::byte* data = acquire_next(compute);
    const std::size_t chunk_bytes = running().reads.kv->layout(layer).chunk_bytes();
    for (std::int64_t chunk = range.first; chunk < range.end; ++chunk, data += chunk_bytes) segment_[chunk] = data;
    return KvSegment{range, segment_.data()};
}

void PassStream::release_kv(Stream& compute) {
    release_next(compute);
}

void PassStream::end_pass(Stream& compute) {
    CHECK(in_pass_ && n_used_ == needed_.size(), "a pass ends with {} of {} needed items used", n_used_,
          needed_.size());
    while (at_ < running().items.size()) {
        static_cast<void>(acquire_next(compute));
        release_next(compute);
    }
    prefetcher_->end_pass();
    if (cache_) cache_->keep_loaded();
    in_pass_ = false;
}

void PassStream::abandon(Stream& compute) {
    in_pass_ = false;
    needed_.clear();
    n_copied_ = n_used_ = 0;
    std::exception_ptr failure;
    const auto attempt = [&](const auto& call) {
        try {
            call();
        } catch (...) {
            if (!failure) failure = std::current_exception();
        }
    };
    if (cache_) attempt([&] { cache_->drop_loaded(compute); });
    if (demand_ring_) attempt([&] { demand_ring_->drop_all(compute); });
    invalidate(compute);
    if (failure) std::rethrow_exception(failure);
}

void PassStream::invalidate(Stream& compute) {
    CHECK(!in_pass_, "a schedule is dropped while its pass runs");
    // The prepared schedule is dropped first, since rewind() throws if one of its copies has failed.
    if (n_made_ > n_begun_) drop_schedule();
    n_made_ = n_begun_;
    prefetcher_->rewind(compute);
}

std::span<std::byte> PassStream::lend_ring(Stream& compute) {
    invalidate(compute);
    return {region_.data(), region_.size_bytes()};
}

void PassStream::profile_with(PassProfile* profile) {
    CHECK(!in_pass_ && (profile == nullptr || profile->has_trace()),
          "copies are traced by a profile with a trace, from the beginning of a pass on");
    profile_ = profile;
    if (profile == nullptr) return;
    ring_->time_copies();
    if (demand_ring_ == nullptr) return;
    demand_ring_->time_copies();
    if (cache_) cache_->time_copies();
    profile->trace_copies_on_demand();
}

void PassStream::count_weights(const Model& model, std::int32_t item, const CopyTimes& times, CopyOrder order) {
    const WeightItem& copied = model.items()[item];
    figures_.weights_bytes += copied.bytes;
    if (profile_ == nullptr) return;
    const bool is_head = copied.layer == model.config().n_layers();
    profile_->add_copy("weights", is_head ? -1 : copied.layer, copied.bytes, times, order);
}

void PassStream::count_kv(std::int64_t layer, std::size_t bytes, const CopyTimes& times) {
    figures_.kv_bytes += bytes;
    if (profile_ != nullptr) profile_->add_copy("KV", layer, bytes, times, CopyOrder::Scheduled);
}

}  // namespace slipstream
