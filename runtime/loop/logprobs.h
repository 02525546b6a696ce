// Log probabilities of committed tokens, for clients that ask how sure the model was. They are the log-softmax of the
// raw logits, before penalties, temperature and filters, so they do not depend on how tokens are drawn.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/loop/verify.h"

namespace slipstream {

struct TokenLogprob {
    struct Alternative {
        TokenId id = 0;
        float logprob = 0.0F;
    };
    TokenId id = 0;
    float logprob = 0.0F;
    std::vector<Alternative> best{};  // the likeliest tokens, best first, ties by id
};

/// Returns the log probability of `id` by `logits` [vocab], and those of the `n_best` likeliest tokens.
[[nodiscard]] TokenLogprob token_logprob(std::span<const float> logits, TokenId id, int n_best);

/// Log probabilities of the tokens that passes commit, filled by RecordingVerifier.
struct LogprobRecord {
    int n_best = 0;                      // alternatives of each token
    std::vector<TokenLogprob> tokens{};  // added for each token that a pass commits
};

/// Verifies by another verifier, and records log probabilities of the tokens that it accepts.
class RecordingVerifier final : public Verifier {
public:
    /// `inner` must outlive this object.
    explicit RecordingVerifier(Verifier& inner) : inner_(&inner) {}
    /// From now on appends to `record`, which must outlive its use; null: records nothing.
    void record(LogprobRecord* record) { record_ = record; }

    [[nodiscard]] LogitRequest logit_request() const override { return inner_->logit_request(); }
    void verify(const TokenTree& tree, const LogitRows& logits, const VerifyLimits& limits, std::vector<TokenId>& text,
                std::vector<TreeNode>& accepted) override;

private:
    Verifier* inner_;
    LogprobRecord* record_ = nullptr;
};

}  // namespace slipstream
