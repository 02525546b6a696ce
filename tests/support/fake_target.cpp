#include "tests/support/fake_target.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"
#include "kernels/base/error.h"
#include "kernels/base/philox.h"
#include "kernels/matmul.h"
#include "runtime/cache/kv_ring.h"
#include "runtime/cache/recurrent_states.h"

namespace slipstream {

namespace {

constexpr std::int64_t kLayers = 2;
constexpr KvLayout kShape{.n_kv_heads = 1, .head_dim = 2, .dtype = DType::F16};  // a row of K or V has 4 bytes
constexpr KvLayout kRecurrent{
    .state = {.n_key_heads = 1, .n_value_heads = 1, .key_dim = 4, .value_dim = 16, .conv_width = 2}};
constexpr std::array<KvLayout, kLayers + 1> kLayouts{kShape, kShape, kRecurrent};

std::uint32_t mix(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
    const std::uint32_t word = philox4x32_10({{a, b, c, d}}, {11, 7}).word[0];
    return word == 0 ? 1 : word;
}

// Returns the K row (part 0) or V row (part 1) of a position. The K row of layer 0 is the state itself, so that
// restore() can read it back.
std::uint32_t row_of(std::uint32_t state, std::int64_t layer, std::int64_t part) {
    const auto place = static_cast<std::uint32_t>(2 * layer + part);
    return place == 0 ? state : mix(state, place, 0, 0);
}

}  // namespace

std::uint32_t FakeKv::next(std::uint32_t above, std::int64_t position, TokenId token, Phase phase) const {
    const bool as_prompt = options.has_prompt_kernels && phase == Phase::Prefill;
    return mix(above, static_cast<std::uint32_t>(token), static_cast<std::uint32_t>(position), as_prompt ? 1 : 2);
}

void FakeKv::write_rows(std::int64_t first) {
    const std::int64_t n = std::ssize(committed);
    if (std::ssize(rows) < n) rows.resize(static_cast<std::size_t>(n));
    std::copy(committed.begin() + first, committed.end(), rows.begin() + first);
    versions.resize(static_cast<std::size_t>(ceil_div(options.context_tokens, kChunkTokens)), 1);
    for (std::int64_t chunk = first / kChunkTokens; chunk * kChunkTokens < n; ++chunk) ++versions[chunk];
}

std::vector<std::uint32_t> FakeKv::reference(std::span<const TokenId> text, std::int64_t n_prompt) const {
    const std::int64_t border = (n_prompt - 1) / kPrefillChunkTokens * kPrefillChunkTokens;
    std::vector<std::uint32_t> states;
    for (std::int64_t i = 0; i < std::ssize(text); ++i)
        states.push_back(next(i == 0 ? 0 : states.back(), i, text[i], i < border ? Phase::Prefill : Phase::Decode));
    return states;
}

TargetShape FakeTarget::shape() const {
    const FakeOptions& options = kv_->options;
    return {.context_tokens = options.context_tokens,
            .max_tokens = options.max_nodes,
            .max_logit_rows = options.max_nodes,
            .max_nodes = options.max_nodes,
            .has_prompt_kernels = options.has_prompt_kernels,
            .n_layers = kLayers + (is_recurrent() ? 1 : 0),
            .kv = std::span(kLayouts).first(static_cast<std::size_t>(kLayers + (is_recurrent() ? 1 : 0)))};
}

NodeId FakeTarget::add_node(NodeId parent, NodeKind /*kind*/) {
    const std::int64_t position = parent == kCommittedTip ? n_committed() : at(parent).position + 1;
    CHECK(parent.row < n_nodes() && n_nodes() < kv_->options.max_nodes && position < kv_->options.context_tokens);
    kv_->nodes.push_back({parent, position, 0});
    return NodeId(static_cast<std::int32_t>(n_nodes() - 1));
}

void FakeTarget::check_between_passes() const {
    CHECK(!in_pass_ && kv_->n_extended < 0, "the sequence changes {}",
          in_pass_ ? "in a pass" : "before an announced prompt");
}

// The last layer is a ring as KvCache has it.

bool FakeTarget::is_ring() const {
    const std::int64_t n_chunks = ceil_div(kv_->options.context_tokens, kChunkTokens);
    return kept_chunks(kv_->options.window, n_chunks) < n_chunks;
}

std::int64_t FakeTarget::first_read_chunk(std::int64_t position) const {
    return is_ring() ? first_chunk_in_window(kv_->options.window, position) : 0;
}

std::int64_t FakeTarget::first_kept_chunk(std::int64_t layer) const {
    return layer == kLayers - 1 ? kv_->first_kept : 0;
}

std::int64_t FakeTarget::first_restored_chunk(std::int64_t layer, std::int64_t n_tokens) const {
    return layer == kLayers - 1 ? first_read_chunk(std::max<std::int64_t>(n_tokens - kCutSlackTokens, 0)) : 0;
}

std::int64_t FakeTarget::positions_after_cut(std::int64_t n_tokens) const {
    const std::int64_t n_cut = n_committed() - n_tokens;
    if (is_recurrent()) n_tokens = last_state(n_tokens, 1);
    const bool is_lost = n_cut > kv_->options.max_cut || first_read_chunk(n_tokens) < kv_->first_kept;
    return is_lost ? 0 : n_tokens;
}

void FakeTarget::cut(std::int64_t n_tokens) {
    kv_->committed.resize(static_cast<std::size_t>(n_tokens));
    if (n_tokens == 0) kv_->first_kept = 0;
    std::erase_if(kv_->checkpoints, [&](std::int64_t position) { return position > n_tokens; });
}

// Call when the positions from `begin` on are committed: the recurrent layer leaves checkpoints as RecurrentStates
// does. The last `n_certain` positions are of one pass.
void FakeTarget::make_checkpoints(std::int64_t begin, std::int64_t n_certain) {
    if (!is_recurrent()) return;
    const std::int64_t end = n_committed();
    for (std::int64_t position = ceil_div(std::max<std::int64_t>(begin, 1), kPrefillChunkTokens) * kPrefillChunkTokens;
         position < end; position += kPrefillChunkTokens)
        kv_->checkpoints.push_back(position);
    if (n_certain > 16 && end % kPrefillChunkTokens != 0) kv_->checkpoints.push_back(end - 16);
    std::ranges::sort(kv_->checkpoints);
    const auto [first, last] = std::ranges::unique(kv_->checkpoints);
    kv_->checkpoints.erase(first, last);
    const std::int64_t n_over = std::ssize(kv_->checkpoints) - kv_->options.checkpoints;
    if (n_over > 0) kv_->checkpoints.erase(kv_->checkpoints.begin(), kv_->checkpoints.begin() + n_over);
}

std::int64_t FakeTarget::last_state(std::int64_t n_tokens, std::int64_t step) const {
    if (!is_recurrent()) return 0;
    if (n_committed() <= n_tokens && n_committed() % step == 0) return n_committed();
    std::int64_t last = 0;
    for (const std::int64_t position : kv_->checkpoints)
        if (position <= n_tokens && position % step == 0) last = position;
    return last;
}

// The states after a position are words mixed from the state of that position, which is the first of them.
void FakeTarget::read_state(std::int64_t layer, std::int64_t position, std::byte* out) {
    CHECK(layer == kLayers && position > 0 && last_state(position, 1) == position, "states of layer {} at {}", layer,
          position);
    if (kv_->chunks_until_failure > 0 && --kv_->chunks_until_failure == 0) throw IoError("states: a failed copy");
    const std::uint32_t state = kv_->committed[position - 1];
    for (std::uint32_t i = 0; i < RecurrentStates::state_bytes({&kRecurrent, 1}) / sizeof(state); ++i) {
        const std::uint32_t word = i == 0 ? state : mix(state, i, 9, 9);
        std::memcpy(out + i * sizeof(word), &word, sizeof(word));
    }
}

void FakeTarget::restore_states(std::int64_t position, const std::function<void(std::int64_t, std::byte*)>& read) {
    CHECK(is_recurrent() && n_committed() == 0 && n_nodes() == 0);
    std::vector<std::byte> bytes(RecurrentStates::state_bytes({&kRecurrent, 1}));
    read(kLayers, bytes.data());
    std::memcpy(&kv_->restored_state, bytes.data(), sizeof(std::uint32_t));
    for (std::uint32_t i = 1; i < bytes.size() / sizeof(i); ++i) {
        const std::uint32_t word = mix(kv_->restored_state, i, 9, 9);
        CHECK(std::memcmp(bytes.data() + i * sizeof(word), &word, sizeof(word)) == 0, "word {} of states", i);
    }
    kv_->restored_to = position;
}

// Call when rows of positions below `n_tokens` are written: a ring then no longer has the KV chunks that they
// overwrite.
void FakeTarget::overwrite_to(std::int64_t n_tokens) {
    if (!is_ring()) return;
    const std::int64_t n_kept = kept_chunks(kv_->options.window, ceil_div(kv_->options.context_tokens, kChunkTokens));
    kv_->first_kept = std::max(kv_->first_kept, ceil_div(n_tokens, kChunkTokens) - n_kept);
}

void FakeTarget::commit(std::span<const NodeId> path) {
    check_between_passes();
    overwrite_to(n_committed() + std::ssize(path));
    NodeId above = kCommittedTip;
    for (const NodeId node : path) {
        CHECK(at(node).parent == above && at(node).state != 0, "node {}", node.row);
        kv_->committed.push_back(at(node).state);
        above = node;
    }
    kv_->write_rows(n_committed() - std::ssize(path));
    kv_->nodes.clear();
    make_checkpoints(n_committed() - std::ssize(path), std::ssize(path));
}

std::uint64_t FakeTarget::chunk_version(std::int64_t chunk) const {
    return is_ring() || is_recurrent() || chunk >= std::ssize(kv_->versions) ? 0 : kv_->versions[chunk];
}

void FakeTarget::recommit(std::int64_t n_tokens) {
    check_between_passes();
    CHECK(!is_ring() && !is_recurrent() && n_nodes() == 0 && n_tokens >= n_committed() &&
          n_tokens <= std::ssize(kv_->rows));
    kv_->committed.insert(kv_->committed.end(), kv_->rows.begin() + n_committed(), kv_->rows.begin() + n_tokens);
}

void FakeTarget::forget() {
    CHECK(!in_pass_, "nodes are forgotten in a pass");
    kv_->nodes.clear();
    const std::int64_t from = std::exchange(kv_->n_extended, -1);
    if (from >= 0) cut(first_read_chunk(from) < kv_->first_kept ? 0 : from);
}

void FakeTarget::truncate(std::int64_t n_tokens) {
    check_between_passes();
    CHECK(n_tokens >= 0 && n_tokens <= n_committed(), "{} of {} positions", n_tokens, n_committed());
    kv_->nodes.clear();
    if (n_tokens < n_committed()) cut(positions_after_cut(n_tokens));
}

bool FakeTarget::takes_prompt(std::int64_t end) const {
    return kv_->options.takes_prompts && end > n_committed() && end % kPrefillChunkTokens == 0;
}

void FakeTarget::extend(std::int64_t end) {
    check_between_passes();
    CHECK(takes_prompt(end), "a prompt from {} to {}", n_committed(), end);
    CHECK(n_nodes() == 0, "{} positions after {}", end, n_committed());
    kv_->n_extended = n_committed();
    kv_->committed.resize(static_cast<std::size_t>(end), 0);
}

std::uint32_t FakeTarget::state_above(NodeId node) const {
    const NodeId parent = at(node).parent;
    if (parent == kCommittedTip) return kv_->committed.empty() ? 0 : kv_->committed.back();
    CHECK(at(parent).state != 0, "node {} is fed before its parent", node.row);
    return at(parent).state;
}

void FakeTarget::compute_prompt(std::span<const TokenId> prompt) {
    CHECK(n_committed() - kv_->n_extended == std::ssize(prompt));
    overwrite_to(n_committed());
    for (auto i = static_cast<std::size_t>(kv_->n_extended); i < kv_->committed.size(); ++i)
        kv_->committed[i] = kv_->next(i == 0 ? 0 : kv_->committed[i - 1], static_cast<std::int64_t>(i),
                                      prompt[i - static_cast<std::size_t>(kv_->n_extended)], Phase::Prefill);
    kv_->write_rows(kv_->n_extended);
    make_checkpoints(kv_->n_extended, 0);
}

void FakeTarget::begin(const TargetPass& pass) {
    CHECK(!in_pass_, "a pass is under way");
    CHECK(!pass.tokens.empty() && pass.tokens.size() == pass.nodes.size());
    CHECK(pass.prompt.empty() == (kv_->n_extended < 0), "a prompt of {} tokens, announced from {}", pass.prompt.size(),
          kv_->n_extended);
    CHECK(pass.prompt.empty() || (pass.needs && pass.phase == Phase::Decode),
          "a pass with a prompt requires needs and Phase::Decode");
    if (on_begin) on_begin(pass);
    in_pass_ = true;
    ++n_passes;
    given_up_ = pass.control != nullptr && pass.control->cancel != nullptr && pass.control->cancel->load();
    if (given_up_) return;
    if (!pass.prompt.empty()) compute_prompt(pass.prompt);
    if (pass.phase == Phase::Prefill) {
        CHECK(pass.logit_tokens.empty() &&
              at(pass.nodes[0]).position / kPrefillChunkTokens == at(pass.nodes.back()).position / kPrefillChunkTokens);
    }
    for (std::size_t i = 0; i < pass.nodes.size(); ++i) {
        FakeKv::Node& node = kv_->nodes[pass.nodes[i].row];
        node.state = kv_->next(state_above(pass.nodes[i]), node.position, pass.tokens[i], pass.phase);
    }
    make_logits(pass);
    kv_->n_extended = -1;
}

void FakeTarget::make_logits(const TargetPass& pass) {
    logits_.clear();
    for (const std::int32_t token : pass.logit_tokens) {
        std::uint32_t state = at(pass.nodes[token]).state;
        if (token == wrong_token && pass.tokens.size() > 1) ++state;
        for (std::int64_t id = 0; id < kv_->options.vocab; ++id)
            logits_.push_back(static_cast<float>(mix(state, static_cast<std::uint32_t>(id), 3, 3) >> 8) * 0x1p-21F);
    }
}

LogitRows FakeTarget::finish() {
    CHECK(in_pass_, "no pass was begun");
    in_pass_ = false;
    if (on_finish) on_finish();
    if (given_up_) return {};
    const std::int64_t vocab = kv_->options.vocab;
    const float* logits = logits_.data();
    return ConstTensorView(matrix_view(logits, std::ssize(logits_) / vocab, vocab));
}

void FakeTarget::read_rows(NodeId node, std::byte* out) {
    CHECK(at(node).state != 0);
    for (std::int64_t layer = 0; layer < kLayers; ++layer)
        for (const std::int64_t part : {0, 1}) {
            const std::uint32_t row = row_of(at(node).state, layer, part);
            std::memcpy(out, &row, sizeof(row));
            out += sizeof(row);
        }
}

void FakeTarget::read_chunk(std::int64_t layer, std::int64_t chunk, std::byte* out) {
    CHECK(chunk * kChunkTokens < n_committed() && chunk >= first_kept_chunk(layer));
    if (layer == kLayers) return;  // recurrent: no KV
    if (kv_->chunks_until_failure > 0 && --kv_->chunks_until_failure == 0) throw IoError("KV: a failed copy");
    for (const std::int64_t part : {0, 1})
        for (std::int64_t i = chunk * kChunkTokens; i < std::min((chunk + 1) * kChunkTokens, n_committed()); ++i) {
            const std::uint32_t row = row_of(kv_->committed[i], layer, part);
            std::memcpy(out + 4 * (part * kChunkTokens + i % kChunkTokens), &row, sizeof(row));
        }
}

void FakeTarget::restore(std::int64_t first, std::int64_t n_tokens,
                         const std::function<void(std::int64_t, std::int64_t, std::byte*)>& read) {
    CHECK(n_committed() == first && first % kChunkTokens == 0 && n_nodes() == 0);
    CHECK(!is_recurrent() || n_tokens == first || (first == 0 && kv_->restored_to == n_tokens),
          "KV from {} to {}, states after {}", first, n_tokens, kv_->restored_to);
    std::vector<std::byte> bytes(kShape.chunk_bytes());
    std::vector<std::byte> expected(bytes.size());
    if (first < n_tokens) kv_->first_kept = std::max(kv_->first_kept, first_restored_chunk(kLayers - 1, n_tokens));
    try {
        for (std::int64_t chunk = first / kChunkTokens; chunk * kChunkTokens < n_tokens; ++chunk) {
            const std::int64_t n = std::min(kChunkTokens, n_tokens - chunk * kChunkTokens);
            for (std::int64_t layer = 0; layer < kLayers; ++layer) {
                if (chunk < first_restored_chunk(layer, n_tokens)) continue;
                read(layer, chunk, bytes.data());
                for (std::int64_t i = 0; layer == 0 && i < n; ++i) {
                    std::uint32_t state = 0;
                    std::memcpy(&state, bytes.data() + 4 * i, sizeof(state));
                    kv_->committed.push_back(state);
                }
                read_chunk(layer, chunk, expected.data());
                for (const std::int64_t part : {0, 1}) {
                    const std::ptrdiff_t at = 4 * part * kChunkTokens;
                    CHECK(std::equal(bytes.begin() + at, bytes.begin() + at + 4 * n, expected.begin() + at),
                          "chunk {} of layer {}", chunk, layer);
                }
            }
        }
    } catch (...) {
        kv_->committed.resize(static_cast<std::size_t>(first));
        cut(positions_after_cut(first));
        throw;
    }
    CHECK(!is_recurrent() || n_tokens == first || kv_->committed.back() == kv_->restored_state,
          "states of another text, after {} positions", n_tokens);
    kv_->restored_to = 0;
    kv_->write_rows(first);
}

}  // namespace slipstream
