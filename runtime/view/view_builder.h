// Fills a view out of a cache while passes over that cache run: nothing is read for it that the pass does not read
// anyway, and nothing crosses the link twice.
//
//   pass k      scores each group of each layer by the query of the tree's root, as the layer's KV passes by
//   between     scores are added to those of earlier passes, which fade; groups are chosen, on the host
//   pass k+1    they are copied into the view, as they pass by, and score again
//
// A pass that has a whole layer's KV on the device at once (nothing streams, or a prompt goes layer by layer) chooses
// and copies there and then. (Choosing by queries of the verification: SpecAttn/Vegas, arXiv 2602.07223; SparseSpec,
// arXiv 2512.01278; by those at a prompt's end: SnapKV, arXiv 2404.14469; by all so far: H2O, arXiv 2306.14048.
// TriForce builds its cache after the prompt from mean keys, which `rebuild_tokens` = 0 and GroupScore::Mean are: arXiv
// 2404.11912, section 4.1 and its code.)
//
// Between two buildings the view grows by the rows that are committed. Which pass builds follows from counts of tokens
// alone, never from a clock (E3).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kv_view.h"
#include "runtime/cache/kv_cache.h"
#include "runtime/model/model_config.h"
#include "runtime/pass/pass_hooks.h"
#include "runtime/view/kv_view.h"
#include "runtime/view/view_selection.h"

namespace slipstream {

enum class ViewKind : std::uint8_t {
    Retrieval,  // the first groups, the last, and those with the highest scores
    Window,     // the first and the last (StreamingLLM, arXiv 2309.17453)
};

/// Of a view's tokens the last ones (runtime/NOTES.md has the sweep).
inline constexpr std::int64_t kRecentPercent = 75;

struct ViewOptions {
    ViewKind kind = ViewKind::Retrieval;
    GroupScore score = GroupScore::Mass;
    std::int64_t budget_tokens = 1024;  // of each layer and kv head when it is built; whole groups (0, of a view that
                                        // is asked for: the engine plans it)
    std::int64_t sink_tokens = 16;      // of them the first
    std::int64_t recent_tokens = 768;   // and the last: kRecentPercent of a view that somebody plans
    std::int64_t rebuild_tokens =
        64;  // that the text grows by from building to building; 0: it is built when it is full
    // Tokens of text behind which a query's scores count half, beside those of later ones; 0: the last pass's alone
    // count. Infinite: all count alike (bench --views heavy).
    double half_life_tokens = 256;
    bool in_steps = false;            // scored in one pass and copied in the next wherever KV lies: which pass finds
                                      // a view then hangs on no placement (E3)
    std::int64_t growth_tokens = 64;  // room behind the budget for rows that the text gains
    // Queries of a chain that score, the root's and others spread evenly behind it; more than one only where a whole
    // layer is at hand, else the root's alone. For bench --views, whose chains are the text itself: as many as a
    // generation that commits fewer tokens a pass would have, or all, for that very pass (oracle).
    std::int64_t score_rows = 1;

    [[nodiscard]] std::int64_t slots() const { return budget_tokens + growth_tokens; }
};

class ViewBuilder final : public PassHooks {
public:
    /// For `view`, of the layers of `cache`, of a model of that `config`; all outlive this. Takes memory for scores of
    /// the device's budget. Throws OutOfBudget.
    ViewBuilder(Device& device, KvCache& cache, KvView& view, const ModelConfig& config, const ViewOptions& options);
    /// What the constructor takes from the device's budget, for texts of up to `context_tokens`.
    [[nodiscard]] static std::size_t device_bytes(const ModelConfig& config, std::int64_t context_tokens);

    [[nodiscard]] KvView& view() { return *view_; }
    [[nodiscard]] const KvView& view() const { return *view_; }
    [[nodiscard]] const ViewOptions& options() const { return options_; }
    /// How often the view was built.
    [[nodiscard]] std::int64_t n_built() const { return n_built_; }
    /// Positions of the text when its groups were scored last; 0: there are no scores.
    [[nodiscard]] std::int64_t n_scored() const { return n_scored_; }
    /// The groups of a layer that were chosen last, by the group that is read.
    [[nodiscard]] std::span<const GroupMove> chosen(std::int64_t layer) const { return moves_[layer]; }

    /// Another text: the view stands for nothing, and what was scored is forgotten.
    void restart();
    /// A pass over the cache begins, whose root is its `root`-th token; `whole_layers`: all KV of a layer is at hand at
    /// once, since none streams, on any device of the model, or a prompt goes layer by layer. The hooks that it is to
    /// run with; null: none.
    [[nodiscard]] PassHooks* begin_pass(std::int64_t root, bool whole_layers);
    /// It has come to its end, its stream is synchronized; or it was given up. If this throws, the builder has
    /// restarted.
    void end_pass(ExecRef exec, bool complete);
    /// Rows of the cache's scratch are about to be committed.
    void commit(ExecRef exec, std::span<const NodeId> path);
    /// The cache was cut.
    void truncate(std::int64_t n_tokens);

    void on_kv(ExecRef exec, std::int64_t layer, const KvSegment& segment, const ConstTensorView& q,
               std::int64_t n_committed) override;

private:
    // Of a pass. At once: each layer is scored, chosen and copied as soon as all of it is at hand.
    struct Work {
        bool score = false;
        bool gather = false;
        bool at_once = false;
        [[nodiscard]] bool any() const { return score || gather; }
    };

    [[nodiscard]] bool is_due(std::int64_t n_text) const;
    [[nodiscard]] Work work_of_pass(bool whole_layers) const;
    [[nodiscard]] bool scores(std::int64_t layer) const {
        return options_.kind != ViewKind::Window && config_->window(layer) == 0;
    }
    [[nodiscard]] GroupBudget budget_of(std::int64_t layer) const;
    void score(ExecRef exec, std::int64_t layer, const KvSegment& segment, const ConstTensorView& q, std::int64_t row);
    void score_further(ExecRef exec, std::int64_t layer, const KvSegment& segment, const ConstTensorView& q);
    void fetch_scores(ExecRef exec, std::int64_t first_layer, std::int64_t n_layers);
    [[nodiscard]] std::span<float> pooled_of(std::int64_t layer, std::int64_t head);
    void pool(std::int64_t layer, float keep);
    void forget_scores();
    void choose(std::int64_t layer);
    void gather(ExecRef exec, std::int64_t layer, const KvSegment& segment);
    [[nodiscard]] std::int64_t shortest_cut() const;
    void fill(ExecRef exec);

    KvCache* cache_;
    KvView* view_;
    const ModelConfig* config_;
    ViewOptions options_;
    std::int64_t max_groups_;
    Buffer device_scores_;                       // [n_layers][n_q_heads][max_groups]
    std::vector<float> scores_;                  // the same in host memory, where the host does not share the device's
    std::vector<float> pooled_;                  // [n_layers][n_kv_heads][max_groups], of all passes so far, fading
    std::vector<std::int32_t> order_;            // memory of choosing
    std::vector<std::int32_t> kept_;             // [groups of a view]
    std::vector<std::vector<GroupMove>> moves_;  // [n_layers], by group that is read

    Work work_;                    // of the running pass
    std::int64_t root_ = 0;        // of its tokens
    std::int64_t n_pass_ = 0;      // positions that were committed before it
    float keep_ = 0.0F;            // what is left of earlier scores behind it
    std::int64_t n_pooled_ = 0;    // layers that it has pooled already
    std::int64_t n_scored_ = 0;    // positions when it was scored last; 0: there are no scores
    std::int64_t n_built_at_ = 0;  // positions when the view was built last
    std::int64_t n_built_ = 0;
};

}  // namespace slipstream
