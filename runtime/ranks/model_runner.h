// ModelRunner: runs a loaded model. It has, for each of the model's devices (ranks), the forward pass and the transfers
// of what is not resident; and for each sequence the KV caches on all devices, the target over them, and KV views.
// Sequences run in turn: a pass is over one sequence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/rank_sums.h"
#include "offload/pinned_arena.h"
#include "runtime/cache/kv_cache.h"
#include "runtime/loop/sequence.h"
#include "runtime/pass/forward.h"
#include "runtime/pass/pass_profile.h"
#include "runtime/pass/pass_stream.h"
#include "runtime/ranks/rank.h"
#include "runtime/ranks/rank_target.h"
#include "runtime/ranks/view_passes.h"
#include "runtime/view/view_builder.h"

namespace slipstream {

/// Sizes of a KV view, over which the target itself drafts (self-speculation).
struct ViewNeeds {
    ViewOptions options;
    std::int64_t max_nodes = 1;  // most nodes of a draft tree
    /// Returns the room of the view on a device whose shard has `config`.
    [[nodiscard]] ViewRoom room(const ModelConfig& config) const { return view_room(options, config, max_nodes); }
};

/// What the sequences of a runner need.
struct RunnerNeeds {
    std::int64_t text_tokens = 0;     // most tokens of a sequence
    ForwardLimits forward{};          // limits of the largest pass
    std::int64_t scratch_nodes = 1;   // most nodes of a KV cache
    std::int64_t check_tokens = 0;    // most tokens of a pass of the self-check; 0: there is none
    std::optional<ViewNeeds> view{};  // KV view of each sequence; requires that all weights are resident
    std::int64_t hidden_rows = 0;     // last positions of each sequence whose hidden states are kept; 0: none
    std::size_t n_sequences = 1;
};

/// One device's shard of the model.
struct RunnerShard {
    const Model* model = nullptr;        // loaded; must outlive the runner
    std::vector<std::int64_t> layers{};  // layers of the whole model that the device has, as in Rank; empty: all
    std::int64_t first_vocab = 0;
    KvPlacement kv{};                          // placement of the KV cache of each sequence
    std::size_t ring_bytes = 0;                // size of the transfer ring; used if weights or KV stream
    std::vector<std::int32_t> expert_slots{};  // [layers of the model]: slots of experts; empty: none
    MissRules misses{};                        // of experts that stream
};

class ModelRunner {
public:
    /// Shards are in the order of their rows of the LM head and of their kv heads. `arena` holds the weights that
    /// stream and the hidden states of prompts; it may be null if nothing streams, and prompts are then fed prefill
    /// chunk by prefill chunk. `sums`: the collectives between the ranks if matrices are split, else null. Allocates
    /// caches, rings, activations and views. Throws OutOfBudget.
    ModelRunner(const std::vector<RunnerShard>& shards, const RunnerNeeds& needs, PinnedArena* arena = nullptr,
                std::unique_ptr<RankSums> sums = nullptr);

    [[nodiscard]] std::size_t n_sequences() const { return sequences_.size(); }
    [[nodiscard]] Sequence& sequence(std::size_t i = 0) { return sequences_[i]->sequence; }
    [[nodiscard]] const Sequence& sequence(std::size_t i = 0) const { return sequences_[i]->sequence; }
    [[nodiscard]] RankTarget& target(std::size_t i = 0) { return sequences_[i]->target; }
    /// Returns the target of sequence `i` for the self-check: it computes again, over the same caches, what target(i)
    /// computed. Requires RunnerNeeds::check_tokens > 0 (CHECKed).
    [[nodiscard]] RankTarget& check_target(std::size_t i = 0);
    /// Returns the passes over the KV views of sequence `i`, which this object owns; null if RunnerNeeds::view is
    /// empty.
    [[nodiscard]] ViewPasses* view(std::size_t i = 0) { return sequences_[i]->view_passes.get(); }
    /// Sets whether the KV views of sequence `i` follow the passes of target(i), which makes these slower. In both
    /// cases the views become invalid.
    void use_view(bool use, std::size_t i = 0);

    /// Returns the builder of the KV view of sequence `i` on the first rank, which has the same options and counts as
    /// those on the others; null if there is no view.
    [[nodiscard]] const ViewBuilder* view_builder(std::size_t i = 0) const {
        return sequences_[i]->views.empty() ? nullptr : &sequences_[i]->views.front()->builder;
    }
    /// Returns the device memory of the KV views of sequence `i`, on all ranks, without that of building them.
    [[nodiscard]] std::size_t view_bytes(std::size_t i = 0) const;

    /// Returns the hidden states of the last positions of sequence `i`, which this object owns; null if
    /// RunnerNeeds::hidden_rows is 0.
    [[nodiscard]] const HiddenTail* hidden(std::size_t i = 0) const { return sequences_[i]->hidden.get(); }

    [[nodiscard]] std::size_t n_ranks() const { return ranks_.size(); }
    [[nodiscard]] Forward& forward(std::size_t rank = 0) { return *ranks_[rank]->forward; }
    [[nodiscard]] KvCache& cache(std::size_t rank = 0, std::size_t i = 0) { return *caches_[i][rank]; }
    /// Returns the stream of the passes on a rank, which this object owns; null if nothing streams on its device.
    [[nodiscard]] PassStream* stream(std::size_t rank = 0) { return ranks_[rank]->stream.get(); }
    /// Calls fill_cache() for the first sequence on all ranks; for benchmarks.
    void fill(std::int64_t n_tokens, std::uint64_t seed, const std::function<void(std::int64_t)>& on_progress);

    /// Times the stages of the passes on each rank from now on, with a trace (which must outlive the runner) or without
    /// (null). Must not be called during a pass.
    void profile(StageEnd end, TraceFile* trace);
    /// Returns the stage times of the passes on `rank`. Requires that profile() was called (CHECKed).
    [[nodiscard]] PassProfile& stages(std::size_t rank = 0);

    [[nodiscard]] bool streams() const;
    /// Returns the use of experts by the committed tokens of all sequences, and by what start_slots() was given, for
    /// each layer of the model up to the last one that has slots or lies on a device that has some; that of no experts
    /// where nothing is counted. Empty if there are no slots.
    [[nodiscard]] std::vector<ExpertUse> expert_use() const;
    /// Counts go on from `use`, as expert_use() returns it, and free slots get the experts of the highest counts
    /// (PassStream::fill_slots()), between two passes. Layers whose use has no experts, and missing layers, are left as
    /// they are. on_progress(done, total) is called after each layer, in bytes. Returns the bytes that were copied.
    std::size_t start_slots(std::span<const ExpertUse> use,
                            const std::function<void(std::size_t done, std::size_t total)>& on_progress);
    /// Whether all slots of experts, on all ranks, have one.
    [[nodiscard]] bool slots_are_full() const;
    /// Whether passes may be launched as graphs.
    [[nodiscard]] bool has_graphs() const;
    /// Returns what passes have read from host memory and how long they waited for it, summed over all ranks.
    [[nodiscard]] StreamFigures streamed() const;
    /// Returns for each layer of the model what passes needed of its experts, without those of the self-check; empty if
    /// no layer has experts.
    [[nodiscard]] std::vector<ExpertFigures> expert_figures() const;
    /// Returns for each layer of the model how many distinct experts groups of tokens needed: passes as
    /// expert_figures() has them, and committed tokens that are neighbours, of all sequences. Empty if no layer has
    /// experts.
    [[nodiscard]] std::vector<DistinctExperts> distinct_experts() const;
    /// Returns the bytes of logits that were copied from devices to the host, summed over all ranks.
    [[nodiscard]] std::uint64_t logits_bytes() const;

private:
    using Caches = std::vector<std::unique_ptr<KvCache>>;  // [ranks], of one sequence

    // Returns the layer of the model that layer `layer` of a rank is.
    [[nodiscard]] std::size_t model_layer(std::size_t rank, std::size_t layer) const {
        return layers_[rank].empty() ? layer : static_cast<std::size_t>(layers_[rank][layer]);
    }

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
        std::size_t bytes;  // of the view
    };
    struct SequenceParts {
        SequenceParts(const std::vector<Rank>& ranks, const Caches& caches, PinnedArena* arena);
        std::vector<std::unique_ptr<RankView>> views;  // [ranks], or empty
        std::unique_ptr<ViewPasses> view_passes;
        std::unique_ptr<HiddenTail> hidden;                   // null: none is kept
        std::vector<std::unique_ptr<ExpertChoices>> choices;  // [ranks]; none without experts
        RankTarget target;
        std::optional<RankTarget> check_target;
        Sequence sequence;
    };

    std::unique_ptr<RankSums> sums_;
    std::vector<Caches> caches_;                          // [sequences]
    std::vector<std::vector<std::int64_t>> layers_;       // [ranks], as RunnerShard::layers
    std::vector<std::unique_ptr<PassProfile>> profiles_;  // [ranks], or none
    std::vector<std::unique_ptr<RankParts>> ranks_;       // [ranks]
    std::vector<std::unique_ptr<SequenceParts>> sequences_;
};

}  // namespace slipstream
