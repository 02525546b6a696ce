#include "runtime/ranks/rank_target.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"
#include "runtime/pass/expert_choices.h"

namespace slipstream {

RankTarget::RankTarget(const std::vector<Rank>& ranks, std::vector<KvCache*> caches, PinnedArena* arena)
    : ranks_(ranks),
      caches_(std::move(caches)),
      kvs_(caches_.begin(), caches_.end()),
      owners_(layer_owners(ranks_)),
      passes_(make_rank_passes(ranks_, arena)),
      logits_(ranks_, ranks_.front().forward->limits().max_logit_rows) {
    CHECK(caches_.size() == ranks_.size(), "{} caches of {} ranks", caches_.size(), ranks_.size());
    const ForwardLimits& limits = ranks_.front().forward->limits();
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
        CHECK(ranks_[rank].forward->limits().max_tokens == limits.max_tokens &&
                  ranks_[rank].forward->limits().max_logit_rows == limits.max_logit_rows &&
                  caches_[rank]->n_layers() == ranks_[rank].forward->n_layers() &&
                  caches_[rank]->max_nodes() == caches_.front()->max_nodes() &&
                  caches_[rank]->context_tokens() == caches_.front()->context_tokens(),
              "ranks of different limits");
    std::size_t rows_bytes = 0;  // bytes of the K and V rows of one node, in all layers
    for (const std::vector<LayerOwner>& each : owners_) {
        KvLayout& whole = kv_.emplace_back(layout(each.front()));
        for (const LayerOwner& owner : std::span(each).subspan(1)) whole.n_kv_heads += layout(owner).n_kv_heads;
        rows_bytes += 2 * whole.scratch_row_bytes();
    }
    if (owners_.front().size() > 1) rows_.resize(rows_bytes);
}

RankTarget::~RankTarget() {
    if (!failed_ && !in_pass_) return;
    for (const Rank& rank : ranks_) {
        try {
            rank.forward->exec().stream.synchronize();
        } catch (...) {  // the pass has reported an error already
        }
    }
}

TargetShape RankTarget::shape() const {
    const ForwardLimits& limits = ranks_.front().forward->limits();
    return {.context_tokens = caches_.front()->context_tokens(),
            .max_tokens = limits.max_tokens,
            .max_logit_rows = limits.max_logit_rows,
            .max_nodes = caches_.front()->max_nodes(),
            .has_prompt_kernels = std::ranges::any_of(
                ranks_, [](const Rank& rank) { return rank.forward->exec().device.has_prompt_kernels(); }),
            .n_layers = std::ssize(owners_),
            .kv = kv_};
}

NodeId RankTarget::add_node(NodeId parent, NodeKind kind) {
    const NodeId node = caches_.front()->add_node(parent, kind);
    for (KvCache* cache : std::span(caches_).subspan(1))
        CHECK(cache->add_node(parent, kind) == node, "ranks number their nodes differently");
    for (ExpertChoices* choices : choices_) choices->forget(node);
    return node;
}

void RankTarget::check_between_passes() const {
    CHECK(!in_pass_ && extended_from_ < 0, "the sequence changes {}",
          in_pass_ ? "in a pass" : "before an announced prompt");
}

// Commits on all ranks or on none: a commit can only lack host memory, which is awaited for all ranks first.
void RankTarget::commit(std::span<const NodeId> path) {
    check_between_passes();
    for (KvCache* cache : caches_) cache->await_room(std::ssize(path));
    const std::int64_t before = n_committed();
    try {
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
            on_rank(ranks_, rank, kKvStage, [&] {
                if (!views_.empty()) views_[rank]->commit(exec(rank), path);
                caches_[rank]->commit(exec(rank), path);
            });
    } catch (...) {
        roll_back_to(before);
        throw;
    }
    if (tail_ != nullptr) tail_->commit(before, path);
    for (std::size_t rank = 0; rank < choices_.size(); ++rank)
        ranks_[rank].forward->count_choices(*choices_[rank], before, path);
}

void RankTarget::forget() {
    CHECK(!in_pass_, "nodes are forgotten in a pass");
    if (tail_ != nullptr) tail_->forget();
    const std::int64_t from = std::exchange(extended_from_, -1);
    if (from < 0) {
        for (KvCache* cache : caches_) cache->forget();
    } else {
        const std::int64_t kept = positions_after_cut(from);
        for (KvCache* cache : caches_) cache->rollback(kept);
        for (ViewBuilder* view : views_) view->truncate(kept);
        if (tail_ != nullptr) tail_->truncate(kept);
    }
    if (std::exchange(failed_, false)) roll_back_to(n_committed());
}

std::int64_t RankTarget::positions_after_cut(std::int64_t n_tokens) const {
    // A rank may lack the checkpoint that another one has.
    for (std::int64_t before = -1; before != n_tokens;) {
        before = n_tokens;
        for (const KvCache* cache : caches_) n_tokens = cache->positions_after_cut(n_tokens);
    }
    return n_tokens;
}

void RankTarget::truncate(std::int64_t n_tokens) {
    check_between_passes();
    if (n_tokens < n_committed()) n_tokens = positions_after_cut(n_tokens);
    try {
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
            on_rank(ranks_, rank, kKvStage, [&] { caches_[rank]->truncate(exec(rank), n_tokens); });
    } catch (...) {
        roll_back_to(n_tokens);
        throw;
    }
    for (ViewBuilder* view : views_) view->truncate(n_tokens);
    if (tail_ != nullptr) tail_->truncate(n_tokens);
}

// Returns the sum of the ranks' versions; 0 if one of them is 0. It changes whenever a rank's version does, since
// versions only grow.
std::uint64_t RankTarget::chunk_version(std::int64_t chunk) const {
    std::uint64_t sum = 0;
    for (const KvCache* cache : caches_) {
        const std::uint64_t version = cache->chunk_version(chunk);
        if (version == 0) return 0;
        sum += version;
    }
    return sum;
}

void RankTarget::recommit(std::int64_t n_tokens) {
    check_between_passes();
    for (KvCache* cache : caches_) cache->recommit(n_tokens);
}

// Restores a common state after an error: all ranks keep the first n_tokens positions, or as many of them as are intact
// on all. A truncation that fails loses the KV chunk in which the positions then end.
void RankTarget::roll_back_to(std::int64_t n_tokens) noexcept {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
        n_tokens = std::min(n_tokens, caches_[rank]->keep_intact_prefix(exec(rank)));
    for (std::size_t n_alike = 0; n_alike < ranks_.size();) {
        const std::size_t rank = n_alike++;
        if (caches_[rank]->n_committed() == n_tokens) continue;
        bool is_alike = false;
        try {
            caches_[rank]->truncate(exec(rank), n_tokens);
            // False: a ring had overwritten KV that the rank's cache needs.
            is_alike = caches_[rank]->n_committed() == n_tokens;
        } catch (...) {
        }
        if (is_alike) continue;
        n_tokens = std::min(n_tokens, caches_[rank]->keep_intact_prefix(exec(rank)));
        n_alike = 0;
    }
    for (ViewBuilder* view : views_) view->truncate(n_committed());
    if (tail_ != nullptr) tail_->truncate(n_committed());
}

bool RankTarget::takes_prompt(std::int64_t end) const {
    return passes_->takes_prompt(caches_, n_committed(), end);
}

bool RankTarget::takes_saved_prompt(std::int64_t end) const {
    return passes_->takes_saved_prompt(caches_, n_committed(), end);
}

void RankTarget::extend(std::int64_t end) {
    check_between_passes();
    const std::int64_t from = n_committed();
    CHECK(takes_saved_prompt(end), "a prompt from {} to {}", from, end);
    for (KvCache* cache : caches_) cache->reserve(end);
    extended_from_ = from;
}

void RankTarget::begin(const TargetPass& pass) {
    CHECK(!in_pass_, "a pass is under way");
    CHECK(pass.prompt.empty() == (extended_from_ < 0), "a prompt of {} tokens, announced from {}", pass.prompt.size(),
          extended_from_);
    n_logits_ = 0;
    failed_ = true;                                             // until finish()
    for (std::size_t rank = 0; rank < choices_.size(); ++rank)  // targets of several sequences share a forward
        ranks_[rank].forward->note_choices_in(choices_[rank]);
    const RankPass on_ranks{.pass = &pass, .hooks = begin_views(pass), .logits = logits_.parts()};
    bool complete = false;
    if (pass.prompt.empty()) {
        complete = passes_->run(kvs_, on_ranks);
    } else {
        CHECK(pass.needs && pass.phase == Phase::Decode, "a pass with a prompt requires needs and Phase::Decode");
        complete = passes_->run_prompt(caches_, extended_from_, on_ranks);
        if (complete) extended_from_ = -1;
    }
    if (complete) n_logits_ = std::ssize(pass.logit_tokens);
    nodes_ = complete && tail_ != nullptr ? pass.nodes : std::span<const NodeId>{};
    if (!nodes_.empty()) {
        const std::size_t last = owners_.back().front().rank;
        on_rank(ranks_, last, kLmHeadStage, [&] {
            tail_->enqueue_copy(exec(last), nodes_, ranks_[last].forward->last_hidden(std::ssize(nodes_)));
        });
    }
    in_pass_ = true;
}

LogitRows RankTarget::finish() {
    CHECK(in_pass_, "no pass was begun");
    in_pass_ = false;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
        on_rank(ranks_, rank, kLmHeadStage, [&] { exec(rank).stream.synchronize(); });
    end_views(n_logits_ > 0);
    if (tail_ != nullptr) tail_->mark_copied(nodes_);
    failed_ = false;
    return logits_.gather(n_logits_);
}

void RankTarget::build_views_with(std::vector<ViewBuilder*> builders) {
    CHECK(!in_pass_ && (builders.empty() || builders.size() == ranks_.size()), "{} views of {} ranks", builders.size(),
          ranks_.size());
    views_ = std::move(builders);
    hooks_.assign(views_.size(), nullptr);
}

void RankTarget::keep_hidden_in(HiddenTail* tail) {
    CHECK(!in_pass_, "hidden states are wanted in a pass");
    tail_ = tail;
}

void RankTarget::note_choices_in(std::vector<ExpertChoices*> choices) {
    CHECK(!in_pass_ && (choices.empty() || choices.size() == ranks_.size()), "choices of {} of {} ranks",
          choices.size(), ranks_.size());
    choices_ = std::move(choices);
    if (choices_.empty())
        for (const Rank& rank : ranks_) rank.forward->note_choices_in(nullptr);
}

// Returns the hooks of a pass, [ranks]; empty if views do not follow it. A pass without logits is a prefill chunk: more
// follows before anything is drafted, so views do not follow it. Whether views may be built in one pass is decided for
// all ranks alike.
std::span<PassHooks* const> RankTarget::begin_views(const TargetPass& pass) {
    if (views_.empty() || pass.logit_tokens.empty()) return {};
    if (pass.checkpoints != nullptr && pass.checkpoints->saved) return {};  // earlier layers are not computed again
    even_views();
    const bool may_build_at_once =
        !pass.prompt.empty() || std::ranges::none_of(caches_, [](const KvCache* cache) { return cache->streams(); });
    for (std::size_t rank = 0; rank < views_.size(); ++rank)
        hooks_[rank] = views_[rank]->begin_pass(pass.logit_tokens.front(), may_build_at_once);
    return hooks_;
}

void RankTarget::end_views(bool complete) {
    try {
        for (std::size_t rank = 0; rank < views_.size(); ++rank)
            on_rank(ranks_, rank, kKvStage, [&] { views_[rank]->end_pass(exec(rank), complete); });
    } catch (...) {
        for (ViewBuilder* view : views_) view->restart();
        throw;
    }
    even_views();
}

// If one view is invalid, invalidates all: after a prompt, a rank whose ring has no room for a whole layer may complete
// its view a pass later than the others. If one rank also has scores that another lacks (a view that is built once
// drops its scores), all drop their scores: else the ranks would score and build in turn, and no pass would find all
// views valid.
void RankTarget::even_views() {
    if (views_.empty()) return;
    const ViewBuilder& first = *views_.front();
    const bool even = std::ranges::all_of(views_, [&](ViewBuilder* view) {
        return view->view().n_text() == first.view().n_text() && view->view().n_slots() == first.view().n_slots();
    });
    if (even) return;
    const bool scored_alike =
        std::ranges::all_of(views_, [&](ViewBuilder* view) { return view->n_scored() == first.n_scored(); });
    for (ViewBuilder* view : views_) scored_alike ? view->view().invalidate() : view->restart();
}

// Writes a row of the whole model: the keys of all kv heads, then their values; each owner has some of the heads.
void RankTarget::read_rows(NodeId node, std::byte* out) {
    const bool is_split = owners_.front().size() > 1;
    for (std::size_t at = 0; at < owners_.front().size(); ++at) {
        std::byte* to = is_split ? rows_.data() : out;
        for (const std::vector<LayerOwner>& each : owners_) {
            const LayerOwner& owner = each[at];
            caches_[owner.rank]->read_rows(exec(owner.rank), owner.layer, node, to);
            to += 2 * layout(owner).scratch_row_bytes();
        }
        for (const Rank& rank : ranks_) rank.forward->exec().stream.synchronize();
        if (!is_split) return;
        const std::byte* from = rows_.data();
        std::byte* of_layer = out;
        for (std::size_t layer = 0; layer < owners_.size(); ++layer) {
            const std::size_t whole = kv_[layer].scratch_row_bytes();
            const std::size_t part = layout(owners_[layer][at]).scratch_row_bytes();
            std::size_t before = 0;  // bytes of keys of the owners before
            for (std::size_t i = 0; i < at; ++i) before += layout(owners_[layer][i]).scratch_row_bytes();
            std::copy_n(from, part, of_layer + before);
            std::copy_n(from + part, part, of_layer + whole + before);
            from += 2 * part;
            of_layer += 2 * whole;
        }
    }
}

std::int64_t RankTarget::first_kept_chunk(std::int64_t layer) const {
    const LayerOwner& owner = owners_[layer].front();  // all owners of a layer keep the same chunks of it
    return caches_[owner.rank]->first_kept_chunk(owner.layer);
}

std::int64_t RankTarget::first_restored_chunk(std::int64_t layer, std::int64_t n_tokens) const {
    const LayerOwner& owner = owners_[layer].front();
    return caches_[owner.rank]->first_restored_chunk(owner.layer, n_tokens);
}

// Writes a KV chunk of the whole model: the chunks of its owners, one after the other, since heads are its outermost
// dimension.
void RankTarget::read_chunk(std::int64_t layer, std::int64_t chunk, std::byte* out) {
    failed_ = true;  // until the KV chunk is read
    for (const LayerOwner& owner : owners_[layer]) {
        on_rank(ranks_, owner.rank, layer,
                [&] { caches_[owner.rank]->read_chunk(exec(owner.rank), owner.layer, chunk, out); });
        out += layout(owner).chunk_bytes();
    }
    failed_ = false;
}

std::int64_t RankTarget::last_state(std::int64_t n_tokens, std::int64_t step) const {
    if (std::ranges::all_of(caches_, [](KvCache* cache) { return cache->states() == nullptr; })) return 0;
    // A rank may lack the checkpoint that another one has.
    for (std::int64_t before = -1; before != n_tokens;) {
        before = n_tokens;
        for (KvCache* cache : caches_)
            if (cache->states() != nullptr) n_tokens = cache->states()->last_readable(n_tokens, step);
    }
    return n_tokens;
}

// A recurrent layer has one owner: matrices of such models are not split.
void RankTarget::read_state(std::int64_t layer, std::int64_t position, std::byte* out) {
    const LayerOwner& owner = owners_[layer].front();
    failed_ = true;  // until the states are read
    on_rank(ranks_, owner.rank, layer,
            [&] { caches_[owner.rank]->states()->read_states(exec(owner.rank), owner.layer, position, out); });
    failed_ = false;
}

// `read` is called outside of on_rank(): its errors are those of a file.
void RankTarget::restore_states(std::int64_t position, const std::function<void(std::int64_t, std::byte*)>& read) {
    check_between_passes();
    CHECK(n_committed() == 0 && n_nodes() == 0, "states are filled after {} positions and {} nodes", n_committed(),
          n_nodes());
    std::vector<std::byte> states;
    for (std::int64_t layer = 0; layer < std::ssize(owners_); ++layer) {
        const std::size_t bytes = RecurrentStates::state_bytes({&kv_[layer], 1});
        if (bytes == 0) continue;
        states.resize(bytes);
        read(layer, states.data());
        const LayerOwner& owner = owners_[layer].front();
        on_rank(ranks_, owner.rank, layer,
                [&] { caches_[owner.rank]->states()->write_kept(exec(owner.rank), owner.layer, states.data()); });
    }
    for (KvCache* cache : caches_)
        if (cache->states() != nullptr) cache->states()->keep_written(position);
}

// `read` is called outside of on_rank(): its errors are those of a file. With one rank it reads into the chunk's place.
void RankTarget::restore(std::int64_t first, std::int64_t n_tokens,
                         const std::function<void(std::int64_t, std::int64_t, std::byte*)>& read) {
    if (ranks_.size() == 1) return caches_.front()->restore(exec(0), first, n_tokens, read);
    std::vector<std::byte> whole(largest_chunk_bytes(kv_));
    try {
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
            on_rank(ranks_, rank, kKvStage, [&] { caches_[rank]->begin_restore(exec(rank), first, n_tokens); });
        for (std::int64_t chunk = first / kChunkTokens; chunk * kChunkTokens < n_tokens; ++chunk) {
            for (std::int64_t layer = 0; layer < std::ssize(owners_); ++layer) {
                if (chunk < first_restored_chunk(layer, n_tokens)) continue;
                read(layer, chunk, whole.data());
                restore_chunk(n_tokens, layer, chunk, whole.data());
            }
        }
    } catch (...) {
        roll_back_to(first);
        throw;
    }
    for (KvCache* cache : caches_) cache->end_restore(n_tokens);
}

void RankTarget::restore_chunk(std::int64_t n_tokens, std::int64_t layer, std::int64_t chunk, const std::byte* from) {
    for (const LayerOwner& owner : owners_[layer]) {
        KvCache& cache = *caches_[owner.rank];
        const std::size_t bytes = layout(owner).chunk_bytes();
        on_rank(ranks_, owner.rank, layer, [&] {
            cache.restore_chunk(exec(owner.rank), n_tokens, owner.layer, chunk,
                                [&](std::byte* out) { std::copy_n(from, bytes, out); });
        });
        from += bytes;
    }
}

}  // namespace slipstream
