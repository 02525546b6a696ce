#include "runtime/view/view_builder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"

namespace slipstream {

namespace {

std::int64_t groups_of(std::int64_t n_tokens) {
    return ceil_div(n_tokens, kGroupTokens);
}

}  // namespace

ViewBuilder::ViewBuilder(Device& device, KvCache& cache, KvView& view, const ModelConfig& config,
                         const ViewOptions& options)
    : cache_(&cache),
      view_(&view),
      config_(&config),
      options_(options),
      max_groups_(groups_of(cache.context_tokens())) {
    CHECK(options.budget_tokens >= kGroupTokens && options.rebuild_tokens >= 0 && view.n_layers() == cache.n_layers(),
          "a view of {} tokens", options.budget_tokens);
    device_scores_ = device.allocate(device_bytes(config, cache.context_tokens()), MemoryTag::Draft,
                                     "scores for a view of the KV cache");
    if (!device.shares_host_memory()) scores_.resize(device_scores_.size_bytes() / sizeof(float));
    const std::int64_t n_kept = std::min(max_groups_, groups_of(options.budget_tokens));
    const auto n_pooled = static_cast<std::size_t>(config.n_kv_heads * max_groups_);
    pooled_.resize(options.kind == ViewKind::Heavy ? n_pooled * static_cast<std::size_t>(config.n_layers) : n_pooled);
    order_.reserve(static_cast<std::size_t>(max_groups_));
    kept_.resize(static_cast<std::size_t>(n_kept));
    moves_.resize(static_cast<std::size_t>(config.n_layers));
    for (auto& moves : moves_) moves.reserve(static_cast<std::size_t>(config.n_kv_heads * n_kept));
}

std::size_t ViewBuilder::device_bytes(const ModelConfig& config, std::int64_t context_tokens) {
    return row_bytes(DType::F32, config.n_layers * config.n_q_heads * groups_of(context_tokens));
}

void ViewBuilder::restart() {
    view_->invalidate();
    n_scored_ = 0;
    if (options_.kind == ViewKind::Heavy) std::ranges::fill(pooled_, 0.0F);
}

bool ViewBuilder::is_due(std::int64_t n_text) const {
    if (n_text == 0) return false;
    if (view_->n_text() == 0) return true;
    return options_.rebuild_tokens > 0 && n_text - n_built_at_ >= options_.rebuild_tokens;
}

PassHooks* ViewBuilder::begin_pass(std::int64_t root, bool with_prompt) {
    if (work_ != Work::Nothing) n_scored_ = 0;  // the pass before threw
    n_pass_ = cache_->n_committed();
    root_ = root;
    // Where the text went on without the view, or was cut under it, it stands for another one.
    if (view_->n_text() != 0 && view_->n_text() != n_pass_) view_->invalidate();
    if (n_scored_ > n_pass_) n_scored_ = 0;
    work_ = Work::Nothing;
    const bool whole = !options_.in_steps && (with_prompt || !cache_->streams());
    if (n_scored_ > 0) {
        for (std::int64_t layer = 0; layer < config_->n_layers; ++layer) {
            pool(layer, AddScores::No);
            choose(layer);
        }
        work_ = Work::Gather;
    } else if (is_due(n_pass_)) {
        if (options_.kind == ViewKind::Window) {
            n_scored_ = n_pass_;
            return begin_pass(root, with_prompt);
        }
        work_ = whole ? Work::Both : Work::Score;
    }
    if (work_ == Work::Gather || work_ == Work::Both) view_->invalidate();  // it is written over
    return work_ == Work::Nothing ? nullptr : this;
}

void ViewBuilder::on_kv(ExecRef exec, std::int64_t layer, const KvPiece& piece, const ConstTensorView& q,
                        std::int64_t n_committed) {
    if (n_committed != n_pass_) return;  // of a piece of prompt in front of the pass
    if (work_ == Work::Gather) return gather(exec, layer, piece);
    if (scores(layer)) score(exec, layer, piece, q, root_);
    // With the layer's last chunk at hand all of it has passed by, and the table names where it lies.
    if (work_ != Work::Both || piece.range.end * kChunkTokens < n_pass_) return;
    if (piece.range.first > 0) {
        work_ = Work::Score;  // it came in parts after all
        return;
    }
    n_scored_ = n_pass_;
    if (scores(layer)) fetch_scores(exec, layer, 1);
    pool(layer, AddScores::No);
    score_further(exec, layer, piece, q);
    choose(layer);
    gather(exec, layer, piece);
}

// By the queries behind the root's, one after the other in the same memory.
void ViewBuilder::score_further(ExecRef exec, std::int64_t layer, const KvPiece& piece, const ConstTensorView& q) {
    if (!scores(layer)) return;
    const std::int64_t n_behind = q.rows() - root_;
    const std::int64_t n = std::min(options_.score_rows, n_behind);
    for (std::int64_t i = 1; i < n; ++i) {
        score(exec, layer, piece, q, root_ + i * n_behind / n);
        fetch_scores(exec, layer, 1);
        pool(layer, AddScores::Yes);
    }
}

void ViewBuilder::score(ExecRef exec, std::int64_t layer, const KvPiece& piece, const ConstTensorView& q,
                        std::int64_t row) {
    ConstTensorView query = q;
    query.data = q.row(row);
    query.shape[0] = 1;
    kv_score(exec, {.shape = cache_->shape(),
                    .q = query,
                    .n_q_heads = config_->n_q_heads,
                    .chunks = piece.chunks,
                    .first_chunk = piece.range.first,
                    .end_chunk = piece.range.end,
                    .n_committed = n_pass_,
                    .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config_->head_dim))),
                    .score = options_.score,
                    .out = reinterpret_cast<float*>(device_scores_.data()) + layer * config_->n_q_heads * max_groups_,
                    .n_groups = max_groups_});
}

// Scores of layers that follow one another, where the host can read them: one copy, one wait. Layers that are not
// scored come along.
void ViewBuilder::fetch_scores(ExecRef exec, std::int64_t first_layer, std::int64_t n_layers) {
    if (scores_.empty()) return;
    const std::int64_t n = config_->n_q_heads * max_groups_;
    exec.stream.copy(scores_.data() + first_layer * n, device_scores_.data() + row_bytes(DType::F32, first_layer * n),
                     row_bytes(DType::F32, n_layers * n));
    exec.stream.synchronize();
}

GroupBudget ViewBuilder::budget_of(std::int64_t layer, std::int64_t n_text) const {
    const std::int64_t n_groups = groups_of(n_text);
    const std::int64_t n_kept = std::min(n_groups, groups_of(options_.budget_tokens));
    // A layer with a window sees the last positions alone; slots that follow one another keep their distances.
    if (!scores(layer) && config_->window(layer) > 0)
        return {.n_groups = n_groups, .n_kept = n_kept, .n_first = 0, .n_last = n_kept};
    const std::int64_t n_first = groups_of(options_.sink_tokens);
    // What came behind the scored positions has no score yet.
    const std::int64_t n_last = std::max(groups_of(options_.recent_tokens), n_groups - n_scored_ / kGroupTokens);
    return {.n_groups = n_groups,
            .n_kept = n_kept,
            .n_first = n_first,
            .n_last = options_.kind == ViewKind::Window ? n_kept - std::min(n_first, n_kept) : n_last};
}

// What groups are worth to a kv head, [max_groups].
std::span<float> ViewBuilder::pooled_of(std::int64_t layer, std::int64_t head) {
    const std::int64_t first = options_.kind == ViewKind::Heavy ? layer * config_->n_kv_heads : 0;
    return std::span(pooled_).subspan(static_cast<std::size_t>((first + head) * max_groups_),
                                      static_cast<std::size_t>(max_groups_));
}

// Of the scores of a layer that were made last; Heavy adds them to what is there in any case.
void ViewBuilder::pool(std::int64_t layer, AddScores add) {
    if (!scores(layer)) return;
    if (options_.kind == ViewKind::Heavy) add = AddScores::Yes;
    const std::int64_t group = config_->n_q_heads / config_->n_kv_heads;
    const float* all = scores_.empty() ? reinterpret_cast<const float*>(device_scores_.data()) : scores_.data();
    const auto n_scored = static_cast<std::size_t>(groups_of(n_scored_));
    for (std::int64_t head = 0; head < config_->n_kv_heads; ++head) {
        const std::int64_t first = (layer * config_->n_q_heads + head * group) * max_groups_;
        pool_scores(options_.score, {all + first, static_cast<std::size_t>(group * max_groups_)}, group, max_groups_,
                    add, pooled_of(layer, head).first(n_scored));
    }
}

// What of a layer is kept, by what was pooled last: moves_[layer], by the groups that are read.
void ViewBuilder::choose(std::int64_t layer) {
    const GroupBudget budget = budget_of(layer, n_pass_);
    auto& moves = moves_[static_cast<std::size_t>(layer)];
    moves.clear();
    const std::span<std::int32_t> kept = std::span(kept_).first(static_cast<std::size_t>(budget.n_kept));
    for (std::int64_t head = 0; head < config_->n_kv_heads; ++head) {
        choose_groups(scores(layer) ? pooled_of(layer, head) : std::span<float>(), budget, order_, kept);
        for (std::size_t i = 0; i < kept.size(); ++i)
            moves.push_back(
                {.head = static_cast<std::int32_t>(head), .from = kept[i], .to = static_cast<std::int32_t>(i)});
    }
    std::ranges::sort(moves, {}, [](const GroupMove& move) { return std::pair(move.from, move.head); });
}

// The part of the moves that a piece holds.
void ViewBuilder::gather(ExecRef exec, std::int64_t layer, const KvPiece& piece) {
    const auto& moves = moves_[static_cast<std::size_t>(layer)];
    const auto from = [](const GroupMove& move) { return std::int64_t{move.from}; };
    const auto first = std::ranges::lower_bound(moves, piece.range.first * kChunkGroups, {}, from);
    const auto end = std::ranges::lower_bound(moves, piece.range.end * kChunkGroups, {}, from);
    kv_gather(exec, {.shape = cache_->shape(),
                     .from = piece.chunks,
                     .to = view_->chunks(layer),
                     .moves = moves.data() + (first - moves.begin()),
                     .n_moves = end - first});
}

void ViewBuilder::end_pass(ExecRef exec, bool complete) {
    const Work work = std::exchange(work_, Work::Nothing);
    if (work == Work::Nothing) return;
    if (!complete) {
        n_scored_ = 0;
        return;
    }
    if (work == Work::Score) {
        fetch_scores(exec, 0, config_->n_layers);
        n_scored_ = n_pass_;
        return;
    }
    n_scored_ = 0;
    const std::int64_t n_groups = groups_of(n_pass_);
    const std::int64_t n_kept = std::min(n_groups, groups_of(options_.budget_tokens));
    const std::int64_t left_out = (n_groups - n_kept) * kGroupTokens;
    const std::int64_t n_recent = std::min(n_kept * kGroupTokens, round_up(options_.recent_tokens, kGroupTokens)) -
                                  (n_groups * kGroupTokens - n_pass_);
    view_->fill(exec.stream, n_pass_ - left_out, n_pass_,
                left_out == 0 ? n_pass_ : std::max<std::int64_t>(n_recent, 0));
    n_built_at_ = n_pass_;
    ++n_built_;
}

void ViewBuilder::commit(ExecRef exec, std::span<const NodeId> path) {
    if (view_->n_text() != cache_->n_committed()) return view_->invalidate();
    view_->append(exec, cache_->store(), path);
}

void ViewBuilder::truncate(std::int64_t n_tokens) {
    view_->truncate(n_tokens);
    if (n_scored_ > n_tokens) n_scored_ = 0;
}

}  // namespace slipstream
