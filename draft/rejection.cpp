#include "draft/rejection.h"

#include <algorithm>

#include "kernels/base/check.h"

namespace slipstream::draft {

double noise_uniform(std::uint64_t seed, std::int64_t position, std::uint32_t index, NoiseStream stream) {
    const PhiloxBlock block = noise_block(seed, static_cast<std::uint64_t>(position), index / 2, stream);
    const std::uint64_t high = block.word[2 * (index % 2)];
    const std::uint64_t low = block.word[2 * (index % 2) + 1];
    return static_cast<double>(2 * ((high << 32 | low) >> 12) + 1) * 0x1p-53;
}

double rejection_uniform(std::uint64_t seed, std::int64_t position, std::uint32_t index) {
    return noise_uniform(seed, position, index, NoiseStream::Rejection);
}

RejectionRule::RejectionRule(std::int64_t vocab) {
    CHECK(vocab > 0, "vocab {}", vocab);
    p_.resize(vocab);
    q_.resize(vocab);
    support_.reserve(vocab);
}

RejectionVerifier::RejectionVerifier(Sampler& sampler, std::int64_t vocab, const DraftDistributions* drafts)
    : sampler_(&sampler), drafts_(drafts), rule_(vocab) {}

void RejectionVerifier::verify(const TokenTree& tree, const LogitRows& logits, const VerifyLimits& limits,
                               std::vector<TokenId>& text, std::vector<TreeNode>& accepted) {
    CHECK(limits.max_new_tokens >= 1 && logits.rows() == tree.size() && !text.empty() &&
          text.back() == tree.token(kTreeRoot));
    accepted.assign(1, kTreeRoot);
    for (TreeNode node = kTreeRoot;;) {
        const std::span<const Candidate> target = sampler_->distribution(logits, logits_row_of(node), text);
        const DrawnChildren children = drafts_ == nullptr ? DrawnChildren{} : drafts_->drawn(node);
        const TokenId token = rule_.decide(
            target, children, [seed = sampler_->options().seed, position = std::ssize(text)](std::uint32_t index) {
                return rejection_uniform(seed, position, index);
            });
        text.push_back(token);
        if (std::ssize(accepted) == limits.max_new_tokens) return;
        if (std::ranges::find(limits.end_tokens, token) != limits.end_tokens.end()) return;
        const auto next = tree.child(node, token);
        if (!next) return;
        node = *next;
        accepted.push_back(node);
    }
}

TokenId RejectionRule::decide(std::span<const Candidate> target, const DrawnChildren& children,
                              const std::function<double(std::uint32_t)>& uniform) {
    for (const TokenId id : support_) p_[id] = 0.0;  // clears the previous node's p
    support_.clear();
    p_mass_ = 0.0;
    for (const Candidate& candidate : target) {
        p_[candidate.id] = candidate.probability;
        support_.push_back(candidate.id);
        p_mass_ += candidate.probability;
    }
    double q_mass = 0.0;
    for (const Candidate& candidate : children.q) {
        CHECK(candidate.id >= 0 && candidate.id < std::ssize(p_), "token {} in q, vocabulary {}", candidate.id,
              p_.size());
        q_[candidate.id] = candidate.probability;
        q_mass += candidate.probability;
    }
    std::uint32_t index = 0;
    TokenId token = -1;
    for (const TokenId draw : children.draws) {
        CHECK(draw >= 0 && draw < std::ssize(q_) && q_[draw] > 0.0, "{} cannot be drawn", draw);
        double& weight = q_[draw];
        // If p equals q, only rounding can reject the draw, and nothing remains of max(p - q, 0). Then the draw is
        // accepted.
        if (accept(draw, weight / q_mass, uniform(index++)) || (!subtract(1.0 / q_mass) && p_[draw] > 0.0)) {
            token = draw;
            break;
        }
        if (children.rule == DrawRule::WithReplacement) continue;
        weight = 0.0;
        q_mass = 0.0;
        for (const Candidate& candidate : children.q) q_mass += q_[candidate.id];
    }
    for (const Candidate& candidate : children.q) q_[candidate.id] = 0.0;
    return token >= 0 ? token : draw_from_rest(uniform(index));
}

bool RejectionRule::accept(TokenId token, double q, double uniform) const {
    return uniform * q * p_mass_ < p_[token];
}

// Replaces p by max(p - q, 0), normalised by the new p_mass_. `q_scale`: 1 / (sum of q_). Returns false, and leaves p
// unchanged, if nothing would remain.
bool RejectionRule::subtract(double q_scale) {
    const auto left = [&](TokenId id) {
        const auto at = static_cast<std::size_t>(id);
        return std::max(p_[at] / p_mass_ - q_[at] * q_scale, 0.0);
    };
    double mass = 0.0;
    for (const TokenId id : support_) mass += left(id);
    if (!(mass > 0.0)) return false;
    for (const TokenId id : support_) p_[id] = left(id);
    p_mass_ = mass;
    return true;
}

TokenId RejectionRule::draw_from_rest(double uniform) const {
    double missing = uniform * p_mass_;
    TokenId last = -1;
    for (const TokenId id : support_) {
        const double weight = p_[id];
        if (!(weight > 0.0)) continue;
        last = id;
        if (missing < weight) return id;
        missing -= weight;
    }
    // Reached only by rounding, if the weights sum to less than uniform * p_mass_: the remainder belongs to the last
    // token.
    CHECK(last >= 0, "no token has a probability");
    return last;
}

}  // namespace slipstream::draft
