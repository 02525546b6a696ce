// Any bytes as a tree, its logits and the options of a sampler: each walk (E2; E3 over point masses; E3 over drawn
// children, guesses of others hung among them) keeps to its contract. The accepted path is a path of the tree, the text
// grows by as many tokens, limits and end tokens hold, the walk ends for a reason, and no token comes from outside of
// the target's filtered distribution. Behind the last byte of the input come numbers that follow from it, so that a
// short input is a whole case as well.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "draft/drawn_tree.h"
#include "draft/rejection.h"
#include "kernels/base/check.h"
#include "kernels/base/error.h"
#include "kernels/base/philox.h"
#include "runtime/loop/token_tree.h"
#include "runtime/loop/verify.h"

namespace {

using namespace slipstream;
using namespace slipstream::draft;

/// Numbers out of the input's bytes.
class Input {
public:
    explicit Input(std::span<const std::uint8_t> bytes) : bytes_(bytes) {
        for (const std::uint8_t byte : bytes) key_ = {key_.low * 16777619U ^ byte, key_.high + key_.low};
    }
    std::uint8_t byte() {
        if (at_ < bytes_.size()) return bytes_[at_++];
        return static_cast<std::uint8_t>(philox4x32_10({{n_made_++, 0, 0, 0}}, key_).word[0]);
    }
    std::int64_t below(std::int64_t n) { return (byte() << 8 | byte()) % n; }

private:
    std::span<const std::uint8_t> bytes_;
    std::size_t at_ = 0;
    std::uint32_t n_made_ = 0;
    PhiloxKey key_{2166136261U, 0};
};

float logit(Input& input) {
    const std::uint8_t kind = input.byte();
    if (kind == 255) return std::numeric_limits<float>::quiet_NaN();
    if (kind == 254) return -std::numeric_limits<float>::infinity();
    if (kind == 253) return 3e38F;
    if (kind >= 240) return 2.0F;  // ties
    return (static_cast<float>(input.byte()) - 128.0F) / 16.0F;
}

std::vector<float> logits_of(Input& input, std::int64_t n) {
    std::vector<float> logits(static_cast<std::size_t>(n));
    for (float& value : logits) value = logit(input);
    return logits;
}

SamplerOptions sampler_options(Input& input) {
    constexpr double temperatures[] = {0.0, 0.01, 0.7, 1.0, 3.0};
    constexpr double shares[] = {1.0, 0.9, 0.3, 0.0};
    return {.temperature = temperatures[input.below(5)],
            .top_k = input.below(6),
            .top_p = shares[input.below(4)],
            .min_p = 1.0 - shares[input.below(3)],
            .repeat_penalty = 1.0 + static_cast<double>(input.below(3)) / 4.0,
            .repeat_window = input.below(9),
            .seed = input.byte()};
}

struct Case {
    TokenTree tree;
    std::vector<TokenId> text;
    std::vector<float> logits;  // [tree.size(), vocab]
    std::int64_t vocab = 0;
    VerifyLimits limits;
};

void check_tree(const TokenTree& tree) {
    std::set<std::pair<TreeNode, TokenId>> siblings;
    for (const TreeNode node : tree.draft_nodes()) {
        CHECK(tree.has(tree.parent(node)) && tree.parent(node) < node, "node {} below {}", node.index,
              tree.parent(node).index);
        CHECK(tree.depth(node) == tree.depth(tree.parent(node)) + 1);
        CHECK(siblings.emplace(tree.parent(node), tree.token(node)).second, "node {} has a twin", node.index);
    }
}

void check_verifier(Verifier& verifier, Sampler& sampler, const Case& input) {
    std::vector<TokenId> text = input.text;
    std::vector<TreeNode> accepted;
    const ConstTensorView logits = matrix_view(input.logits.data(), input.tree.size(), input.vocab);
    try {
        verifier.verify(input.tree, logits, input.limits, text, accepted);
    } catch (const Unsupported&) {  // logits that are not numbers
        return;
    }
    const std::size_t n_old = input.text.size();
    const std::size_t n_new = text.size() - n_old;
    CHECK(n_new >= 1 && n_new == accepted.size() && std::ssize(accepted) <= input.limits.max_new_tokens,
          "{} tokens, {} nodes, limit {}", n_new, accepted.size(), input.limits.max_new_tokens);
    CHECK(accepted[0] == kTreeRoot && std::ranges::equal(std::span(text).first(n_old), input.text));
    const auto ends = [&](TokenId id) {
        return std::ranges::find(input.limits.end_tokens, id) != input.limits.end_tokens.end();
    };
    for (std::size_t i = 0; i < n_new; ++i) {
        const TokenId token = text[n_old + i];
        const std::span<const float> row(float_row(logits, logits_row_of(accepted[i])),
                                         static_cast<std::size_t>(input.vocab));
        const auto possible = sampler.distribution(row, std::span(text).first(n_old + i));
        CHECK(std::ranges::find(possible, token, &Candidate::id) != possible.end(), "token {} was filtered out", token);
        if (i + 1 == n_new) {
            CHECK(ends(token) || std::ssize(accepted) == input.limits.max_new_tokens ||
                      !input.tree.child(accepted[i], token),
                  "the walk ended at node {} without a reason", accepted[i].index);
        } else {
            CHECK(!ends(token) && input.tree.child(accepted[i], token) == accepted[i + 1], "step {}", i);
        }
    }
}

/// A distribution over some tokens of the vocabulary.
std::vector<Candidate> random_q(Input& input, std::int64_t vocab) {
    std::vector<Candidate> q;
    double mass = 0.0;
    for (TokenId id = 0; id < vocab; ++id) {
        if (input.byte() % 2 == 0) continue;
        q.push_back({id, 0.0F, 1e-9 + static_cast<double>(input.byte())});
        mass += q.back().probability;
    }
    for (Candidate& candidate : q) candidate.probability /= mass;
    return q;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Input input({data, size});
    Case walked;
    walked.vocab = 1 + input.below(40);
    const SamplerOptions options = sampler_options(input);
    const auto token = [&] { return static_cast<TokenId>(input.below(walked.vocab)); };
    for (std::int64_t i = 1 + input.below(12); i > 0; --i) walked.text.push_back(token());
    std::vector<TokenId> end_tokens;
    for (std::int64_t i = input.below(3); i > 0; --i) end_tokens.push_back(token());
    walked.limits = {.max_new_tokens = 1 + input.below(10), .end_tokens = end_tokens};

    constexpr std::int64_t budget = 48;
    const std::int64_t n_nodes = 1 + input.below(budget);
    DrawnTree drawn(options.seed);
    walked.tree.reset(walked.text.back());
    drawn.reset(std::ssize(walked.text), budget);
    std::int32_t n_drawn_from = 0;
    for (int attempt = 0; attempt < 200 && walked.tree.size() < n_nodes; ++attempt) {
        // Every node is drawn from at most once, in order; guesses hang anywhere.
        if (input.byte() % 4 == 0 && n_drawn_from < walked.tree.size()) {
            const std::vector<Candidate> q = random_q(input, walked.vocab);
            const auto rule = input.byte() % 2 == 0 ? DrawRule::WithReplacement : DrawRule::WithoutReplacement;
            const std::int64_t n = q.empty() ? 0 : input.below(5);
            CHECK(std::ssize(drawn.draw_children(walked.tree, TreeNode(n_drawn_from++), q, rule, n)) <= n);
        } else {
            walked.tree.add(TreeNode(static_cast<std::int32_t>(input.below(walked.tree.size()))), token());
        }
    }
    CHECK(walked.tree.size() <= budget, "{} nodes", walked.tree.size());
    check_tree(walked.tree);
    walked.logits = logits_of(input, walked.tree.size() * walked.vocab);

    Sampler sampler(options, walked.vocab);
    ExactVerifier noise(sampler);
    RejectionVerifier point_masses(sampler, walked.vocab, nullptr);
    RejectionVerifier rejection(sampler, walked.vocab, &drawn);
    for (Verifier* verifier :
         {static_cast<Verifier*>(&noise), static_cast<Verifier*>(&point_masses), static_cast<Verifier*>(&rejection)})
        for (int repeat = 0; repeat < 2; ++repeat) check_verifier(*verifier, sampler, walked);  // nothing is left over
    return 0;
}
