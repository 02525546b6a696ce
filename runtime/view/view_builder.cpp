#include "runtime/view/view_builder.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"
#include "runtime/pass/pass_schedule.h"

namespace slipstream {

namespace {

// Fewest committed tokens between two scorings of the slot groups, since a query reads all keys; also the distance of a
// prompt's queries that score.
constexpr std::int64_t kScoreTokens = 8;
// Most queries of a prompt that score slot groups.
constexpr std::int64_t kPromptRows = 8;
// Fraction of a group's mass that counts for the next group: copied text continues there, and a name that the border of
// a group cuts is needed as a whole (SnapKV pools over neighbours, section 4.2).
constexpr float kOfNext = 0.5F;
constexpr double kShortestHalfLife = 1e-3;  // tokens; used for 0, which must not be a divisor

std::int64_t groups_of(std::int64_t n_tokens) {
    return ceil_div(n_tokens, kGroupTokens);
}

}  // namespace

ViewBuilder::ViewBuilder(KvCache& cache, KvView& view, const Model& model, const ViewOptions& options)
    : cache_(&cache),
      view_(&view),
      config_(&model.config()),
      options_(options),
      max_groups_(groups_of(cache.context_tokens())) {
    CHECK(options.budget_tokens >= kGroupTokens && options.rebuild_tokens >= 0 && view.n_layers() == cache.n_layers(),
          "a view of {} tokens", options.budget_tokens);
    Device& device = model.device();
    const ModelConfig& config = model.config();
    device_scores_ = device.allocate(device_bytes(config, cache.context_tokens()), MemoryTag::Draft,
                                     "scores for a view of the KV cache");
    if (!device.shares_host_memory()) scores_.resize(device_scores_.size_bytes() / sizeof(float));
    const std::int64_t n_kept = std::min(max_groups_, groups_of(options.budget_tokens));
    for (const LayerConfig& layer : config.layers) {
        first_q_head_.push_back(first_q_head_.back() + layer.attention().n_q_heads);
        first_kv_head_.push_back(first_kv_head_.back() + layer.attention().n_kv_heads);
    }
    pooled_.resize(first_kv_head_.back() * max_groups_);
    order_.reserve(max_groups_);
    kept_.resize(n_kept);
    moves_.resize(config.n_layers());
    for (std::size_t layer = 0; layer < moves_.size(); ++layer)
        moves_[layer].reserve(config.layers[layer].attention().n_kv_heads * n_kept);
    read_sinks(model);
}

// Copies the sinks of the layers whose groups are scored to the host.
void ViewBuilder::read_sinks(const Model& model) {
    sinks_.resize(static_cast<std::size_t>(config_->n_layers()));
    const std::unique_ptr<Stream> stream = model.device().make_stream(StreamKind::Compute);
    for (std::int64_t layer = 0; layer < config_->n_layers(); ++layer) {
        const ConstTensorView& sinks = model.weights().layers[layer][TensorRole::Sinks];
        if (sinks.empty() || !scores(layer)) continue;
        sinks_[layer].resize(static_cast<std::size_t>(sinks.cols()));
        stream->copy(sinks_[layer].data(), sinks.data, row_bytes(DType::F32, sinks.cols()));
    }
    stream->synchronize();
}

std::size_t ViewBuilder::device_bytes(const ModelConfig& config, std::int64_t context_tokens) {
    std::int64_t n_q_heads = 0;
    for (const LayerConfig& layer : config.layers) n_q_heads += layer.attention().n_q_heads;
    return row_bytes(DType::F32, n_q_heads * groups_of(context_tokens));
}

void ViewBuilder::restart() {
    view_->invalidate();
    forget_scores();
}

void ViewBuilder::forget_scores() {
    n_scored_ = 0;
    std::ranges::fill(pooled_, 0.0F);
}

bool ViewBuilder::is_due(std::int64_t n_text) const {
    if (n_text == 0) return false;
    if (view_->n_text() == 0) return true;
    return options_.rebuild_tokens > 0 && n_text - n_built_at_ >= options_.rebuild_tokens;
}

ViewBuilder::Work ViewBuilder::work_of_pass(bool whole_layers) const {
    const bool due = is_due(n_pass_);
    if (options_.kind == ViewKind::Window) return {.gather = due};
    const bool at_once = due && !options_.in_steps && whole_layers;
    // A view that is only built when it is full is scored only when it is due.
    const bool again = options_.rebuild_tokens > 0 && n_pass_ - n_scored_ >= kScoreTokens;
    return {.score = at_once || (due && n_scored_ == 0) || (n_scored_ > 0 && again),
            .gather = at_once || (due && n_scored_ > 0),
            .at_once = at_once};
}

PassHooks* ViewBuilder::begin_pass(std::int64_t root, bool whole_layers) {
    if (work_.any()) forget_scores();  // the previous pass threw
    n_pass_ = cache_->n_committed();
    root_ = root;
    // If the sequence grew without the view, or was cut without it, the view is for another sequence.
    if (view_->n_text() != 0 && view_->n_text() != n_pass_) view_->invalidate();
    if (n_scored_ > n_pass_) forget_scores();
    work_ = work_of_pass(whole_layers);
    n_pooled_ = 0;
    keep_ = n_scored_ == 0 ? 0.0F
                           : static_cast<float>(std::exp2(-static_cast<double>(n_pass_ - n_scored_) /
                                                          std::max(options_.half_life_tokens, kShortestHalfLife)));
    if (work_.at_once) n_scored_ = n_pass_;
    if (work_.gather) view_->invalidate();  // gather() overwrites it
    if (work_.gather && !work_.at_once)
        for (std::int64_t layer = 0; layer < config_->n_layers(); ++layer) choose(layer);
    return work_.any() ? this : nullptr;
}

void ViewBuilder::on_kv(ExecRef exec, std::int64_t layer, const KvSegment& segment, const ConstTensorView& q,
                        std::int64_t n_committed) {
    if (n_committed != n_pass_) return;  // an earlier prefill chunk of the pass
    if (work_.score && scores(layer)) score(exec, layer, segment, q, root_);
    if (!work_.at_once) {
        if (work_.gather) gather(exec, layer, segment);
        return;
    }
    // If the layer's last KV chunk is on the device, so are all others, and the table has their addresses.
    if (segment.range.end * kChunkTokens < n_pass_) return;
    if (segment.range.first > 0) {
        work_.at_once = work_.gather = false;  // the layer came in parts after all
        return;
    }
    if (scores(layer)) fetch_scores(exec, layer, 1);
    pool(layer, keep_);
    score_further(exec, layer, segment, q);
    n_pooled_ = layer + 1;
    choose(layer);
    gather(exec, layer, segment);
}

// Scores by further queries of the pass, one after another in the same memory: in a prompt those before the root's,
// which are part of the sequence; in a chain those after it.
void ViewBuilder::score_further(ExecRef exec, std::int64_t layer, const KvSegment& segment, const ConstTensorView& q) {
    if (!scores(layer)) return;
    const std::int64_t n_behind = q.rows() - root_;
    const std::int64_t n =
        root_ > 0 ? std::min(kPromptRows, root_ / kScoreTokens + 1) : std::min(options_.score_rows, n_behind);
    for (std::int64_t i = 1; i < n; ++i) {
        score(exec, layer, segment, q, root_ > 0 ? root_ - i * kScoreTokens : i * n_behind / n);
        fetch_scores(exec, layer, 1);
        pool(layer, 1.0F);
    }
}

// Scores the groups of a segment by the query in row `row` of `q`, into device_scores_.
void ViewBuilder::score(ExecRef exec, std::int64_t layer, const KvSegment& segment, const ConstTensorView& q,
                        std::int64_t row) {
    ConstTensorView query = q;
    query.data = q.row(row);
    query.shape[0] = 1;
    kv_score(exec, {.shape = cache_->layout(layer),
                    .q = query,
                    .n_q_heads = config_->attention(layer).n_q_heads,
                    .chunks = segment.chunks,
                    .first_chunk = segment.range.first,
                    .end_chunk = segment.range.end,
                    .n_committed = n_pass_,
                    .scale = config_->attention(layer).scale(),
                    .softcap = config_->attention(layer).softcap,
                    .score = options_.score,
                    .out = reinterpret_cast<float*>(device_scores_.data()) + first_q_head_[layer] * max_groups_,
                    .n_groups = max_groups_});
}

// Copies the scores of consecutive layers to where the host can read them, with one copy and one wait. Layers without
// scores are copied too.
void ViewBuilder::fetch_scores(ExecRef exec, std::int64_t first_layer, std::int64_t n_layers) {
    if (scores_.empty()) return;
    const std::int64_t first = first_q_head_[first_layer] * max_groups_;
    const std::int64_t end = first_q_head_[first_layer + n_layers] * max_groups_;
    exec.stream.copy(scores_.data() + first, device_scores_.data() + row_bytes(DType::F32, first),
                     row_bytes(DType::F32, end - first));
    exec.stream.synchronize();
}

GroupBudget ViewBuilder::budget_of(std::int64_t layer) const {
    const std::int64_t n_groups = groups_of(n_pass_);
    const std::int64_t n_kept = std::min(n_groups, groups_of(options_.budget_tokens));
    // A layer with a sliding window sees only the last positions. They are kept in consecutive slots, so distances are
    // right.
    if (!scores(layer) && config_->window(layer) > 0)
        return {.n_groups = n_groups, .n_kept = n_kept, .n_first = 0, .n_last = n_kept};
    const std::int64_t n_first = groups_of(options_.sink_tokens);
    // Groups past the scored positions have no score yet, so they are kept as recent ones.
    const std::int64_t n_last = std::max(groups_of(options_.recent_tokens), n_groups - n_scored_ / kGroupTokens);
    return {.n_groups = n_groups,
            .n_kept = n_kept,
            .n_first = n_first,
            .n_last = options_.kind == ViewKind::Window ? n_kept - std::min(n_first, n_kept) : n_last,
            .of_next = options_.score == GroupScore::Mass ? kOfNext : 0.0F};
}

// Returns the pooled scores of the groups for a kv head, [max_groups].
std::span<float> ViewBuilder::pooled_of(std::int64_t layer, std::int64_t head) {
    return std::span(pooled_).subspan((first_kv_head_[layer] + head) * max_groups_, max_groups_);
}

// Adds the last scores of a layer to `keep` times the earlier ones.
void ViewBuilder::pool(std::int64_t layer, float keep) {
    if (!scores(layer)) return;
    const std::int64_t group = config_->attention(layer).queries_per_kv_head();
    const float* all = scores_.empty() ? reinterpret_cast<const float*>(device_scores_.data()) : scores_.data();
    const auto n_groups = static_cast<std::size_t>(groups_of(n_pass_));
    for (std::int64_t head = 0; head < config_->attention(layer).n_kv_heads; ++head) {
        const std::int64_t first = (first_q_head_[layer] + head * group) * max_groups_;
        const std::span<const float> sinks =
            sinks_[layer].empty() ? std::span<const float>() : std::span(sinks_[layer]).subspan(head * group, group);
        pool_scores(options_.score, {all + first, static_cast<std::size_t>(group * max_groups_)}, group, max_groups_,
                    keep, pooled_of(layer, head).first(n_groups), sinks);
    }
}

// Chooses the groups of a layer by the pooled scores, into moves_[layer], sorted by the group that is read.
void ViewBuilder::choose(std::int64_t layer) {
    const GroupBudget budget = budget_of(layer);
    auto& moves = moves_[layer];
    moves.clear();
    const std::span<std::int32_t> kept = std::span(kept_).first(budget.n_kept);
    for (std::int64_t head = 0; head < config_->attention(layer).n_kv_heads; ++head) {
        choose_groups(scores(layer) ? pooled_of(layer, head) : std::span<float>(), budget, order_, kept);
        for (std::size_t i = 0; i < kept.size(); ++i)
            moves.push_back(
                {.head = static_cast<std::int32_t>(head), .from = kept[i], .to = static_cast<std::int32_t>(i)});
    }
    std::ranges::sort(moves, {}, [](const GroupMove& move) { return std::pair(move.from, move.head); });
}

// Copies the groups of moves_[layer] that are in the segment to the view.
void ViewBuilder::gather(ExecRef exec, std::int64_t layer, const KvSegment& segment) {
    const auto& moves = moves_[layer];
    const auto from = [](const GroupMove& move) { return std::int64_t{move.from}; };
    const auto first = std::ranges::lower_bound(moves, segment.range.first * kChunkGroups, {}, from);
    const auto end = std::ranges::lower_bound(moves, segment.range.end * kChunkGroups, {}, from);
    kv_gather(exec, {.shape = cache_->layout(layer),
                     .from = segment.chunks,
                     .to = view_->chunks(layer),
                     .moves = moves.data() + (first - moves.begin()),
                     .n_moves = end - first});
}

void ViewBuilder::end_pass(ExecRef exec, bool complete) {
    const Work work = std::exchange(work_, Work{});
    if (!work.any()) return;
    if (!complete) return forget_scores();
    try {
        if (work.score) {
            if (n_pooled_ < config_->n_layers()) fetch_scores(exec, n_pooled_, config_->n_layers() - n_pooled_);
            for (std::int64_t layer = n_pooled_; layer < config_->n_layers(); ++layer) pool(layer, keep_);
            n_scored_ = n_pass_;
        }
        if (work.gather) fill(exec);
    } catch (...) {  // the scores are dropped: some layers may have been scored by this pass, others not
        restart();
        throw;
    }
    // A view that is only built when it is full is chosen by the scores of one pass, also the next time.
    if (work.gather && options_.rebuild_tokens == 0) forget_scores();
}

// Returns the shortest length to which the sequence can be cut together with the view. A layer with a sliding window
// does not read KV chunks before its window, so their slots were not copied: the window of a shorter sequence must not
// reach them. The bound is the same whether KV streams or not (distribution-exact sampling, E3).
std::int64_t ViewBuilder::shortest_cut() const {
    std::int64_t shortest = 0;
    for (std::int64_t layer = 0; layer < config_->n_layers(); ++layer) {
        const std::int64_t window = config_->window(layer);
        const std::int64_t first = first_chunk_in_window(window, n_pass_) * kChunkTokens;
        if (first > 0) shortest = std::max(shortest, first + window - 1);
    }
    return shortest;
}

// Makes the view valid for the sequence before the running pass, once its groups are copied, and counts a build.
void ViewBuilder::fill(ExecRef exec) {
    const std::int64_t n_groups = groups_of(n_pass_);
    const std::int64_t n_kept = std::min(n_groups, groups_of(options_.budget_tokens));
    const std::int64_t left_out = (n_groups - n_kept) * kGroupTokens;
    // A window view keeps its sinks if room is short; otherwise the last groups take precedence (choose_groups()).
    const std::int64_t n_sinks =
        options_.kind == ViewKind::Window ? std::min(n_kept, groups_of(options_.sink_tokens)) : 0;
    const std::int64_t n_recent =
        std::min((n_kept - n_sinks) * kGroupTokens, round_up(options_.recent_tokens, kGroupTokens)) -
        (n_groups * kGroupTokens - n_pass_);
    const std::int64_t n_whole = left_out == 0 ? n_pass_ : std::max<std::int64_t>(n_recent, 0);
    view_->fill(exec.stream, n_pass_ - left_out, n_pass_, std::min(n_whole, n_pass_ - shortest_cut() + 1));
    n_built_at_ = n_pass_;
    ++n_built_;
}

void ViewBuilder::commit(ExecRef exec, std::span<const NodeId> path) {
    if (view_->n_text() != cache_->n_committed()) return view_->invalidate();
    view_->append(exec, cache_->store(), path);
}

void ViewBuilder::truncate(std::int64_t n_tokens) {
    view_->truncate(n_tokens);
    if (n_scored_ > n_tokens) forget_scores();
}

}  // namespace slipstream
