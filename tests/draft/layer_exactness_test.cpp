// Drafter-invariant sampling (E2) on layers that only some families have: whatever source drafts, the text is that of
// plain decoding of the resident model. The models are random: layers of several families at once
// (TinyModelOptions::varied: windows, layers without RoPE, gates of the attention) and Gemma 4 (two head sizes, layers
// without values). Each is resident, streams its KV, and streams weights and KV through a small ring; every fourth text
// is also compared bit for bit with passes of one token (E1, the self-check).
#include <array>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "draft/drafter.h"
#include "draft/models/mtp_source.h"
#include "draft/tables/corpus_builder.h"
#include "draft/tables/frozen_table_builder.h"
#include "kernels/cpu_device.h"
#include "runtime/loop/generation_loop.h"
#include "runtime/loop/loop_needs.h"
#include "runtime/loop/self_check.h"
#include "runtime/model/weight_items.h"
#include "runtime/ranks/model_runner.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_head.h"
#include "tests/support/tiny_model.h"

namespace slipstream::draft {
namespace {

constexpr std::int64_t kContext = 640;
constexpr std::int64_t kBudget = 24;
constexpr std::int64_t kViewNodes = 64;  // most nodes that `retrieval` proposes
constexpr std::int64_t kVocab = 97;
constexpr std::int64_t kNewTokens = 20;
constexpr std::size_t kItemBytes = 8192;  // most bytes of a streamed weight item
constexpr std::size_t kRingBytes = std::size_t{1} << 19;
constexpr std::uint64_t kNoTokenizer = 1;  // fingerprint: the prompts are token ids
// A small part of each text, rebuilt again and again.
const ViewOptions kView{
    .budget_tokens = 24, .sink_tokens = 8, .recent_tokens = 8, .rebuild_tokens = 12, .growth_tokens = 32};

enum class Layers : std::uint8_t { Varied, Gemma4 };
enum class Placement : std::uint8_t { Resident, KvStreams, AllStreams };

std::unique_ptr<ModelFiles> make_files(Layers layers, DType type) {
    if (layers == Layers::Varied)
        return make_tiny_model({.n_layers = 5, .window = 30, .weight_type = type, .head_norms = true, .varied = true});
    return make_tiny_model({.n_layers = 5,
                            .heads = {{8, 4, 16}, {8, 2, 32}, {8, 4, 16}, {8, 2, 32}, {8, 2, 32}},
                            .window = 30,
                            .weight_type = type,
                            .gemma4 = true});
}

LoadOptions load_options(const ModelFiles& files, Placement placement, PinnedArena& arena) {
    LoadOptions options{.context_tokens = kContext};
    options.placement = {.max_item_bytes = kItemBytes, .arena = &arena};
    if (placement != Placement::AllStreams) return options;
    // Every third item is resident, and the LM head, which `mtp` uses.
    const std::vector<WeightItem> items = cut_weight_items(files.weights(), WeightRounding::None, kItemBytes);
    for (std::size_t i = 0; i < items.size(); ++i)
        options.placement.streams.push_back(i % 3 > 0 && items[i].layer < files.config().n_layers());
    return options;
}

RunnerShard shard_of(const Model& model, Placement placement, PinnedArena& arena) {
    RunnerShard shard{.model = &model, .ring_bytes = kRingBytes};
    shard.kv.arena = &arena;
    if (placement != Placement::Resident)
        shard.kv.resident_chunks.resize(static_cast<std::size_t>(model.config().n_layers()), 0);
    return shard;
}

RunnerNeeds needs_of(Placement placement) {
    RunnerNeeds needs{.text_tokens = kContext,
                      .forward = forward_limits_for(kBudget),
                      .scratch_nodes = SelfCheck::scratch_nodes_for(kBudget),
                      .check_tokens = kPrefillChunkTokens,
                      .hidden_rows = kHiddenRows};
    // A view requires that all weights are resident.
    if (placement != Placement::AllStreams) needs.view = ViewNeeds{.options = kView, .max_nodes = kViewNodes};
    return needs;
}

/// A model with a placement, and what its sources need. The draft model has the weights of the target, rounded.
struct Subject {
    Subject(Layers layers, Placement placement)
        : files(make_files(layers, DType::BF16)),
          draft_files(make_files(layers, DType::Q8_0)),
          arena({.limit_bytes = std::size_t{64} << 20, .page_lock = PageLock::Pageable}),
          model(*files, device, load_options(*files, placement, arena)),
          resident_model(*files, device, {.context_tokens = kContext}),
          draft_model(*draft_files, device, {.context_tokens = kContext}),
          head_source(*files),
          head(head_source, device, {.context_tokens = kContext}, ProposingHead::LmHead::OfTarget),
          runner({shard_of(model, placement, arena)}, needs_of(placement), &arena) {
        head.use_lm_head_of(model);
    }

    std::vector<TokenId> generate(Proposer& proposer, const SamplerOptions& sampling,
                                  const std::vector<TokenId>& prompt, SelfCheck* check = nullptr) {
        proposer.observe({.text = {}, .n_new = 0});  // a new sequence begins
        Target& target = runner.target();
        target.truncate(0);
        if (runner.view() != nullptr) runner.use_view(true);
        Sampler sampler(sampling, kVocab);
        ExactVerifier verifier(sampler);
        Sequence sequence(target);
        GenerationLoop loop(sequence, verifier, proposer, {kBudget, {}});
        if (check != nullptr) loop.check_with(*check);
        loop.begin(prompt);
        for (std::int64_t left = kNewTokens; left > 0; ++n_passes) left -= std::ssize(loop.step(left));
        return loop.text();
    }

    std::unique_ptr<ModelFiles> files, draft_files;
    CpuDevice device{CpuDeviceOptions{.n_threads = 1}};
    PinnedArena arena;
    Model model;
    Model resident_model;  // from which the tables of bigram and unigram are computed
    Model draft_model;
    TinyHead head_source;
    ProposingHead head;
    ModelRunner runner;
    std::int64_t n_passes = 0;
};

// Prompts that repeat themselves, so that sources of n-grams propose something: one that grows past the window, and one
// past a KV chunk.
std::vector<std::vector<TokenId>> make_prompts() {
    std::vector<std::vector<TokenId>> prompts;
    for (const std::int64_t n : {20, 300}) {
        std::vector<TokenId>& prompt = prompts.emplace_back();
        for (std::int64_t i = 0; i < n; ++i) prompt.push_back(static_cast<TokenId>((i % 13 * 31 + i / 52) % kVocab));
    }
    return prompts;
}

struct Case {
    const char* name;
    Layers layers;
    Placement placement;
};

void PrintTo(const Case& which, std::ostream* out) {
    *out << which.name;
}

class LayerExactness : public testing::TestWithParam<Case> {};

TEST_P(LayerExactness, NoSourceChangesTheTextOfTheResidentModel) {
    const auto& [name, layers, placement] = GetParam();
    Subject subject(layers, placement);
    EXPECT_EQ(subject.model.streams_weights(), placement == Placement::AllStreams);
    EXPECT_EQ(subject.runner.cache().streams(), placement != Placement::Resident);
    SelfCheck self_check(subject.runner.check_target());
    const std::vector<std::vector<TokenId>> prompts = make_prompts();
    std::vector<SourceKind> kinds;
    for (const SourceKind kind : all_sources())
        if (kind != SourceKind::Retrieval || subject.runner.view() != nullptr) kinds.push_back(kind);
    std::vector<std::int64_t> offered(kinds.size(), 0);
    std::int64_t accepted = 0;
    std::size_t n_runs = 0;
    for (const double temperature : {0.0, 0.8}) {
        SamplerOptions sampling{.temperature = temperature, .seed = 11};
        if (temperature > 0.0) {
            sampling.top_p = 0.95;
            sampling.repeat_penalty = 1.15;
        }
        std::vector<std::vector<TokenId>> plain;
        {
            Subject resident(layers, Placement::Resident);
            NoProposer nothing;
            for (const std::vector<TokenId>& prompt : prompts)
                plain.push_back(resident.generate(nothing, sampling, prompt));
        }
        // Tables of texts that are nearly the one to be generated.
        Documents documents(kVocab);
        for (const std::vector<TokenId>& text : plain) documents.add(std::span(text).first(text.size() - 8));
        const TempFolder folder;
        const std::string corpus = (folder.path() / "corpus.table").string();
        const std::string frozen = (folder.path() / "frozen.table").string();
        write_corpus(documents, kNoTokenizer, corpus, {});
        const BuiltFrozenTable table = build_frozen_table({}, documents, kNoTokenizer, {});
        write_table_file(frozen, {&table.section, 1});

        // Each source alone, then all together in one tree and in one chain.
        for (std::size_t s = 0; s < kinds.size() + 2; ++s) {
            DraftOptions options;
            options.sources = s < kinds.size() ? std::vector{kinds[s]} : kinds;
            options.max_budget = kBudget;
            options.adapt_budget = false;
            options.corpus = corpus;
            if (options.has(SourceKind::Cacheback)) options.frozen_table = frozen;
            if (s >= kinds.size()) options.shape = s == kinds.size() ? TreeShape::Merged : TreeShape::Chain;
            DraftContext context;
            context.vocab = kVocab;
            context.sampling = sampling;
            context.files = subject.files.get();
            context.tokenizer_fingerprint = kNoTokenizer;
            context.model = &subject.resident_model;
            context.head = &subject.head;
            context.draft_model = &subject.draft_model;
            const std::unique_ptr<Drafter> drafter = make_drafter(options, context);
            if (subject.runner.view() != nullptr) drafter->attach_view(*subject.runner.view(), {});
            drafter->attach_hidden(*subject.runner.hidden());
            for (std::size_t p = 0; p < prompts.size(); ++p, ++n_runs) {
                const std::string sources = s < kinds.size()    ? std::string(source_name(kinds[s]))
                                            : s == kinds.size() ? "all"
                                                                : "all, chain";
                EXPECT_EQ(subject.generate(*drafter, sampling, prompts[p], n_runs % 4 == 0 ? &self_check : nullptr),
                          plain[p])
                    << sources << " at T = " << temperature << ", prompt " << p;
            }
            for (const SourceFigures& figures : drafter->figures()) {
                accepted += figures.accepted;
                if (s < kinds.size()) offered[s] += figures.offered;
            }
        }
    }
    for (std::size_t s = 0; s < kinds.size(); ++s) EXPECT_GT(offered[s], 0) << source_name(kinds[s]);
    EXPECT_GT(accepted, 0);
    EXPECT_LT(subject.n_passes, static_cast<std::int64_t>(n_runs) * kNewTokens);
}

INSTANTIATE_TEST_SUITE_P(Models, LayerExactness,
                         testing::Values(Case{"VariedResident", Layers::Varied, Placement::Resident},
                                         Case{"VariedKvStreams", Layers::Varied, Placement::KvStreams},
                                         Case{"VariedStreams", Layers::Varied, Placement::AllStreams},
                                         Case{"Gemma4Resident", Layers::Gemma4, Placement::Resident},
                                         Case{"Gemma4KvStreams", Layers::Gemma4, Placement::KvStreams},
                                         Case{"Gemma4Streams", Layers::Gemma4, Placement::AllStreams}),
                         [](const auto& which) { return std::string(which.param.name); });

}  // namespace
}  // namespace slipstream::draft
