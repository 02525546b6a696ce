// What runs a loaded model: on each of its devices (ranks) the forward pass and the transfers of what is not resident;
// for each sequence the KV caches on all devices, the target over them, and KV views. Sequences run in turn: one pass
// has one sequence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/rank_sums.h"
#include "offload/pinned_arena.h"
#include "runtime/cache/kv_cache.h"
#include "runtime/loop/sequence.h"
#include "runtime/pass/forward.h"
#include "runtime/pass/pass_stream.h"
#include "runtime/ranks/rank.h"
#include "runtime/ranks/rank_target.h"
#include "runtime/ranks/view_passes.h"
#include "runtime/view/view_builder.h"

namespace slipstream {

/// A view of the KV, over which the target itself drafts.
struct ViewNeeds {
    ViewOptions options;
    std::int64_t max_nodes = 1;  // of one draft tree
    [[nodiscard]] ViewRoom room() const { return {.n_slots = options.slots(), .max_nodes = max_nodes}; }
};

/// What sequences need of a runner.
struct RunnerNeeds {
    std::int64_t text_tokens = 0;     // of the longest sequence
    ForwardLimits forward{};          // of the largest pass
    std::int64_t scratch_nodes = 1;   // of a KV cache
    std::int64_t check_tokens = 0;    // of the largest pass of the self-check; 0: there is none
    std::optional<ViewNeeds> view{};  // of each sequence; then all weights are resident
    std::size_t n_sequences = 1;
};

/// One device's shard of the model.
struct RunnerShard {
    const Model* model = nullptr;        // loaded; outlives the runner
    std::vector<std::int64_t> layers{};  // as Rank
    std::int64_t first_vocab = 0;
    KvPlacement kv{};            // of the cache of each sequence
    std::size_t ring_bytes = 0;  // of the transfer ring, if weights or KV stream
};

class ModelRunner {
public:
    /// Shards in the order of their rows of the LM head and of their kv heads. `arena` holds the weights that stream
    /// and the hidden states of prompts; null: nothing streams on one device, or prompts go chunk by chunk. `sums`:
    /// between the ranks, if matrices are split; else null. Takes the memory of caches, rings, activations and views.
    /// Throws OutOfBudget.
    ModelRunner(const std::vector<RunnerShard>& shards, const RunnerNeeds& needs, PinnedArena* arena = nullptr,
                std::unique_ptr<RankSums> sums = nullptr);

    [[nodiscard]] std::size_t n_sequences() const { return sequences_.size(); }
    [[nodiscard]] Sequence& sequence(std::size_t i = 0) { return sequences_[i]->sequence; }
    [[nodiscard]] const Sequence& sequence(std::size_t i = 0) const { return sequences_[i]->sequence; }
    [[nodiscard]] RankTarget& target(std::size_t i = 0) { return sequences_[i]->target; }
    /// Computes again what target(i) computed, over the same caches; there is one if check_tokens > 0 (CHECKed).
    [[nodiscard]] RankTarget& check_target(std::size_t i = 0);
    /// Passes over the sequence's views; null: needs.view is empty.
    [[nodiscard]] ViewPasses* view(std::size_t i = 0) { return sequences_[i]->view_passes.get(); }
    /// Whether the views follow the passes of target(i), which takes some time. They are invalid at first.
    void use_view(bool use, std::size_t i = 0);

    [[nodiscard]] std::size_t n_ranks() const { return ranks_.size(); }
    [[nodiscard]] Forward& forward(std::size_t rank = 0) { return *ranks_[rank]->forward; }
    [[nodiscard]] KvCache& cache(std::size_t rank = 0, std::size_t i = 0) { return *caches_[i][rank]; }
    /// Null: nothing streams on that device.
    [[nodiscard]] PassStream* stream(std::size_t rank = 0) { return ranks_[rank]->stream.get(); }
    /// fill_cache() on all ranks, for benches.
    void fill(std::int64_t n_tokens, std::uint64_t seed, const std::function<void(std::int64_t)>& on_progress);

    [[nodiscard]] bool streams() const;
    /// Whether passes may be launched as graphs.
    [[nodiscard]] bool has_graphs() const;
    /// Sums over all ranks.
    [[nodiscard]] StreamFigures streamed() const;
    [[nodiscard]] std::uint64_t logits_bytes() const;

private:
    using Caches = std::vector<std::unique_ptr<KvCache>>;  // [ranks] of one sequence

    // Members are destroyed in reverse order: what a stream or a target refers to comes first.
    struct RankParts {
        std::unique_ptr<PassStream> stream;  // null: nothing streams
        std::unique_ptr<Forward> forward;
        std::unique_ptr<Forward> check;  // null: no self-check
    };
    struct RankView {
        RankView(const Model& model, KvCache& cache, const ViewNeeds& needs);
        KvView view;
        ViewBuilder builder;
    };
    struct SequenceParts {
        SequenceParts(const std::vector<Rank>& ranks, const Caches& caches, PinnedArena* arena);
        std::vector<std::unique_ptr<RankView>> views;  // [ranks], or none
        std::unique_ptr<ViewPasses> view_passes;
        RankTarget target;
        std::optional<RankTarget> check_target;
        Sequence sequence;
    };

    std::unique_ptr<RankSums> sums_;
    std::vector<Caches> caches_;                     // [sequences]
    std::vector<std::unique_ptr<RankParts>> ranks_;  // [ranks]
    std::vector<std::unique_ptr<SequenceParts>> sequences_;
};

}  // namespace slipstream
