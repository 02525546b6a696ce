// Logits of a card stay there: whole models on the emulated machine generate from heads what they generate from whole
// rows, plainly and over trees; and what crosses the link is counted on the machine's own table.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "draft/drafter.h"
#include "draft/rejection.h"
#include "draft/tree/target_softmax.h"
#include "emulated_machine.h"
#include "kernels/cuda/host/cuda_device.h"
#include "kernels/sampling.h"
#include "kernels/workspace.h"
#include "runtime/loop/generation_loop.h"
#include "runtime/loop/loop_needs.h"
#include "runtime/ranks/rank_target.h"
#include "tests/support/device_self_check.h"
#include "tests/support/scripted_proposer.h"
#include "tests/support/tiny_model.h"

namespace slipstream {
namespace {

using emulation::Machine;
using emulation::Timing;

constexpr std::int64_t kBudget = 8;
constexpr std::int64_t kVocab = 1500;
constexpr std::uint64_t kRowBytes = kVocab * sizeof(float);
// Best tokens, sum and draw.
constexpr std::uint64_t kHeadBytes = 8 * kMostTopLogits + 8;

/// The machine's table with bytes counted that leave the card.
class CountingTable {
public:
    explicit CountingTable(const cuda::Module& table) : table_(table) {
        real() = table;
        arrays().clear();
        bytes_out() = 0;
        table_.allocate = [](std::int32_t device, std::size_t bytes, void** data, cuda::ErrorText* error) {
            const cuda::Status status = real().allocate(device, bytes, data, error);
            if (status == cuda::Status::Ok) arrays()[static_cast<std::byte*>(*data)] = bytes;
            return status;
        };
        table_.free = [](std::int32_t device, void* data, cuda::ErrorText* error) {
            arrays().erase(static_cast<std::byte*>(data));
            return real().free(device, data, error);
        };
        table_.copy = [](cuda::Place place, void* dst, const void* src, std::size_t bytes, cuda::ErrorText* error) {
            if (on_card(src) && !on_card(dst)) bytes_out() += bytes;
            return real().copy(place, dst, src, bytes, error);
        };
    }
    const cuda::Module& table() const { return table_; }
    static std::uint64_t& bytes_out() {
        static std::uint64_t bytes = 0;
        return bytes;
    }

private:
    static cuda::Module& real() {
        static cuda::Module table{};
        return table;
    }
    static std::map<const std::byte*, std::size_t>& arrays() {
        static std::map<const std::byte*, std::size_t> all;
        return all;
    }
    static bool on_card(const void* pointer) {
        const auto* byte = static_cast<const std::byte*>(pointer);
        auto after = arrays().upper_bound(byte);
        return after != arrays().begin() && byte < std::prev(after)->first + std::prev(after)->second;
    }
    cuda::Module table_;
};

/// A model on a card, all of it resident.
class Engine {
public:
    explicit Engine(const ModelFiles& files, Timing timing = Timing::Latest)
        : machine_({.timing = timing}),
          counting_(machine_.table()),
          device_(counting_.table(), {.memory_bytes = std::size_t{256} << 20, .n_threads = 2}),
          model_(files, device_, {.context_tokens = 512}),
          cache_(device_, model_.kv_layouts(), 512, SelfCheck::scratch_nodes_for(kBudget)),
          forward_(model_, forward_limits_for(kBudget)) {
        reserve_workspace(device_,
                          Forward::workspace_shapes(model_.config(), model_.kv_dtype(), forward_limits_for(kBudget)));
    }
    CudaDevice& device() { return device_; }
    Model& model() { return model_; }
    KvCache& cache() { return cache_; }
    Forward& forward() { return forward_; }

    std::vector<TokenId> generate(Verifier& verifier, Proposer& proposer, std::int64_t n_tokens,
                                  SelfCheck* check = nullptr) {
        cache_.truncate(forward_.exec(), 0);
        RankTarget target(forward_, cache_);
        Sequence sequence(target);
        GenerationLoop loop(sequence, verifier, proposer, {.budget = kBudget, .end_tokens = {}});
        if (check != nullptr) loop.check_with(*check);
        loop.begin({3, 1400, 7, 7, 250, 3, 1400});
        for (std::int64_t left = n_tokens; left > 0;) left -= std::ssize(loop.step(left));
        return loop.text();
    }

private:
    Machine machine_;
    CountingTable counting_;
    CudaDevice device_;
    Model model_;
    KvCache cache_;
    Forward forward_;
};

/// The walk of E2 over whole rows, as before there were heads.
class WholeRowVerifier final : public Verifier {
public:
    explicit WholeRowVerifier(Sampler& sampler) : sampler_(sampler) {}
    void verify(const TokenTree& tree, const LogitRows& logits, const VerifyLimits& limits, std::vector<TokenId>& text,
                std::vector<TreeNode>& accepted) override {
        accepted.assign(1, kTreeRoot);
        for (TreeNode node = kTreeRoot;;) {
            text.push_back(sampler_.sample(logits.row(logits_row_of(node)), std::ssize(text), text));
            if (std::ssize(accepted) == limits.max_new_tokens) return;
            const auto next = tree.child(node, text.back());
            if (!next) return;
            accepted.push_back(node = *next);
        }
    }

private:
    Sampler& sampler_;
};

std::unique_ptr<ModelFiles> make_model(std::int64_t n_layers = 2, std::uint32_t seed = 1) {
    return make_tiny_model(
        {.n_layers = n_layers, .head_dim = 64, .vocab = kVocab, .weight_type = DType::BF16, .seed = seed});
}

struct Setting {
    SamplerOptions sampling;
    bool stays = true;  // rows are not fetched
};
const Setting kSettings[] = {
    {{.temperature = 0.0}},
    {{.temperature = 0.0, .repeat_penalty = 1.3}},
    {{.temperature = 0.0, .repeat_penalty = 0.8}, false},
    {{.temperature = 0.8, .top_k = 40, .top_p = 0.95, .seed = 3}},
    {{.temperature = 0.8, .top_k = 40, .top_p = 0.95, .repeat_penalty = 1.2, .seed = 3}},
    {{.temperature = 0.8, .top_k = 64, .top_p = 1.0, .min_p = 0.2, .seed = 3}},
    {{.temperature = 0.8, .top_k = 0, .top_p = 1.0, .seed = 3}},
    {{.temperature = 0.8, .top_k = 0, .top_p = 1.0, .repeat_penalty = 1.2, .seed = 3}, false},
    {{.temperature = 0.8, .top_k = 0, .top_p = 0.02, .seed = 3}},
    {{.temperature = 0.8, .top_k = 0, .top_p = 0.9, .seed = 3}, false},
    {{.temperature = 0.8, .top_k = 200, .top_p = 1.0, .seed = 3}, false},
};

TEST(CardLogits, HeadsGiveTheTextOfWholeRows) {
    const auto files = make_model();
    Engine engine(*files);
    for (const Setting& setting : kSettings) {
        Sampler sampler(setting.sampling, kVocab);
        WholeRowVerifier of_rows(sampler);
        ExactVerifier of_heads(sampler);
        NoProposer none;
        const std::vector<TokenId> expected = engine.generate(of_rows, none, 24);
        const std::int64_t fetched_before = engine.forward().logit_figures().fetched;
        const std::uint64_t bytes_before = engine.forward().logit_figures().bytes;
        const std::uint64_t out_before = CountingTable::bytes_out();
        EXPECT_EQ(engine.generate(of_heads, none, 24), expected);
        ScriptedProposer proposer(expected, 0.8, 5, kVocab);
        EXPECT_EQ(engine.generate(of_heads, proposer, 24), expected);
        EXPECT_LT(proposer.n_proposed, 24);
        const LogitFigures& figures = engine.forward().logit_figures();
        EXPECT_EQ(figures.bytes - bytes_before, CountingTable::bytes_out() - out_before);
        if (setting.stays) {
            EXPECT_EQ(figures.fetched, fetched_before) << "top-k " << setting.sampling.top_k;
        }
    }
}

// Of a pass over a tree: what leaves the card is heads; at temperature 0 an id and a value a node.
TEST(CardLogits, RowsDoNotCross) {
    const auto files = make_model();
    Engine engine(*files);
    for (const double temperature : {0.0, 0.8}) {
        Sampler sampler({.temperature = temperature, .seed = 3}, kVocab);
        ExactVerifier verifier(sampler);
        NoProposer none;
        const std::vector<TokenId> text = engine.generate(verifier, none, 24);
        ScriptedProposer proposer(text, 0.8, 5, kVocab);
        const std::uint64_t before = CountingTable::bytes_out();
        static_cast<void>(engine.generate(verifier, proposer, 24));
        const std::uint64_t head = temperature > 0.0 ? 8 * kMostTopLogits : 8;
        EXPECT_EQ(CountingTable::bytes_out() - before, head * static_cast<std::uint64_t>(proposer.nodes_proposed));
    }
}

// The whole drafter on the card: tables that learn from every node, a draft model, noise: neither model's rows cross.
TEST(CardLogits, ProposersLearnFromHeads) {
    const auto files = make_model();
    const auto small = make_model(1, 2);
    for (const SamplerOptions& sampling :
         {SamplerOptions{.temperature = 0.0}, SamplerOptions{.temperature = 0.8, .seed = 3},
          SamplerOptions{.temperature = 0.8, .repeat_penalty = 1.2, .seed = 3}}) {
        Engine engine(*files);
        const Model draft_model(*small, engine.device(), {.tag = MemoryTag::Draft});
        Sampler sampler(sampling, kVocab);
        ExactVerifier verifier(sampler);
        NoProposer none;
        const std::vector<TokenId> expected = engine.generate(verifier, none, 24);
        draft::DraftOptions options;
        options.sources = {draft::SourceKind::Recycling, draft::SourceKind::Lookahead, draft::SourceKind::Model};
        options.max_budget = kBudget;
        options.adapt_budget = false;
        draft::DraftContext target;
        target.vocab = kVocab;
        target.sampling = sampling;
        target.draft_model = &draft_model;
        const auto drafter = draft::make_drafter(options, target);
        const std::uint64_t before = CountingTable::bytes_out();
        const std::int64_t rows_before = engine.forward().logit_figures().rows;
        EXPECT_EQ(engine.generate(verifier, *drafter, 24), expected);
        EXPECT_EQ(engine.forward().logit_figures().fetched, 0);
        const auto n_rows = static_cast<std::uint64_t>(engine.forward().logit_figures().rows - rows_before);
        // Of the target a row a node, of the draft model no more (its nodes are the tree's, and some that were not
        // taken).
        EXPECT_LT(CountingTable::bytes_out() - before, 4 * n_rows * kHeadBytes);
        EXPECT_LT(CountingTable::bytes_out() - before, n_rows * kRowBytes / 2);
        std::int64_t offered = 0;
        for (const draft::SourceFigures& source : drafter->figures()) offered += source.offered;
        EXPECT_GT(offered, 0);
    }
}

// Who needs rows has them: the check of exactness, and classical sampling without filters. Only those of the path.
TEST(CardLogits, RowsThatAreNeededAreFetched) {
    const auto files = make_model();
    Engine engine(*files);
    Sampler sampler({.temperature = 0.8, .seed = 3}, kVocab);
    ExactVerifier verifier(sampler);
    NoProposer none;
    const std::vector<TokenId> expected = engine.generate(verifier, none, 16);
    ScriptedProposer proposer(expected, 0.8, 5, kVocab);
    DeviceSelfCheck check(engine.model(), engine.cache());
    EXPECT_EQ(engine.generate(verifier, proposer, 16, &check), expected);
    EXPECT_EQ(check.figures().tokens, 16);
    EXPECT_EQ(engine.forward().logit_figures().fetched, 16);

    Sampler unfiltered({.temperature = 0.8, .top_k = 0, .top_p = 1.0, .seed = 3}, kVocab);
    draft::RejectionVerifier rejection(unfiltered, kVocab, nullptr);
    ScriptedProposer again(expected, 0.8, 5, kVocab);
    EXPECT_EQ(engine.generate(rejection, again, 16).size(), 7U + 16U);
    EXPECT_EQ(engine.forward().logit_figures().fetched, 32);

    // With filters heads say p exactly.
    draft::RejectionVerifier filtered(sampler, kVocab, nullptr);
    EXPECT_EQ(engine.generate(filtered, none, 16).size(), 7U + 16U);
    EXPECT_EQ(engine.forward().logit_figures().fetched, 32);
}

// What estimates are learnt from, by tokens: the row's probabilities, and a fair share of the rest.
TEST(CardLogits, ProbabilitiesOfHeadsAreTheRows) {
    const auto files = make_model();
    Engine engine(*files);
    const double temperature = 0.8;
    const std::vector<TokenId> tokens = {3, 1400, 7};
    std::vector<NodeId> nodes;
    for (std::size_t i = 0; i < tokens.size(); ++i)
        nodes.push_back(engine.cache().add_node(nodes.empty() ? kCommittedTip : nodes.back()));
    const std::vector<std::int32_t> wanted = {1, 2};
    const LogitRows rows = engine.forward().run(engine.cache(), tokens, nodes, wanted,
                                                {.n_best = kMostTopLogits, .sum_temperature = temperature}, {});
    for (std::int64_t row = 0; row < rows.rows(); ++row) {
        const draft::TargetProbabilities of_head(rows, row, temperature);
        EXPECT_EQ(engine.forward().logit_figures().fetched, row);
        const TopLogits head = rows.top(row);
        const LogitRows whole(matrix_view(rows.row(row).data(), 1, kVocab));
        const draft::TargetProbabilities of_row(whole, 0, temperature);
        double mass = 0.0;
        for (TokenId token = 0; token < kVocab; ++token) {
            mass += of_head.probability(token);
            const float found = of_head.probability(token);
            if (std::ranges::find(head.ids, token) == head.ids.end()) {
                EXPECT_LE(found, of_head.probability(head.ids.back()));
            } else {
                EXPECT_NEAR(found, of_row.probability(token), 1e-3 * of_row.probability(token));
            }
        }
        EXPECT_NEAR(mass, 1.0, 1e-3);
    }
}

}  // namespace
}  // namespace slipstream
