// Sources that say anything at all: any ids, probabilities and kinds, in any order, nothing at random places; up to
// three models that are asked in batches, their times, those of passes and plans of them anything, calibration from a
// file that passed its checks. Whatever they say, a merged tree is a tree within its limits, its nodes were proposed,
// models are asked as model_source.h promises, and what is learnt stays numbers. Behind the last byte of the input come
// numbers that follow from it, so that a short input is a whole case as well.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "draft/tree/tree_builder.h"
#include "kernels/base/check.h"
#include "kernels/base/philox.h"

namespace {

using namespace slipstream;
using namespace slipstream::draft;

/// Numbers out of the input's bytes.
class Script {
public:
    explicit Script(std::span<const std::uint8_t> bytes) : bytes_(bytes) {
        for (const std::uint8_t byte : bytes) key_ = {std::rotl(key_.low, 5) ^ byte, key_.high * 31 + key_.low};
    }
    std::uint32_t word() {
        if (n_left_ == 0) {
            block_ = philox4x32_10({{n_blocks_++, 0, 0, 0}}, key_);
            n_left_ = 4;
        }
        return block_.word[--n_left_];
    }
    std::uint32_t below(std::uint32_t n) {
        return (at_ < bytes_.size() ? static_cast<std::uint32_t>(bytes_[at_++]) * 0x01000193U >> 3 : word()) % n;
    }
    bool one_in(std::uint32_t n) { return below(n) == 0; }
    /// In (0, 1), the extremes often.
    float probability() {
        switch (below(6)) {
            case 0:
                return std::numeric_limits<float>::min();
            case 1:
                return 1.0F - 0x1p-24F;
            case 2:
                return std::ldexp(1.0F, -static_cast<int>(1 + below(60)));
            default:
                return (static_cast<float>(below(1000)) + 0.5F) / 1000.0F;
        }
    }
    /// Positive, of any size.
    double seconds() { return std::ldexp(1.0 + below(256), static_cast<int>(below(60)) - 50); }

private:
    std::span<const std::uint8_t> bytes_;
    std::size_t at_ = 0;
    std::uint32_t n_blocks_ = 0;
    std::size_t n_left_ = 0;
    PhiloxBlock block_{};
    PhiloxKey key_{2166136261U, 7};
};

using Named = std::set<TokenId>;  // at a node; by place, whoever it was

// Distinct tokens in any order.
std::size_t say(Script& script, TokenId vocab, std::uint16_t n_bins, std::span<Proposal> out, Named& named) {
    std::size_t n = 0;
    Named said;
    for (std::uint32_t wanted = script.below(2 + script.below(40)); wanted > 0 && n < out.size(); --wanted) {
        const auto token = static_cast<TokenId>(script.below(static_cast<std::uint32_t>(vocab)));
        if (!said.insert(token).second) continue;
        out[n++] = {.token = token,
                    .probability = script.probability(),
                    .bin = static_cast<std::uint16_t>(script.below(n_bins))};
    }
    named.merge(said);
    return n;
}

class HostileSource final : public TableSource {
public:
    HostileSource(Script& script, TokenId vocab, Named& named)
        : script_(script), vocab_(vocab), named_(named), n_bins_(static_cast<std::uint16_t>(1 + script.below(70))) {}
    [[nodiscard]] std::string_view name() const override { return "hostile"; }
    [[nodiscard]] std::uint16_t n_bins() const override { return n_bins_; }
    void observe(const Observation&) override {}
    void reset() override {}
    [[nodiscard]] Cursor root(std::span<const TokenId>) override { return step(); }
    [[nodiscard]] Cursor advance(Cursor cursor, TokenId token) override {
        CHECK(cursor != kNowhere && cursor < n_cursors_ && token >= 0 && token < vocab_, "{} of {}", cursor,
              n_cursors_);
        return step();
    }
    [[nodiscard]] std::size_t propose(Cursor cursor, std::int64_t, const PathNoise&, std::span<Proposal> out) override {
        CHECK(cursor < n_cursors_, "{} of {}", cursor, n_cursors_);
        return say(script_, vocab_, n_bins_, out, named_);
    }
    [[nodiscard]] std::size_t memory_bytes() const override { return 0; }

private:
    Cursor step() { return script_.one_in(4) ? kNowhere : n_cursors_++; }

    Script& script_;
    TokenId vocab_;
    Named& named_;
    std::uint16_t n_bins_;
    Cursor n_cursors_ = 0;
};

class HostileModel final : public ModelSource {
public:
    HostileModel(Script& script, TokenId vocab, Named& named)
        : script_(script), vocab_(vocab), named_(named), max_nodes_(1 + script.below(40)), dear_(script.one_in(2)) {}
    [[nodiscard]] std::string_view name() const override { return "hostile model"; }
    [[nodiscard]] std::uint16_t n_bins() const override { return 9; }
    [[nodiscard]] std::int64_t max_nodes() const override { return max_nodes_; }
    void observe(const Observation&) override {}
    void expand(const TokenTree& tree, std::span<const TokenId> text, std::span<const TreeNode> nodes) override {
        CHECK(!nodes.empty() && tree.token(kTreeRoot) == text.back(), "{} nodes", nodes.size());
        if (nodes.front() == kTreeRoot) expanded_.clear();
        for (const TreeNode node : nodes) {
            CHECK(tree.has(node) && !expanded_.contains(node), "node {}", node.index);
            CHECK(node == kTreeRoot ? expanded_.empty() : expanded_.contains(tree.parent(node)), "node {}", node.index);
            expanded_.insert(node);
        }
        CHECK(std::ssize(expanded_) <= max_nodes_, "{} of {}", expanded_.size(), max_nodes_);
    }
    [[nodiscard]] std::size_t propose(TreeNode node, std::int64_t, const PathNoise&, std::span<Proposal> out) override {
        CHECK(expanded_.contains(node), "node {}", node.index);
        return say(script_, vocab_, n_bins(), out, named_);
    }
    [[nodiscard]] std::span<const Candidate> distribution(TreeNode) override { return {}; }
    [[nodiscard]] double expand_seconds(std::int64_t n_nodes) const override {
        return dear_ ? 1e-3 * static_cast<double>(n_nodes) : 0.0;
    }

private:
    Script& script_;
    TokenId vocab_;
    Named& named_;
    std::int64_t max_nodes_;
    bool dear_;
    std::set<TreeNode> expanded_;
};

void check_tree(const TokenTree& tree, const BuildRequest& request, const Named& named) {
    CHECK(tree.size() <= request.budget, "{} nodes, budget {}", tree.size(), request.budget);
    std::set<std::pair<TreeNode, TokenId>> siblings;
    for (const TreeNode node : tree.draft_nodes()) {
        CHECK(tree.has(tree.parent(node)) && tree.parent(node) < node, "node {} below {}", node.index,
              tree.parent(node).index);
        CHECK(tree.depth(node) <= request.max_depth, "node {} at depth {}", node.index, tree.depth(node));
        CHECK(siblings.emplace(tree.parent(node), tree.token(node)).second, "node {} has a twin", node.index);
        CHECK(named.contains(tree.token(node)), "nobody said {}", tree.token(node));
    }
}

// Down the tree, or anywhere off it.
void learn(Script& script, TreeBuilder& builder, const TokenTree& tree, TokenId vocab, std::vector<TokenId>& text) {
    std::vector<TreeNode> accepted = {kTreeRoot};
    std::vector<TokenId> came;
    for (;;) {
        came.push_back(static_cast<TokenId>(script.below(static_cast<std::uint32_t>(vocab))));
        for (TreeNode node(accepted.back().index + 1); node.index < tree.size() && !script.one_in(4); ++node.index)
            if (tree.parent(node) == accepted.back()) came.back() = tree.token(node);
        const auto child = tree.child(accepted.back(), came.back());
        if (!child) break;
        accepted.push_back(*child);
    }
    text.insert(text.end(), came.begin(), came.end());
    std::vector<float> logits;
    if (!script.one_in(3)) {
        constexpr float strange[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                                     -std::numeric_limits<float>::infinity(), 3e38F, -3e38F};
        logits.resize(static_cast<std::size_t>(tree.size() * vocab));
        for (float& logit : logits)
            logit =
                script.word() % 16 == 0 ? strange[script.word() % 5] : static_cast<float>(script.word() % 64) / 4.0F;
    }
    const ConstTensorView view =
        logits.empty() ? ConstTensorView{} : matrix_view(std::as_const(logits).data(), tree.size(), vocab);
    constexpr double temperatures[] = {1e-6, 0.3, 1.0, 50.0};
    builder.learn({.accepted = accepted, .came = came, .logits = view, .temperature = temperatures[script.below(4)]});
    for (const float number : builder.calibration().state()) CHECK(std::isfinite(number), "{}", number);
    for (const GuessCounts& counts : builder.counts())
        CHECK(counts.accepted >= 0 && counts.accepted <= counts.offered, "{} of {}", counts.accepted, counts.offered);
}

// None, or of any times at all, some of which cannot be.
PlannedSeconds any_plan(Script& script) {
    if (script.one_in(3)) return {};
    const double base = script.seconds();
    const double a_node = script.seconds();
    const double strange = script.one_in(8) ? std::numeric_limits<double>::quiet_NaN() : script.one_in(8) ? -1.0 : 0.0;
    return [=](std::int64_t n, std::int64_t text_tokens) {
        const double seconds = base + a_node * static_cast<double>(n) + 1e-6 * static_cast<double>(text_tokens);
        return n % 3 == 0 ? seconds + strange * 1e300 : seconds;
    };
}

void check_curve(const PassCurve& curve) {
    for (std::int64_t n = 1; n <= curve.max_nodes(); ++n) {
        CHECK(std::isfinite(curve.at(n)) && (curve.at(n) > 0.0) == curve.known(), "{} nodes in {} s", n, curve.at(n));
        CHECK(n == 1 || curve.at(n) >= curve.at(n - 1) * (1.0 - 1e-12), "{} nodes in {} s", n, curve.at(n));
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Script script({data, size});
    const auto vocab = static_cast<TokenId>(1 + script.below(300));
    Named named;
    std::vector<HostileSource> sources;
    for (std::uint32_t n = script.below(5); n > 0; --n) sources.emplace_back(script, vocab, named);
    std::vector<HostileModel> models;
    for (std::uint32_t n = script.below(4); n > 0; --n) models.emplace_back(script, vocab, named);
    std::vector<TableSource*> tables;
    for (HostileSource& source : sources) tables.push_back(&source);
    std::vector<ModelSource*> dearer;
    for (HostileModel& model : models) dearer.push_back(&model);
    TreeBuilder builder(tables, dearer, vocab);

    if (script.one_in(3)) {
        std::vector<float> state = builder.calibration().state();
        for (float& number : state)
            if (script.word() % 4 == 0) number = static_cast<float>(script.word() % 4000) / (1.0F + script.below(2000));
        static_cast<void>(builder.calibration().restore(state));
    }
    std::vector<TokenId> text = {static_cast<TokenId>(script.below(static_cast<std::uint32_t>(vocab)))};
    const PathNoise noise = script.one_in(2) ? PathNoise(script.word()) : PathNoise();
    PassCurve curve(1 + script.below(200), any_plan(script));
    const auto any_size = [&] { return 1 + script.below(static_cast<std::uint32_t>(curve.max_nodes())); };
    for (std::uint32_t pass = 1 + script.below(6); pass > 0; --pass) {
        curve.move_to(std::ssize(text));
        for (std::uint32_t n = script.below(4); n > 0; --n) curve.add(any_size(), script.seconds());
        check_curve(curve);
        const BuildRequest request{.text = text,
                                   .budget = any_size(),
                                   .max_depth = script.below(30),
                                   .noise = &noise,
                                   .curve = curve.known() && script.one_in(2) ? &curve : nullptr,
                                   .seconds_per_token = script.seconds(),
                                   .realised_fraction = script.seconds()};
        TokenTree tree;
        tree.reset(text.back());
        named.clear();
        const double expected = builder.grow(tree, request);
        CHECK(std::isfinite(expected) && expected >= 1.0, "{} tokens expected", expected);
        check_tree(tree, request, named);
        if (script.one_in(5)) continue;  // the pass was given up
        if (script.one_in(9)) builder.reset();
        if (script.one_in(9)) continue;
        learn(script, builder, tree, vocab, text);
    }
    return 0;
}
