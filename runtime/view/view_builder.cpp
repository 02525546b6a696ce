#include "runtime/view/view_builder.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"
#include "kernels/view_pages.h"
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

// Groups of a kv head for which staging has room, and those of a page.
constexpr std::int64_t kStagingGroups = KvView::kStagingChunks * kChunkGroups;
constexpr std::int64_t kPageGroups = kPageSlots / kGroupTokens;

}  // namespace

std::int64_t ViewOptions::row_tokens() const {
    if (type == ViewType::Rows) return budget_tokens;
    const std::int64_t n_recent = std::min(round_up(recent_tokens, kGroupTokens), kRecentRows);
    return std::min(budget_tokens, round_up(sink_tokens, kGroupTokens) + n_recent);
}

ViewRoom view_room(const ViewOptions& options, const ModelConfig& config, std::int64_t max_nodes) {
    ViewRoom room{.n_slots = options.slots(), .max_nodes = max_nodes};
    if (options.type == ViewType::Rows) return room;
    const std::int64_t n_rows = options.row_tokens();
    for (std::int64_t layer = 0; layer < config.n_layers(); ++layer) {
        const std::int64_t window = config.window(layer);
        std::int64_t n_paged = options.budget_tokens - n_rows;
        // Rows lack up to a group of the last tokens, since the last group may not be full.
        if (window > 0) n_paged = std::min(n_paged, std::max<std::int64_t>(window + kGroupTokens - n_rows, 0));
        room.page_slots.push_back(round_up(n_paged, kPageSlots));
    }
    return room;
}

std::int64_t rows_like_view(const ViewOptions& options, const ModelConfig& config, DType kv_dtype, DeviceKind kind) {
    std::size_t row_bytes = 0;
    std::size_t page_bytes = 0;
    const std::vector<KvLayout> layouts = config.kv_layouts(kv_dtype);
    const ViewRoom room = view_room(options, config, 1);
    for (std::size_t layer = 0; layer < layouts.size(); ++layer) {
        row_bytes += 2 * layouts[layer].scratch_row_bytes();
        if (room.page_slots.empty()) continue;
        page_bytes += static_cast<std::size_t>(room.page_slots[layer] / kPageSlots * layouts[layer].n_kv_heads) *
                      row_bytes_like_page(kind, layouts[layer]);
    }
    return options.row_tokens() + static_cast<std::int64_t>(ceil_div(page_bytes, std::max<std::size_t>(row_bytes, 1)));
}

ViewBuilder::ViewBuilder(KvCache& cache, KvView& view, const Model& model, const ViewOptions& options)
    : cache_(&cache),
      view_(&view),
      config_(&model.config()),
      options_(options),
      max_groups_(groups_of(cache.context_tokens())) {
    CHECK(options.budget_tokens >= kGroupTokens && options.rebuild_tokens >= 0 && view.n_layers() == cache.n_layers(),
          "a view of {} tokens", options.budget_tokens);
    // The last group may not be full, and pages have full groups only.
    CHECK(options.type == ViewType::Rows || options.recent_tokens > 0, "a view with pages and no last rows");
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
    kept_.resize(options.type == ViewType::Q4 ? max_groups_ : n_kept);
    keep_.resize(config.n_layers());
    moves_.resize(config.n_layers());
    for (std::size_t layer = 0; layer < moves_.size(); ++layer)
        moves_[layer].reserve(config.layers[layer].attention().n_kv_heads * std::min(n_kept, row_groups()));
    layer_paging_.resize(config.n_layers());
    page_groups_.resize(config.n_layers());
    if (view.has_pages()) {
        ranges_.resize(static_cast<std::size_t>(first_kv_head_.back()));
        std::int64_t n_pages = 0;
        std::int64_t most_heads = 0;
        for (std::int64_t layer = 0; layer < config.n_layers(); ++layer) {
            const std::int64_t n_heads = config.attention(layer).n_kv_heads;
            n_pages += n_heads * (view.page_slots(layer) / kPageSlots);
            most_heads = std::max(most_heads, n_heads);
        }
        paging_.moves.reserve(n_pages * kPageGroups);
        paging_.fills.reserve(n_pages);
        paging_.ready.reserve(n_pages);
        paging_.stops.reserve(n_pages);
        staged_.resize(most_heads);
        flushed_.resize(most_heads);
    }
    read_sinks(model);
}

void ViewBuilder::Paging::clear() {
    moves.clear();
    fills.clear();
    ready.clear();
    stops.clear();
}

std::int64_t ViewBuilder::row_groups() const {
    return groups_of(options_.row_tokens());
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
    n_full_page_groups_ = 0;
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

ViewBuilder::Work ViewBuilder::work_of_pass(bool may_build_at_once) const {
    const bool due = is_due(n_pass_);
    if (options_.kind == ViewKind::Window || keeps_all()) return {.gather = due};
    const bool at_once = due && !options_.in_steps && may_build_at_once;
    // A view that is only built when it is full is scored only when it is due.
    const bool again = options_.rebuild_tokens > 0 && n_pass_ - n_scored_ >= kScoreTokens;
    return {.score = at_once || (due && n_scored_ == 0) || (n_scored_ > 0 && again),
            .gather = at_once || (due && n_scored_ > 0),
            .at_once = at_once};
}

PassHooks* ViewBuilder::begin_pass(std::int64_t root, bool may_build_at_once) {
    if (work_.any()) forget_scores();  // the previous pass threw
    n_pass_ = cache_->n_committed();
    root_ = root;
    // If the sequence grew without the view, or was cut without it, the view is for another sequence.
    if (view_->n_text() != 0 && view_->n_text() != n_pass_) {
        view_->invalidate();
        n_full_page_groups_ = 0;
    }
    if (n_scored_ > n_pass_) forget_scores();
    work_ = work_of_pass(may_build_at_once);
    const double n_half_lives =
        static_cast<double>(n_pass_ - n_scored_) / std::max(options_.half_life_tokens, kShortestHalfLife);
    std::ranges::fill(keep_, n_scored_ == 0 ? 0.0F : static_cast<float>(std::exp2(-n_half_lives)));
    if (work_.gather) {
        view_->invalidate();  // gather() overwrites it
        pool_used_ = 0;
        paging_.clear();
        std::ranges::fill(layer_paging_, LayerPaging{});
        budget_pages();
    }
    n_begun_ = 0;
    n_before_ = 0;
    if (work_.gather && !work_.at_once)
        for (std::int64_t layer = 0; layer < config_->n_layers(); ++layer) choose(layer, n_scored_);
    return work_.any() ? this : nullptr;
}

void ViewBuilder::on_kv(ExecRef exec, std::int64_t layer, const KvSegment& segment, const ConstTensorView& q,
                        std::int64_t n_committed) {
    if (n_committed < n_pass_) {  // a prefill chunk of the prompt before the pass
        const bool is_last = n_committed + q.rows() == n_pass_;
        if (!work_.at_once || !is_last || !scores(layer)) return;
        score(exec, layer, segment, q, q.rows() - 1, n_committed);
        n_before_ = n_committed;
        return;
    }
    // If the layer's last KV chunk is on the device, so are all others, and the table has their addresses.
    const bool is_whole = segment.range.first == 0 && segment.range.end * kChunkTokens >= n_pass_;
    const bool is_first = layer >= n_begun_;
    if (work_.at_once && is_first && !is_whole) choose_by_prompt(exec, layer);
    if (work_.score && scores(layer)) score(exec, layer, segment, q, root_, n_pass_);
    if (work_.at_once && is_first && is_whole) {
        if (scores(layer)) fetch_scores(exec, layer, 1);
        pool(layer, n_pass_);
        keep_[layer] = 1.0F;
        score_further(exec, layer, segment, q);
        keep_[layer].reset();
        choose(layer, n_pass_);
    }
    n_begun_ = layer + 1;
    n_before_ = 0;
    if (work_.gather) gather(exec, layer, segment);
}

// Chooses the groups of a layer that comes in parts, by the scores of the prompt's last prefill chunk. If the chunk
// computed no queries, earlier scores decide; without any, the first and the last groups are kept. If the view has less
// room for last groups than the chunk has, the pass scores alone, and the next one copies: else no scored group would
// be kept.
void ViewBuilder::choose_by_prompt(ExecRef exec, std::int64_t layer) {
    if (n_before_ > 0) {
        if (groups_of(n_pass_) - n_before_ / kGroupTokens > groups_of(options_.recent_tokens)) {
            work_.at_once = work_.gather = false;
            return;
        }
        fetch_scores(exec, layer, 1);
        pool(layer, n_before_);
        keep_[layer] = 1.0F;
    }
    choose(layer, n_before_ > 0 ? n_before_ : n_scored_);
}

// Scores by further queries of the pass, one after another in the same memory: in a prompt those before the root's,
// which are part of the sequence; in a chain those after it.
void ViewBuilder::score_further(ExecRef exec, std::int64_t layer, const KvSegment& segment, const ConstTensorView& q) {
    if (!scores(layer)) return;
    const std::int64_t n_behind = q.rows() - root_;
    const std::int64_t n =
        root_ > 0 ? std::min(kPromptRows, root_ / kScoreTokens + 1) : std::min(options_.score_rows, n_behind);
    for (std::int64_t i = 1; i < n; ++i) {
        score(exec, layer, segment, q, root_ > 0 ? root_ - i * kScoreTokens : i * n_behind / n, n_pass_);
        fetch_scores(exec, layer, 1);
        pool(layer, n_pass_);
    }
}

// Scores the groups of a segment by the query in row `row` of `q`, into device_scores_. `n_committed`: positions before
// the tokens of `q`.
void ViewBuilder::score(ExecRef exec, std::int64_t layer, const KvSegment& segment, const ConstTensorView& q,
                        std::int64_t row, std::int64_t n_committed) {
    ConstTensorView query = q;
    query.data = q.row(row);
    query.shape[0] = 1;
    kv_score(exec, {.shape = cache_->layout(layer),
                    .q = query,
                    .n_q_heads = config_->attention(layer).n_q_heads,
                    .chunks = segment.chunks,
                    .first_chunk = segment.range.first,
                    .end_chunk = segment.range.end,
                    .n_committed = n_committed,
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

// Returns the groups to keep of the sequence before the running pass, whose first `n_scored` positions have scores.
GroupBudget ViewBuilder::budget_of(std::int64_t layer, std::int64_t n_scored) const {
    const std::int64_t n_groups = groups_of(n_pass_);
    const std::int64_t n_kept = std::min(n_groups, row_groups()) + page_groups_[layer];
    // A layer with a sliding window sees only the last positions. They are kept in consecutive slots, so distances are
    // right.
    if (config_->window(layer) > 0) return {.n_groups = n_groups, .n_kept = n_kept, .n_first = 0, .n_last = n_kept};
    const std::int64_t n_first = groups_of(options_.sink_tokens);
    // Groups past the scored positions have no score yet, so they are kept as recent ones.
    const std::int64_t n_last = std::max(groups_of(options_.recent_tokens), n_groups - n_scored / kGroupTokens);
    return {.n_groups = n_groups,
            .n_kept = n_kept,
            .n_first = n_first,
            .n_last = scores(layer) && n_scored > 0 ? n_last : n_kept - std::min(n_first, n_kept),
            .of_next = options_.score == GroupScore::Mass ? kOfNext : 0.0F};
}

// Sets how many groups the heads of each layer keep in pages.
void ViewBuilder::budget_pages() {
    const std::int64_t n_groups = groups_of(n_pass_);
    const std::int64_t n_rows = std::min(n_groups, row_groups());
    const std::int64_t n_wanted = std::min(n_groups, groups_of(options_.budget_tokens)) - n_rows;
    for (std::int64_t layer = 0; layer < config_->n_layers(); ++layer) {
        std::int64_t n = n_wanted;
        if (const std::int64_t window = config_->window(layer); window > 0) {
            // Pages have what a query after the text sees.
            const std::int64_t first = groups_of(std::max<std::int64_t>(n_pass_ - window + 1, 0));
            n = std::min(n, std::max<std::int64_t>(n_groups - n_rows - first, 0));
        }
        page_groups_[layer] = n;
    }
    // The page that is the last becomes shorter if the text has become so.
    n_full_page_groups_ = std::min(n_full_page_groups_, (n_groups - n_rows) / kPageGroups * kPageGroups);
}

// Returns the pooled scores of the groups for a kv head, [max_groups].
std::span<float> ViewBuilder::pooled_of(std::int64_t layer, std::int64_t head) {
    return std::span(pooled_).subspan((first_kv_head_[layer] + head) * max_groups_, max_groups_);
}

// Adds the last scores of a layer, of the groups of the first `n_positions`, to keep_ times the earlier ones.
void ViewBuilder::pool(std::int64_t layer, std::int64_t n_positions) {
    if (!scores(layer)) return;
    const std::int64_t group = config_->attention(layer).queries_per_kv_head();
    const float* all = scores_.empty() ? reinterpret_cast<const float*>(device_scores_.data()) : scores_.data();
    const auto n_groups = static_cast<std::size_t>(groups_of(n_positions));
    for (std::int64_t head = 0; head < config_->attention(layer).n_kv_heads; ++head) {
        const std::int64_t first = (first_q_head_[layer] + head * group) * max_groups_;
        const std::span<const float> sinks =
            sinks_[layer].empty() ? std::span<const float>() : std::span(sinks_[layer]).subspan(head * group, group);
        pool_scores(options_.score, {all + first, static_cast<std::size_t>(group * max_groups_)}, group, max_groups_,
                    *keep_[layer], pooled_of(layer, head).first(n_groups), sinks);
    }
}

// Chooses the groups of a layer by the pooled scores, which the first `n_scored` positions have: into moves_[layer]
// those that become rows, and into paging_ those that become pages, both sorted by the group that is read. Rows are the
// first and the last ones.
void ViewBuilder::choose(std::int64_t layer, std::int64_t n_scored) {
    auto& moves = moves_[layer];
    auto& paged = paging_.moves;
    LayerPaging& part = layer_paging_[layer];
    moves.clear();
    part.first_move = std::ssize(paged);
    // Full pages of a view that keeps everything stay. Those of a layer with a window have another beginning each time.
    const std::int64_t n_kept_before = config_->window(layer) > 0 ? 0 : n_full_page_groups_;
    for (std::int64_t head = 0; head < config_->attention(layer).n_kv_heads; ++head) {
        const GroupBudget budget = budget_of(layer, n_scored);
        const std::span<std::int32_t> kept = std::span(kept_).first(budget.n_kept);
        const std::int64_t n_rows = std::min(budget.n_kept, row_groups());
        const std::int64_t n_first = n_rows < budget.n_kept ? std::min(budget.n_first, n_rows) : n_rows;
        const std::int64_t n_paged = budget.n_kept - n_rows;
        choose_groups(scores(layer) ? pooled_of(layer, head) : std::span<float>(), budget, order_, kept);
        for (std::int64_t i = 0; i < budget.n_kept; ++i) {
            GroupMove move{.head = static_cast<std::int32_t>(head), .from = kept[i]};
            if (i >= n_first && i < n_first + n_paged) {
                if (i - n_first >= n_kept_before) paged.push_back(move);  // plan_pages() says where to
            } else {
                move.to = static_cast<std::int32_t>(i < n_first ? i : i - n_paged);
                moves.push_back(move);
            }
        }
        if (!ranges_.empty())
            ranges_[first_kv_head_[layer] + head].n_slots = static_cast<std::int32_t>(n_paged * kGroupTokens);
    }
    const auto by_group = [](const GroupMove& move) { return std::pair(move.from, move.head); };
    std::ranges::sort(moves, {}, by_group);
    part.end_move = std::ssize(paged);
    std::ranges::sort(paged.begin() + part.first_move, paged.end(), {}, by_group);
    if (view_->has_pages()) plan_pages(layer, n_kept_before);
}

// Plans how the layer's groups in paging_.moves become pages, after the first `n_kept_before` groups of each head, and
// gives pages to the heads, whose numbers of slots ranges_ has.
void ViewBuilder::plan_pages(std::int64_t layer, std::int64_t n_kept_before) {
    LayerPaging& part = layer_paging_[layer];
    part.n_filled = std::ssize(paging_.fills);
    const std::int64_t n_heads = config_->attention(layer).n_kv_heads;
    const std::span<PageRange> ranges = std::span(ranges_).subspan(first_kv_head_[layer], n_heads);
    const std::size_t page_bytes = view_->page_bytes(layer);
    auto page = static_cast<std::int64_t>(ceil_div(pool_used_, page_bytes));
    for (PageRange& range : ranges) {
        range.first_page = static_cast<std::int32_t>(page);
        // Where pages stay, so must those of later heads: each has room for all that it can get.
        page += keeps_all() ? view_->page_slots(layer) / kPageSlots : ceil_div(std::int64_t{range.n_slots}, kPageSlots);
    }
    pool_used_ = static_cast<std::size_t>(page) * page_bytes;
    CHECK(pool_used_ <= view_->pool_bytes(), "{} bytes of pages of {}", pool_used_, view_->pool_bytes());
    std::fill_n(staged_.begin(), n_heads, n_kept_before);
    std::fill_n(flushed_.begin(), n_heads, n_kept_before);
    for (std::int64_t i = part.first_move; i < part.end_move; ++i) {
        GroupMove& move = paging_.moves[i];
        const std::int64_t group = staged_[move.head];
        if (group - flushed_[move.head] == kStagingGroups) {
            paging_.stops.push_back(i);
            for (std::int64_t head = 0; head < n_heads; ++head)
                flushed_[head] = staged_[head] / kPageGroups * kPageGroups;
        }
        const std::int64_t place = group % kStagingGroups;
        move.to = static_cast<std::int32_t>(place);
        ++staged_[move.head];
        const PageRange& range = ranges[move.head];
        const bool is_last = (group + 1) * kGroupTokens == range.n_slots;
        if (!is_last && (group + 1) % kPageGroups != 0) continue;
        paging_.fills.push_back({.head = move.head,
                                 .from_step = static_cast<std::int32_t>(place / kPageGroups),
                                 .n_slots = static_cast<std::int32_t>((group % kPageGroups + 1) * kGroupTokens),
                                 .page = static_cast<std::int32_t>(range.first_page + group / kPageGroups)});
        paging_.ready.push_back(i + 1);
    }
    part.end_fill = std::ssize(paging_.fills);
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
    if (view_->has_pages()) gather_pages(exec, layer, segment);
}

// Copies the layer's groups in paging_ that are in the segment to staging, and makes pages of those that are there.
// Segments of a layer come in ascending order, and those of one layer before those of the next.
void ViewBuilder::gather_pages(ExecRef exec, std::int64_t layer, const KvSegment& segment) {
    LayerPaging& part = layer_paging_[layer];
    const auto moves = std::span(paging_.moves).subspan(part.first_move, part.end_move - part.first_move);
    const auto from = [](const GroupMove& move) { return std::int64_t{move.from}; };
    const auto place = [&](std::int64_t chunk) {
        return part.first_move + (std::ranges::lower_bound(moves, chunk * kChunkGroups, {}, from) - moves.begin());
    };
    const std::int64_t end = place(segment.range.end);
    for (std::int64_t first = place(segment.range.first); first < end;) {
        const auto stop = std::ranges::upper_bound(paging_.stops, first);
        const std::int64_t next = stop == paging_.stops.end() ? end : std::min(end, *stop);
        kv_gather(exec, {.shape = cache_->layout(layer),
                         .from = segment.chunks,
                         .to = view_->staging(layer),
                         .moves = paging_.moves.data() + first,
                         .n_moves = next - first});
        const std::int64_t n_ready = std::ranges::upper_bound(paging_.ready, next) - paging_.ready.begin();
        view_pages_write(exec, {.shape = cache_->layout(layer),
                                .from = view_->staging(layer),
                                .fills = paging_.fills.data() + part.n_filled,
                                .n_fills = n_ready - part.n_filled,
                                .pages = view_->page_pool()});
        part.n_filled = n_ready;
        first = next;
    }
}

void ViewBuilder::end_pass(ExecRef exec, bool complete) {
    const Work work = std::exchange(work_, Work{});
    if (!work.any()) return;
    if (!complete) return forget_scores();
    try {
        if (work.score) {
            if (std::ranges::any_of(keep_, [](const auto& keep) { return keep.has_value(); }))
                fetch_scores(exec, 0, config_->n_layers());
            for (std::int64_t layer = 0; layer < config_->n_layers(); ++layer)
                if (keep_[layer]) pool(layer, n_pass_);
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
    const std::int64_t n_groups = groups_of(n_pass_);
    const std::int64_t first_row = (n_groups - std::min(n_groups, row_groups())) * kGroupTokens;
    for (std::int64_t layer = 0; layer < config_->n_layers(); ++layer) {
        const std::int64_t window = config_->window(layer);
        const std::int64_t first = first_chunk_in_window(window, n_pass_) * kChunkTokens;
        // If no row is left of there, none is missing. Pages are seen by all queries in any case.
        if (first > first_row) shortest = std::max(shortest, first + window - 1);
    }
    return shortest;
}

// Makes the view valid for the sequence before the running pass, once its groups are copied, and counts a build.
void ViewBuilder::fill(ExecRef exec) {
    const std::int64_t n_groups = groups_of(n_pass_);
    const std::int64_t n_kept = std::min(n_groups, row_groups());  // as rows
    const std::int64_t left_out = (n_groups - n_kept) * kGroupTokens;
    // A window view keeps its sinks if room is short, and rows beside pages begin with them; otherwise the last groups
    // take precedence (choose_groups()).
    const bool has_sinks = options_.kind == ViewKind::Window || options_.type == ViewType::Q4;
    const std::int64_t n_sinks = has_sinks ? std::min(n_kept, groups_of(options_.sink_tokens)) : 0;
    const std::int64_t n_recent =
        std::min((n_kept - n_sinks) * kGroupTokens, round_up(options_.recent_tokens, kGroupTokens)) -
        (n_groups * kGroupTokens - n_pass_);
    const std::int64_t n_whole = left_out == 0 ? n_pass_ : std::max<std::int64_t>(n_recent, 0);
    // Every pass over the cache shows all KV chunks that a layer sees, so all pages are filled. A pass that did not
    // would leave pages with the codes of an earlier build.
    if (!std::ranges::all_of(layer_paging_, [](const LayerPaging& part) { return part.n_filled == part.end_fill; }))
        return restart();
    if (keeps_all()) n_full_page_groups_ = std::max<std::int64_t>(n_groups - n_kept, 0) / kPageGroups * kPageGroups;
    view_->fill(exec.stream, n_pass_ - left_out, n_pass_, std::min(n_whole, n_pass_ - shortest_cut() + 1), ranges_);
    n_built_at_ = n_pass_;
    ++n_built_;
}

void ViewBuilder::commit(ExecRef exec, std::span<const NodeId> path) {
    if (view_->n_text() != cache_->n_committed()) return view_->invalidate();
    view_->append(exec, cache_->store(), path);
}

void ViewBuilder::truncate(std::int64_t n_tokens) {
    // Pages begin after the sinks.
    const std::int64_t n_left = n_tokens / kGroupTokens - groups_of(options_.sink_tokens);
    n_full_page_groups_ = std::min(n_full_page_groups_, std::max<std::int64_t>(n_left, 0) / kPageGroups * kPageGroups);
    view_->truncate(n_tokens);
    if (n_scored_ > n_tokens) forget_scores();
}

}  // namespace slipstream
