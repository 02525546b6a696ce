#include "draft/source_set.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "draft/models/draft_model.h"
#include "draft/models/mtp_source.h"
#include "draft/models/self_draft_model.h"
#include "draft/papers/lookahead.h"
#include "draft/papers/model_unigram.h"
#include "draft/papers/prompt_lookup.h"
#include "draft/sources/cacheback.h"
#include "draft/sources/context_source.h"
#include "draft/sources/corpus.h"
#include "draft/sources/model_bigram.h"
#include "draft/sources/recycling.h"
#include "draft/sources/suffix_automaton_source.h"
#include "draft/tables/frozen_table.h"
#include "draft/tables/model_ngrams.h"
#include "draft/tables/table_store.h"
#include "kernels/base/error.h"
#include "runtime/formats/model_fingerprint.h"

namespace slipstream::draft {

namespace {

// Most logits (float) of all nodes of a draft model's tree together: 128 MiB. Limits model_nodes() for large
// vocabularies.
constexpr std::int64_t kMostLogits = std::int64_t{1} << 25;
constexpr std::size_t kMostSlots = std::size_t{1} << 30;  // most KV slots of a draft model, whatever its bytes allow
// Most KV slots of an MTP head. It knows kHiddenRows positions of a prompt and what is generated, seldom more than
// this; beyond it the cache begins anew with the hidden tail, a few passes over about kHiddenRows positions.
constexpr std::size_t kMostHeadSlots = 8192;

// Loads the n-grams of the target from options.tables, or computes them if the whole model is loaded. Throws
// RequestError if neither is possible.
ModelNgrams model_ngrams(const DraftOptions& options, const DraftContext& target) {
    if (target.files == nullptr)
        throw RequestError("the sources bigram and unigram are made out of the target, and there is no model here");
    std::optional<TableStore> store;
    if (options.tables) store.emplace(TableStoreOptions{.folder = *options.tables, .on_note = target.on_note});
    if (target.model == nullptr) {
        std::optional<ModelNgrams> kept;
        if (store)
            kept = load_model_ngrams({.store = &*store, .fingerprint = model_fingerprint(*target.files)}, target.vocab,
                                     ModelNgramsOptions{}.k);
        if (!kept)
            throw RequestError(
                "the sources bigram and unigram need a table that is missing, and a model under a memory budget, or "
                "on several devices, does not build it; run 'slipstream tables build --kind bigram' first, or name "
                "other sources");
        return std::move(*kept);
    }
    ModelNgramsOptions build{.on_note = target.on_note};
    if (target.on_progress)
        build.on_progress = [&](double done, double all) { target.on_progress("the model's n-grams", done, all); };
    auto ngrams = load_or_build_model_ngrams(
        *target.model, *target.files,
        {.store = store ? &*store : nullptr, .fingerprint = store ? model_fingerprint(*target.files) : 0}, build);
    CHECK(ngrams.has_value(), "cancelled without a request");
    return std::move(*ngrams);
}

// Returns the window of a draft model: as much of the sequence as options.window_bytes hold, all of it if possible.
WindowShape model_window(const DraftOptions& options, const DraftContext& target) {
    std::size_t row = 0;  // bytes of the K and V rows of one token, in all layers
    for (const KvLayout& layout : target.draft_model->kv_layouts()) row += 2 * layout.scratch_row_bytes();
    const std::int64_t room = std::min(static_cast<std::int64_t>(std::min(options.window_bytes / row, kMostSlots)),
                                       target.draft_model->context_tokens() - model_nodes(options, target.vocab));
    WindowShape window;
    window.slots = std::max(window.slots, target.text_tokens > 0 ? std::min(room, target.text_tokens) : room);
    window.recent = window.slots / 2 - window.sinks / 2;
    return window;
}

std::unique_ptr<Cacheback> make_cacheback(const DraftOptions& options, const DraftContext& target) {
    std::optional<FrozenTable> frozen;
    if (options.frozen_table)
        frozen = FrozenTable::open(*options.frozen_table,
                                   {.vocab = target.vocab, .tokenizer_fingerprint = target.tokenizer_fingerprint});
    return std::make_unique<Cacheback>(options.cacheback, target.vocab, std::move(frozen));
}

std::unique_ptr<CorpusSource> make_corpus(const DraftOptions& options, const DraftContext& target) {
    if (!options.corpus)
        throw RequestError(
            "the source corpus reads a store; build one with 'tables build --kind corpus' and name it by "
            "--corpus FILE");
    return std::make_unique<CorpusSource>(CorpusOptions{
        .path = *options.corpus, .vocab = target.vocab, .tokenizer_fingerprint = target.tokenizer_fingerprint});
}

}  // namespace

std::vector<TableSource*> SourceSet::table_list() const {
    std::vector<TableSource*> list;
    for (const auto& source : tables) list.push_back(source.get());
    return list;
}

std::vector<ModelSource*> SourceSet::model_list() const {
    std::vector<ModelSource*> list;
    for (const auto& source : models) list.push_back(source.get());
    return list;
}

std::optional<std::size_t> SourceSet::find(std::string_view name) const {
    const auto found = std::ranges::find_if(tables, [name](const auto& source) { return source->name() == name; });
    if (found == tables.end()) return std::nullopt;
    return static_cast<std::size_t>(found - tables.begin());
}

std::int64_t model_nodes(const DraftOptions& options, std::int64_t vocab) {
    return std::min(std::max(kLeastModelNodes, 2 * options.max_budget),
                    std::max<std::int64_t>(kLeastModelNodes / 2, kMostLogits / vocab));
}

std::int64_t head_slots(const DraftOptions& options, const ModelConfig& head, DType kv_dtype,
                        std::int64_t text_tokens) {
    std::size_t row = 0;  // bytes of the K and V rows of one position
    for (const KvLayout& layout : head.kv_layouts(kv_dtype)) row += 2 * layout.scratch_row_bytes();
    const std::int64_t room = static_cast<std::int64_t>(std::min(options.window_bytes / row, kMostHeadSlots));
    return std::max(kHiddenRows, text_tokens > 0 ? std::min(room, text_tokens) : room);
}

namespace {

// Sources and tables that are made before all others, null if not asked for: so files are opened and checked before
// anything is computed.
struct TableParts {
    std::unique_ptr<Cacheback> cacheback;
    std::unique_ptr<CorpusSource> corpus;
    std::shared_ptr<const ModelNgrams> ngrams;
};

TableParts table_parts(const DraftOptions& options, const DraftContext& target) {
    TableParts parts;
    if (options.has(SourceKind::Cacheback)) parts.cacheback = make_cacheback(options, target);
    if (options.has(SourceKind::Corpus)) parts.corpus = make_corpus(options, target);
    if (options.has(SourceKind::Bigram) || options.has(SourceKind::Unigram))
        parts.ngrams = std::make_shared<const ModelNgrams>(model_ngrams(options, target));
    return parts;
}

// Adds a source and the tree of its paper to `set`.
template <typename Source>
void add_source(SourceSet& set, std::unique_ptr<Source> source) {
    set.paper_trees.push_back(source.get());
    set.tables.push_back(std::move(source));
}

// Adds the table source of `kind`, which must not be a model source, to `set`. Moves its part out of `parts`.
void add_table(SourceSet& set, SourceKind kind, TableParts& parts, const DraftOptions& options,
               const DraftContext& target) {
    const double temperature = target.sampling.temperature;
    switch (kind) {
        case SourceKind::Context:
            add_source(set, std::make_unique<ContextSource>(target.vocab, ContextSource::Options{}));
            break;
        case SourceKind::Suffix:
            add_source(set, std::make_unique<SuffixSource>());
            break;
        case SourceKind::Lookup:
            add_source(set, std::make_unique<PromptLookup>(PromptLookupOptions{.max_ngram = options.lookup_ngram}));
            break;
        case SourceKind::Cacheback:
            add_source(set, std::move(parts.cacheback));
            break;
        case SourceKind::Recycling:
            add_source(
                set, std::make_unique<Recycling>(RecyclingOptions{.vocab = target.vocab, .temperature = temperature}));
            break;
        case SourceKind::Bigram: {
            auto bigrams =
                std::make_unique<ModelBigram>(std::shared_ptr<const BigramTable>(parts.ngrams, &parts.ngrams->bigrams),
                                              temperature, ModelNgramsOptions{}.k);
            set.bigrams = bigrams.get();
            add_source(set, std::move(bigrams));
            break;
        }
        case SourceKind::Unigram:
            add_source(set, std::make_unique<ModelUnigram>(parts.ngrams->common, target.vocab, temperature));
            break;
        case SourceKind::Corpus:
            add_source(set, std::move(parts.corpus));
            break;
        case SourceKind::Lookahead: {
            auto lookahead = std::make_unique<Lookahead>(LookaheadOptions{.vocab = target.vocab});
            set.lookahead = lookahead.get();
            add_source(set, std::move(lookahead));
            break;
        }
        case SourceKind::Mtp:
        case SourceKind::Model:
        case SourceKind::Retrieval:
            break;
    }
}

std::unique_ptr<MtpSource> make_mtp(const DraftOptions& options, const DraftContext& target) {
    if (target.head == nullptr) throw RequestError("the source mtp needs a model whose files have an MTP head");
    if (options.child_rule == ChildRule::Draw)
        throw RequestError("the source mtp draws no tokens: it proposes its best ones");
    const Model& model = target.head->model();
    return std::make_unique<MtpSource>(
        *target.head, target.sampling,
        MtpOptions{.max_nodes = model_nodes(options, target.vocab),
                   .n_slots = head_slots(options, model.config(), model.kv_dtype(), target.text_tokens),
                   .planned_seconds = target.head_planned_seconds});
}

std::unique_ptr<ModelSource> make_draft_model(DraftRows rows, const DraftOptions& options, const DraftContext& target) {
    if (target.draft_model == nullptr)
        throw RequestError("the source model needs a draft model; name one by --draft-model PATH");
    return std::make_unique<DraftModel>(*target.draft_model, target.vocab, target.sampling,
                                        DraftModelOptions{.max_nodes = model_nodes(options, target.vocab),
                                                          .window = model_window(options, target),
                                                          .planned_seconds = target.draft_planned_seconds,
                                                          .rows = rows});
}

}  // namespace

DraftOptions without_unusable_sources(DraftOptions options, const DraftContext& target) {
    if (!options.has(SourceKind::Recycling) || target.vocab <= Recycling::kMaxVocab) return options;
    const std::string reason =
        fmt::format("the source recycling knows vocabularies of at most {} tokens, this one has {}",
                    Recycling::kMaxVocab, target.vocab);
    if (options.shape == TreeShape::Recycling) throw RequestError(fmt::format("{}; use another --tree", reason));
    std::erase(options.sources, SourceKind::Recycling);
    if (target.on_note) target.on_note(fmt::format("{}; it is left out", reason));
    return options;
}

SourceSet make_sources(const DraftOptions& options, const DraftContext& target) {
    SourceSet set;
    TableParts parts = table_parts(options, target);
    const DraftRows rows = options.child_rule == ChildRule::Draw ? DraftRows::Whole : DraftRows::Best;
    std::unique_ptr<MtpSource> head;
    std::unique_ptr<SelfDraftModel> view;
    for (const SourceKind kind : options.sources) {
        if (kind == SourceKind::Mtp) {
            head = make_mtp(options, target);
        } else if (kind == SourceKind::Model) {
            set.models.push_back(make_draft_model(rows, options, target));
        } else if (kind == SourceKind::Retrieval) {
            view = std::make_unique<SelfDraftModel>(
                target.vocab, target.sampling,
                SelfDraftOptions{.max_nodes = model_nodes(options, target.vocab), .rows = rows});
        } else {
            add_table(set, kind, parts, options, target);
        }
    }
    // A head is one layer, cheaper than any draft model that is worth asking.
    set.head = head.get();
    if (head) set.models.insert(set.models.begin(), std::move(head));
    // The view source comes last: it is more expensive than any draft model, and models are in order of cost.
    set.view = view.get();
    if (view) set.models.push_back(std::move(view));
    return set;
}

}  // namespace slipstream::draft
