// Fills a KV view from a cache while passes over that cache run. It reads nothing that the pass does not read anyway,
// and nothing crosses the link twice.
//
//   pass k      scores each slot group of each layer by the query of the tree's root, while the layer's KV is on the
//               device
//   between     adds the scores to those of earlier passes, which decay, and chooses groups, on the host
//   pass k+1    copies the chosen groups to the view while they are on the device, and scores again
//
// A pass that has a whole layer's KV on the device at once scores, chooses and copies at once: if nothing streams, or
// at the end of a prompt that is processed layer by layer. If such a prompt has no room for a whole layer, the last
// prefill chunk scores the layer for the pass after the prompt; a view with less room for last tokens than a prefill
// chunk has is built a pass later. (Choosing by queries of the verification: SpecAttn/Vegas, arXiv 2602.07223;
// SparseSpec, arXiv 2512.01278. By queries at a prompt's end: SnapKV, arXiv 2404.14469. By all queries so far: H2O,
// arXiv 2306.14048. TriForce builds its cache after the prompt from mean keys, which corresponds to `rebuild_tokens` =
// 0 and GroupScore::Mean: arXiv 2404.11912, section 4.1 and its code.)
//
// Between two builds the view grows by the committed rows. Which pass builds it follows from counts of tokens only,
// never from a clock (distribution-exact sampling, E3).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/kv_view.h"
#include "runtime/cache/kv_cache.h"
#include "runtime/model/model.h"
#include "runtime/pass/pass_hooks.h"
#include "runtime/view/kv_view.h"
#include "runtime/view/view_selection.h"

namespace slipstream {

/// Which tokens a view keeps.
enum class ViewKind : std::uint8_t {
    Retrieval,  // the first and the last groups, and those with the highest scores
    Window,     // the first and the last groups (StreamingLLM, arXiv 2309.17453)
};

/// How a view stores its tokens.
enum class ViewType : std::uint8_t {
    Rows,  // as rows of the cache's KV type
    Q4,    // sinks and the last tokens as such rows, the others in view pages of 4 bits
};

/// Returns the name that --view-type has for the type: "f16" for rows of any KV type, or "q4".
[[nodiscard]] constexpr std::string_view view_type_name(ViewType type) {
    return type == ViewType::Q4 ? "q4" : "f16";
}

/// Most of the last tokens that a view with pages keeps as rows when it is built.
inline constexpr std::int64_t kRecentRows = 128;

/// Fewest tokens of a view with pages: 16 sinks, the rows, and a page for each head.
inline constexpr std::int64_t kLeastPagedView = 16 + kRecentRows + kPageSlots;

/// Returns the percentage of a view's tokens that are the most recent ones, in a view that the engine plans
/// (runtime/NOTES.md has the sweeps).
[[nodiscard]] constexpr std::int64_t recent_percent(ViewType type) {
    return type == ViewType::Q4 ? 25 : 75;
}

/// How a view is built.
struct ViewOptions {
    ViewKind kind = ViewKind::Retrieval;
    ViewType type = ViewType::Rows;
    GroupScore score = GroupScore::Mass;
    /// Tokens that a build keeps for each layer and kv head, a multiple of the size of a slot group (8). 0: the engine
    /// chooses the number; a ViewBuilder needs at least one group.
    std::int64_t budget_tokens = 1024;
    std::int64_t sink_tokens = 16;     // part of the budget: first tokens of the sequence
    std::int64_t recent_tokens = 768;  // part of the budget: last tokens of the sequence
    /// The view is built again after so many more tokens, or earlier if it is full; 0: only when it is full.
    std::int64_t rebuild_tokens = 64;
    /// Tokens of the sequence after which the scores of a query count half, beside those of later queries. 0: only the
    /// last pass counts. Infinite: all passes count alike (`slipstream-lab views`, heavy).
    double half_life_tokens = 256;
    /// Scores in one pass and copies in the next, wherever the KV is. Then the pass that first finds a view does not
    /// depend on placement (distribution-exact sampling, E3).
    bool in_steps = false;
    std::int64_t growth_tokens = 64;  // room after the budget for rows that the sequence gains
    /// Number of queries of a pass that score: the root's and others at even distances after it in the chain. More than
    /// one counts only if a whole layer is on the device, else the root's alone. Above 1 only for `slipstream-lab
    /// views`, whose passes are chains of the sequence itself: as many as a generation that commits fewer tokens per
    /// pass would have, or all, for this very pass (oracle).
    std::int64_t score_rows = 1;

    /// Returns how many tokens a build keeps as rows; the rest of the budget is in pages.
    [[nodiscard]] std::int64_t row_tokens() const;
    /// Returns the slots that a view needs (ViewRoom::n_slots).
    [[nodiscard]] std::int64_t slots() const { return row_tokens() + growth_tokens; }
};

/// Returns the room of a view with `options` over layers of `config`.
[[nodiscard]] ViewRoom view_room(const ViewOptions& options, const ModelConfig& config, std::int64_t max_nodes);

/// Returns how many rows of KV of `kv_dtype` a draft pass folds in about the time of a view that has just been built.
[[nodiscard]] std::int64_t rows_like_view(const ViewOptions& options, const ModelConfig& config, DType kv_dtype,
                                          DeviceKind kind);

/// Builds one view from the passes over one cache. Not thread-safe.
class ViewBuilder final : public PassHooks {
public:
    /// Builds `view` from `cache`, which have the same layers, those of `model`. All must outlive the builder.
    /// Allocates memory for the scores from the device's budget. Throws OutOfBudget.
    ViewBuilder(KvCache& cache, KvView& view, const Model& model, const ViewOptions& options);
    /// Returns the bytes that the constructor takes from the device's budget, for sequences of up to `context_tokens`.
    [[nodiscard]] static std::size_t device_bytes(const ModelConfig& config, std::int64_t context_tokens);

    [[nodiscard]] KvView& view() { return *view_; }
    [[nodiscard]] const KvView& view() const { return *view_; }
    [[nodiscard]] const ViewOptions& options() const { return options_; }
    /// Returns the number of builds.
    [[nodiscard]] std::int64_t n_built() const { return n_built_; }
    /// Returns the length of the sequence when its groups were last scored; 0: there are no scores.
    [[nodiscard]] std::int64_t n_scored() const { return n_scored_; }
    /// Returns the groups of a layer that were last chosen and are rows of the view, sorted by the group that is read.
    /// Valid until the next pass begins.
    [[nodiscard]] std::span<const GroupMove> chosen(std::int64_t layer) const { return moves_[layer]; }
    /// Returns the groups of a layer that the last build wrote to pages, sorted by the group that is read. Those of a
    /// head are the last in its pages, in this order; `to` is where they wait until a page is full.
    [[nodiscard]] std::span<const GroupMove> chosen_pages(std::int64_t layer) const {
        const LayerPaging& part = layer_paging_[layer];
        return std::span(paging_.moves).subspan(part.first_move, part.end_move - part.first_move);
    }
    /// Returns the pages of a kv head of a layer, as they were last filled.
    [[nodiscard]] const PageRange& pages_of(std::int64_t layer, std::int64_t head) const {
        return ranges_[first_kv_head_[layer] + head];
    }

    /// Starts another sequence: the view becomes invalid, and all scores are forgotten.
    void restart();
    /// Begins a pass over the cache, whose tree has its root at token `root` of the pass. `may_build_at_once`: the pass
    /// may score, choose and copy, since no KV streams (on any device of the model), or it ends a prompt that is
    /// processed layer by layer. Returns the hooks that the pass must run with; null: none.
    [[nodiscard]] PassHooks* begin_pass(std::int64_t root, bool may_build_at_once);
    /// Ends the pass: complete, with its stream synchronized, or abandoned. If this throws, the builder has restarted.
    void end_pass(ExecRef exec, bool complete);
    /// Follows a commit of rows of the cache's scratch, `path`. Call before the cache commits them.
    void commit(ExecRef exec, std::span<const NodeId> path);
    /// Follows a cut of the cache to `n_tokens` positions.
    void truncate(std::int64_t n_tokens);

    /// Hook: scores the slot groups of the segment, and copies chosen ones into the view, if the pass does so (Work).
    void on_kv(ExecRef exec, std::int64_t layer, const KvSegment& segment, const ConstTensorView& q,
               std::int64_t n_committed) override;

private:
    // What a pass does for the view.
    struct Work {
        bool score = false;    // compute scores
        bool gather = false;   // copy the chosen groups
        bool at_once = false;  // choose and copy each layer in this pass, by its scores or those of the prompt
        [[nodiscard]] bool any() const { return score || gather; }
    };

    // How the groups of a build become pages. Groups go to staging, each head's in a ring, and from there to pages.
    // Fixed when groups are chosen, so that gathering computes and allocates nothing.
    struct Paging {
        std::vector<GroupMove> moves;     // to staging, of each layer sorted by the group that is read
        std::vector<PageFill> fills;      // from staging, of each layer in the order in which they become possible
        std::vector<std::int64_t> ready;  // [fills]: how many moves must be done before
        // Ascending. Before move stops[i], write all full pages, because that move overwrites a place in staging.
        std::vector<std::int64_t> stops;
        void clear();
    };
    // The part of Paging that belongs to a layer: indices into its vectors.
    struct LayerPaging {
        std::int64_t first_move = 0;
        std::int64_t end_move = 0;
        std::int64_t n_filled = 0;  // the next fill
        std::int64_t end_fill = 0;
    };

    // Returns true if a view for `n_text` positions must be built.
    [[nodiscard]] bool is_due(std::int64_t n_text) const;
    void read_sinks(const Model& model);
    [[nodiscard]] Work work_of_pass(bool may_build_at_once) const;
    // Returns true if groups of the layer are chosen by scores.
    [[nodiscard]] bool scores(std::int64_t layer) const {
        return options_.kind != ViewKind::Window && config_->window(layer) == 0 && !keeps_all();
    }
    // Returns true if the view keeps every token. Then nothing is scored.
    [[nodiscard]] bool keeps_all() const {
        return options_.type == ViewType::Q4 && options_.budget_tokens >= cache_->context_tokens();
    }
    [[nodiscard]] GroupBudget budget_of(std::int64_t layer, std::int64_t n_scored) const;
    void budget_pages();
    void score(ExecRef exec, std::int64_t layer, const KvSegment& segment, const ConstTensorView& q, std::int64_t row,
               std::int64_t n_committed);
    void choose_by_prompt(ExecRef exec, std::int64_t layer);
    void score_further(ExecRef exec, std::int64_t layer, const KvSegment& segment, const ConstTensorView& q);
    void fetch_scores(ExecRef exec, std::int64_t first_layer, std::int64_t n_layers);
    [[nodiscard]] std::span<float> pooled_of(std::int64_t layer, std::int64_t head);
    void pool(std::int64_t layer, std::int64_t n_positions);
    void forget_scores();
    // Groups that a build keeps as rows.
    [[nodiscard]] std::int64_t row_groups() const;
    void choose(std::int64_t layer, std::int64_t n_scored);
    void plan_pages(std::int64_t layer, std::int64_t n_kept_before);
    void gather(ExecRef exec, std::int64_t layer, const KvSegment& segment);
    void gather_pages(ExecRef exec, std::int64_t layer, const KvSegment& segment);
    [[nodiscard]] std::int64_t shortest_cut() const;  // shortest length to which the view can be cut
    void fill(ExecRef exec);

    KvCache* cache_;
    KvView* view_;
    const ModelConfig* config_;
    ViewOptions options_;
    std::int64_t max_groups_;
    Buffer device_scores_;  // [query heads of all layers][max_groups]
    // Copy of device_scores_ in host memory; empty if the host shares the device's memory.
    std::vector<float> scores_;
    // [n_layers]: the sinks of each layer's query heads; empty if it has none, or its groups are not scored.
    std::vector<std::vector<float>> sinks_;
    std::vector<std::int64_t> first_q_head_{0};   // [n_layers + 1]: query heads of all earlier layers
    std::vector<std::int64_t> first_kv_head_{0};  // [n_layers + 1]: kv heads of all earlier layers
    std::vector<float> pooled_;        // [kv heads of all layers][max_groups]: sums over all passes, decaying
    std::vector<std::int32_t> order_;  // scratch of choose_groups()
    std::vector<std::int32_t> kept_;   // [groups of a view]: scratch of choose()
    // [n_layers]: groups to copy to the view, sorted by the group that is read.
    std::vector<std::vector<GroupMove>> moves_;
    Paging paging_;
    std::vector<LayerPaging> layer_paging_;  // [n_layers]
    std::vector<std::int64_t> page_groups_;  // [n_layers]: groups of a head that the build keeps in pages
    // If the view keeps everything: first groups of pages, of each head, that are in full pages and valid, so that a
    // build only appends.
    std::int64_t n_full_page_groups_ = 0;
    std::vector<PageRange> ranges_;      // [kv heads of all layers]: the pages that are being filled
    std::vector<std::int64_t> staged_;   // scratch of plan_pages(): groups of each head so far
    std::vector<std::int64_t> flushed_;  // scratch of plan_pages(): how many of them are in pages
    std::size_t pool_used_ = 0;          // bytes of the pool that the build has given out

    Work work_;                // what the running pass does for the view
    std::int64_t root_ = 0;    // index of the root among the pass's tokens
    std::int64_t n_pass_ = 0;  // positions committed before the pass
    // [n_layers]: factor by which the next scores of the pass decay earlier ones; empty: all scores of the pass are
    // pooled, so end_pass() leaves the layer out.
    std::vector<std::optional<float>> keep_;
    std::int64_t n_begun_ = 0;     // layers of which the pass has read KV
    std::int64_t n_before_ = 0;    // positions of the layer that the prompt's last prefill chunk scored; 0: none
    std::int64_t n_scored_ = 0;    // positions at the last scoring; 0: there are no scores
    std::int64_t n_built_at_ = 0;  // positions at the last build
    std::int64_t n_built_ = 0;
};

}  // namespace slipstream
