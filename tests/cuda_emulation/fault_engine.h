// A model on emulated GPUs, placed in one of the ways that a user can choose, and short texts over it that stream, cut
// and draft: what faults are injected into.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "draft/drafter.h"
#include "draft/models/mtp_source.h"
#include "runner_on_cards.h"
#include "runtime/formats/model_files.h"
#include "runtime/loop/loop_needs.h"
#include "runtime/ranks/layer_split.h"
#include "runtime/ranks/model_runner.h"
#include "runtime/ranks/tensor_split.h"
#include "tests/support/tiny_head.h"

namespace slipstream::emulation {

enum class Split : std::uint8_t { OneCard, Layers, TensorByHost, TensorByNccl };

struct FaultCase {
    const char* name;
    Split split;
    Streams streams;              // Kv: views draft, too
    std::int64_t n_prompt = 508;  // tokens before the generated ones; cached before a fault is injected, unless
    bool whole_prompt = false;    // the prompt is fed anew each time, by layers
    std::int64_t n_experts = 0;   // of each layer but the first; 0: none
    bool recurs = false;          // layers are recurrent: a text goes on from a checkpoint of the prompt
    bool has_head = false;        // an MTP head drafts, on the first GPU
    std::optional<std::int32_t> expert_slots{};  // of each layer with experts
};

inline constexpr FaultCase kFaultCases[] = {
    {"one-card", Split::OneCard, Streams::Both},
    {"one-card-views", Split::OneCard, Streams::Kv},
    {"one-card-graphs", Split::OneCard, Streams::Nothing},
    {"one-card-prompt", Split::OneCard, Streams::Both, 515, true},
    {"one-card-experts", Split::OneCard, Streams::Nothing, 508, false, 5},
    {.name = "one-card-slots", .split = Split::OneCard, .streams = Streams::Weights, .n_experts = 5, .expert_slots = 3},
    {"hybrid", Split::OneCard, Streams::Both, 600, false, 0, true},
    {"hybrid-layers", Split::Layers, Streams::Nothing, 600, false, 0, true},
    {"hybrid-prompt", Split::OneCard, Streams::Both, 515, true, 0, true},
    {"hybrid-mtp", Split::OneCard, Streams::Weights, 600, false, 0, true, true},
    {"layers-mtp", Split::Layers, Streams::Nothing, 600, false, 0, true, true},
    {"layers", Split::Layers, Streams::Both},
    {"layers-views", Split::Layers, Streams::Kv},
    {"layers-prompt", Split::Layers, Streams::Both, 515, true},
    {"layers-experts", Split::Layers, Streams::Both, 508, false, 5},
    {"tensor", Split::TensorByHost, Streams::Both},
    {"tensor-views", Split::TensorByHost, Streams::Kv},
    {"nccl", Split::TensorByNccl, Streams::Both},
    {"nccl-views", Split::TensorByNccl, Streams::Kv},
};

/// Chains of the most likely tokens over a view, if the view is valid for the whole text.
class ViewProposer final : public Proposer {
public:
    explicit ViewProposer(ViewPasses& passes) : passes_(&passes) {}

    void propose(TokenTree& tree, const ProposalLimits& limits) override {
        if (passes_->n_text() == 0 || passes_->n_text() != std::ssize(limits.text) - 1) return;
        passes_->forget();
        NodeId above = kCommittedTip;
        TreeNode node = kTreeRoot;
        for (std::int64_t i = 0; i < std::min(limits.max_depth, limits.budget - 1); ++i) {
            above = passes_->add_node(above);
            const TokenId token = tree.token(node);
            const std::int32_t row = 0;
            const LogitRows logits = passes_->run({&token, 1}, {&above, 1}, {&row, 1}, {});
            const auto likely = logits.row(0);
            node = tree.add(node, static_cast<TokenId>(std::ranges::max_element(likely) - likely.begin()));
            ++n_guessed;
        }
    }
    void observe(const Observation&) override {}

    std::int64_t n_guessed = 0;

private:
    ViewPasses* passes_;
};

/// An MTP head of random weights, and what it drafts from.
struct FaultHead {
    FaultHead(const ModelFiles& files, Device& device, RankTarget& of)
        : source(files),
          head(source, device, {.context_tokens = kContext}, ProposingHead::LmHead::Own),
          tail(of.hidden_device(), files.config().d_model, draft::kHiddenRows, SelfCheck::scratch_nodes_for(kBudget)),
          target(of) {
        draft::DraftOptions options;
        options.sources = {draft::SourceKind::Mtp};
        options.max_budget = kBudget;
        options.adapt_budget = false;
        draft::DraftContext context;
        context.vocab = kTinyVocab;
        context.sampling = {.temperature = 0.8, .seed = 3};
        context.head = &head;
        drafter = draft::make_drafter(options, context);
        drafter->attach_hidden(tail);
        target.keep_hidden_in(&tail);
    }
    ~FaultHead() { target.keep_hidden_in(nullptr); }
    FaultHead(const FaultHead&) = delete;
    FaultHead& operator=(const FaultHead&) = delete;

    TinyHead source;
    ProposingHead head;
    HiddenTail tail;
    RankTarget& target;
    std::unique_ptr<draft::Drafter> drafter;
};

class FaultEngine {
public:
    FaultEngine(const ModelFiles& files, const FaultCase& of, Timing timing)
        : machine({.n_cards = of.split == Split::OneCard ? 1 : 2,
                   .timing = timing,
                   .nccl = of.split == Split::TensorByNccl ? Nccl::Serves : Nccl::None}),
          case_(of) {
        const std::int32_t n = of.split == Split::OneCard ? 1 : 2;
        const bool is_tensor = of.split == Split::TensorByHost || of.split == Split::TensorByNccl;
        std::vector<Device*> devices;
        for (std::int32_t card = 0; card < n; ++card) {
            cards_.push_back(small_card(machine, card));
            devices.push_back(cards_.back().get());
        }
        arena_.emplace(PinnedArenaOptions{.limit_bytes = std::size_t{64} << 20, .device = devices.front()});
        std::vector<ModelShard> shards{whole_shard(files.config())};
        if (of.split == Split::Layers) shards = deal_layers(files.config(), std::vector<std::int64_t>{2, 1});
        if (is_tensor) shards = deal_heads(files.config(), files.weights(), std::vector<std::int64_t>{2, 1});
        std::optional<ViewNeeds> view;
        if (of.streams == Streams::Kv)
            view = ViewNeeds{{.budget_tokens = 128, .recent_tokens = 64, .rebuild_tokens = 8, .growth_tokens = 32}, 16};
        on_cards_.emplace(files, devices, shards, *arena_, of.streams,
                          is_tensor ? sums_of_passes(files, devices) : nullptr, view, kContext, of.expert_slots);
        target_ = &runner().target();
        if (view) {
            runner().use_view(true);
            proposer_.emplace(*runner().view());
        }
        if (of.has_head) head_.emplace(files, *devices.front(), runner().target());
        prompt_ = prompt_of(of.n_prompt);
        if (of.whole_prompt) CHECK(target_->takes_prompt(512), "a prompt by layers");
    }

    /// The text as a program that goes on with it makes it: cut back to the prompt, some tokens more, and the chunks
    /// that a session keeps. Throws what fails.
    [[nodiscard]] Generated generate() {
        constexpr std::int64_t kTokens = 6;
        target_->forget();
        target_->truncate(case_.whole_prompt ? 0 : std::min(target_->n_committed(), std::ssize(prompt_) - 1));
        Sampler sampler({.temperature = 0.8, .seed = 3}, kTinyVocab);
        ExactVerifier verifier(sampler);
        NoProposer nothing;
        LogitLog log(head_       ? static_cast<Proposer&>(*head_->drafter)
                     : proposer_ ? static_cast<Proposer&>(*proposer_)
                                 : nothing);
        Sequence sequence(*target_);
        GenerationLoop loop(sequence, verifier, log, {.budget = kBudget, .end_tokens = {}});
        loop.begin(prompt_);
        const std::int64_t n_wanted = case_.whole_prompt ? 2 : kTokens;
        for (std::int64_t left = n_wanted; left > 0;) left -= std::ssize(loop.step(left));
        // The last layer has KV.
        std::vector<std::byte> chunk(target_->shape().kv.back().chunk_bytes());
        target_->read_chunk(target_->shape().n_layers - 1, target_->n_committed() / kChunkTokens - 1, chunk.data());
        Generated generated{loop.text(), log.rows};
        for (std::size_t i = 0; i + sizeof(float) <= chunk.size(); i += sizeof(float)) {
            float word = 0.0F;
            std::memcpy(&word, chunk.data() + i, sizeof(word));
            generated.logits.push_back(word);
        }
        return generated;
    }
    [[nodiscard]] Target& target() { return *target_; }
    [[nodiscard]] std::int64_t n_guessed() const {
        if (head_) return head_->drafter->figures().front().offered;
        return proposer_ ? proposer_->n_guessed : 0;
    }

    Machine machine;

private:
    [[nodiscard]] ModelRunner& runner() { return *on_cards_->runner; }

    FaultCase case_;
    std::vector<std::unique_ptr<Device>> cards_;
    std::optional<PinnedArena> arena_;
    std::optional<RunnerOnCards> on_cards_;
    Target* target_ = nullptr;
    std::optional<ViewProposer> proposer_;
    std::optional<FaultHead> head_;
    std::vector<TokenId> prompt_;
};

}  // namespace slipstream::emulation
