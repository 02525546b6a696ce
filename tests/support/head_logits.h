// The logits of a golden MTP head (golden_head.h) on any device.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/cache/kv_cache.h"
#include "runtime/formats/head_files.h"
#include "runtime/formats/model_files.h"
#include "runtime/pass/forward.h"
#include "runtime/pass/head_pass.h"
#include "runtime/pass/hidden_tail.h"
#include "runtime/ranks/rank_target.h"
#include "tests/support/golden_head.h"

namespace slipstream {

/// Runs the target over the text of the golden model, then the head over all pairs of a hidden state and the next
/// token, `piece` of them a pass, then over what it proposes. Returns the logits of all, and expects the golden drafts.
/// A head with an LM head of its own uses that, whatever `lm_head` says.
[[nodiscard]] inline std::vector<float> head_logits(const ModelFiles& files, const GoldenHead& golden, Device& device,
                                                    std::int64_t piece, ProposingHead::LmHead lm_head) {
    constexpr std::int64_t kMaxTokens = 64;
    const std::unique_ptr<HeadSource> source = open_head(files);
    const LoadOptions options{.context_tokens = golden.model.context_tokens, .kv_dtype = DType::F32};
    const Model model(files, device, options);
    Forward forward(model, {.max_tokens = kMaxTokens});
    KvCache cache(device, model.kv_layouts(), golden.model.context_tokens, kMaxTokens);
    RankTarget target(forward, cache);
    HiddenTail tail(target.hidden_device(), model.config().d_model, kMaxTokens, kMaxTokens);
    target.keep_hidden_in(&tail);
    const std::vector<TokenId>& text = golden.model.tokens;
    std::vector<NodeId> nodes;
    for (std::size_t i = 0; i < text.size(); ++i)
        nodes.push_back(target.add_node(nodes.empty() ? kCommittedTip : nodes.back(), NodeKind::Certain));
    static_cast<void>(target.run({.tokens = text, .nodes = nodes}));
    target.commit(nodes);
    EXPECT_EQ(tail.begin(), 0);
    EXPECT_EQ(tail.end(), std::ssize(text));

    if (source->has_own_lm_head()) lm_head = ProposingHead::LmHead::Own;
    ProposingHead head(*source, device, options, lm_head);
    EXPECT_EQ(head.has_lm_head(), lm_head == ProposingHead::LmHead::Own);
    if (!head.has_lm_head()) head.use_lm_head_of(model);
    HeadPass pass(head, {.max_tokens = kMaxTokens, .max_logit_rows = kMaxTokens});
    KvCache own(device, head.model().kv_layouts(), kMaxTokens, kMaxTokens);
    std::vector<float> logits;
    const auto take = [&](const LogitRows& rows) {
        EXPECT_EQ(rows.on_device(), !device.shares_host_memory());
        for (std::int64_t row = 0; row < rows.rows(); ++row)
            logits.insert(logits.end(), rows.row(row).begin(), rows.row(row).end());
    };
    std::vector<NodeId> at;  // of the last piece, then of drafted tokens
    for (std::int64_t begin = 0; begin + 1 < std::ssize(text); begin += piece) {
        const std::int64_t n = std::min(piece, std::ssize(text) - 1 - begin);
        if (!at.empty()) own.commit(pass.exec(), at);
        at.clear();
        std::vector<std::int32_t> rows;
        for (std::int32_t i = 0; i < n; ++i) {
            at.push_back(own.add_node(at.empty() ? kCommittedTip : at.back()));
            rows.push_back(i);
            std::ranges::copy(tail.row(begin + i), pass.input(i).begin());
        }
        take(pass.run(own, std::span(text).subspan(begin + 1, n), at, n, rows));
    }
    for (std::size_t i = 0; i + 1 < golden.drafted.size(); ++i) {
        const std::span<const float> row(logits.end() - golden.model.vocab, logits.end());
        EXPECT_EQ(std::ranges::max_element(row) - row.begin(), golden.drafted[i]);
        at.push_back(own.add_node(at.back()));
        const std::int32_t first = 0;
        take(pass.run(own, {&golden.drafted[i], 1}, {&at.back(), 1}, 0, {&first, 1}));
    }
    return logits;
}

/// Returns the squared error over the squared size.
[[nodiscard]] inline double nmse(std::span<const float> found, std::span<const float> expected) {
    double error = 0.0;
    double size = 0.0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        error += (double{found[i]} - expected[i]) * (double{found[i]} - expected[i]);
        size += double{expected[i]} * expected[i];
    }
    return error / size;
}

}  // namespace slipstream
