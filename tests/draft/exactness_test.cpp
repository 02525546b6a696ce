// Drafter-invariant sampling (E2) on real models: whatever guesses, the tokens are those of plain
// decoding. Every source alone, every named tree, and all sources merged under budgets from 1 to 512, greedily and at
// three temperatures with top-p and a repetition penalty, on prompts of many kinds; logits compared bit for bit in
// part of the runs (E1, the self-check).
//
// SLIPSTREAM_EXACTNESS_STRIDE: of all pairs of prompt and setting, every so many are run; 1 is the whole matrix, which
// has an executable of its own, labelled slow.
#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "draft/drafter.h"
#include "draft/models/draft_vocabulary.h"
#include "draft/models/mtp_source.h"
#include "draft/tables/corpus_builder.h"
#include "draft/tables/frozen_table_builder.h"
#include "kernels/cpu_device.h"
#include "runtime/formats/model_fingerprint.h"
#include "runtime/loop/generation_loop.h"
#include "runtime/loop/loop_needs.h"
#include "runtime/ranks/rank_target.h"
#include "runtime/text/tokenizer/tokenizer.h"
#include "tests/support/device_self_check.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_head.h"

#ifndef SLIPSTREAM_EXACTNESS_STRIDE
#error "SLIPSTREAM_EXACTNESS_STRIDE is not defined"
#endif

namespace slipstream::draft {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kContext = 640;
constexpr std::int64_t kMaxBudget = 512;
constexpr std::size_t kStride = SLIPSTREAM_EXACTNESS_STRIDE;
constexpr std::size_t kPromptTokens = kStride == 1 ? 96 : 48;  // at most
constexpr std::int64_t kNewTokens = kStride == 1 ? 32 : 24;
constexpr std::size_t kPromptsOfAFile = 15;
// A small part of each text, built anew again and again.
const ViewOptions kView{
    .budget_tokens = 24, .sink_tokens = 8, .recent_tokens = 8, .rebuild_tokens = 12, .growth_tokens = 32};

const std::string kDemo = SLIPSTREAM_SOURCE_DIR "/tools/demo_model/";
const std::string kData = SLIPSTREAM_SOURCE_DIR "/../shared/data/";

// The text fields of the first lines of a JSONL file.
void add_prompts(std::vector<std::string>& prompts, const std::string& file, const char* field) {
    std::ifstream lines(file);
    std::string line;
    for (std::size_t i = 0; i < kPromptsOfAFile && std::getline(lines, line); ++i) {
        const nlohmann::json value = nlohmann::json::parse(line).at(field);
        prompts.push_back(value.is_array() ? value.front().get<std::string>() : value.get<std::string>());
    }
}

std::vector<std::string> read_prompts() {
    std::vector<std::string> prompts{"", "Once upon a time", "the wolf the wolf the wolf the wolf",
                                     "1 2 3 4 5 1 2 3 4 5 1 2 3 4 5 1 2", "\n\n\"Who are you?\" said the"};
    for (const auto& entry : fs::directory_iterator(kDemo + "prompts")) {
        std::ifstream file(entry.path(), std::ios::binary);
        prompts.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
    std::sort(prompts.begin(), prompts.end());
    add_prompts(prompts, kData + "evals/HumanEval.jsonl", "prompt");
    add_prompts(prompts, kData + "evals/gsm8k_test.jsonl", "question");
    add_prompts(prompts, kData + "evals/mt_bench_question.jsonl", "turns");
    add_prompts(prompts, kData + "specbench/question.jsonl", "turns");
    return prompts;
}

// A model with everything that its sources need, loaded once for all tests.
struct Subject {
    std::unique_ptr<ModelFiles> files, draft_files;
    CpuDevice device{CpuDeviceOptions{.n_threads = 1}};
    std::unique_ptr<Model> model, draft_model;
    std::unique_ptr<TinyHead> head_source;  // random: no such model has a head
    std::unique_ptr<ProposingHead> head;
    std::unique_ptr<Tokenizer> tokenizer;
    std::vector<std::vector<TokenId>> prompts;
    std::uint64_t fingerprint = 0;
    TempFolder folder;  // tables out of the model, a frozen table, a corpus

    Subject(const std::string& path, const std::string& draft_path) {
        files = ModelFiles::open(path);
        model = std::make_unique<Model>(*files, device, LoadOptions{.context_tokens = kContext});
        head_source = std::make_unique<TinyHead>(*files);
        head = std::make_unique<ProposingHead>(*head_source, device, LoadOptions{.context_tokens = kContext},
                                               ProposingHead::LmHead::OfTarget);
        head->use_lm_head_of(*model);
        tokenizer = make_tokenizer(files->tokenizer_source());
        fingerprint = tokenizer_fingerprint(*tokenizer);
        if (!draft_path.empty()) {
            draft_files = ModelFiles::open(draft_path);
            check_draft_vocabulary(*files, *draft_files);
            draft_model = std::make_unique<Model>(*draft_files, device,
                                                  LoadOptions{.context_tokens = draft_files->config().context_tokens});
        }
        const std::vector<std::string> texts = read_prompts();
        for (const std::string& text : texts) {
            std::vector<TokenId>& prompt = prompts.emplace_back(tokenizer->encode(text, SpecialTokens::AsText));
            prompt.insert(prompt.begin(), tokenizer->bos_id().value());
            // Its end: instructions that repeat themselves stand there.
            if (prompt.size() > kPromptTokens)
                prompt.erase(prompt.begin() + 1, prompt.end() - static_cast<std::ptrdiff_t>(kPromptTokens) + 1);
        }
        build_stores(texts);
    }

    [[nodiscard]] std::string corpus() const { return (folder.path() / "corpus.table").string(); }
    [[nodiscard]] std::string frozen() const { return (folder.path() / "frozen.table").string(); }

private:
    void build_stores(const std::vector<std::string>& texts) const {
        const std::int64_t vocab = model->config().vocab;
        Documents documents(vocab);
        for (const std::string& text : texts) documents.add(tokenizer->encode(text, SpecialTokens::AsText));
        write_corpus(documents, fingerprint, corpus(), {});
        const BuiltFrozenTable table = build_frozen_table({}, documents, fingerprint, {});
        write_table_file(frozen(), {&table.section, 1});
    }
};

// Null where the model is not there.
const Subject* subject(const std::string& name) {
    static std::unique_ptr<Subject> demo, stories;
    if (name == "demo") {
        if (!demo) demo = std::make_unique<Subject>(kDemo + "target", kDemo + "draft");
        return demo.get();
    }
    if (!fs::exists(kData + "stories260K/hf")) return nullptr;
    if (!stories) stories = std::make_unique<Subject>(kData + "stories260K/hf", "");
    return stories.get();
}

struct Setting {
    std::string name;
    DraftOptions options;
};

// Every source alone, every named tree, all together under many budgets.
std::vector<Setting> all_settings(const Subject& subject) {
    std::vector<SourceKind> kinds;
    for (const SourceKind kind : all_sources())
        if (kind != SourceKind::Model || subject.draft_model) kinds.push_back(kind);
    const auto base = [&](std::vector<SourceKind> sources, std::int64_t budget) {
        DraftOptions options;
        options.sources = std::move(sources);
        options.max_budget = budget;
        options.adapt_budget = false;
        options.tables = subject.folder.path() / "tables";
        options.corpus = subject.corpus();
        return options;
    };
    std::vector<Setting> settings;
    for (const SourceKind kind : kinds) {
        settings.push_back({std::string(source_name(kind)), base({kind}, 110)});
        settings.push_back({fmt::format("{} merged", source_name(kind)), base({kind}, 24)});
        settings.back().options.shape = TreeShape::Merged;
        settings.push_back({fmt::format("{} chain", source_name(kind)), base({kind}, 24)});
        settings.back().options.shape = TreeShape::Chain;
        settings.back().options.gamma = 4;
    }
    const auto shaped = [&](const char* name, TreeShape shape, std::vector<SourceKind> sources) {
        settings.push_back({name, base(std::move(sources), 110)});
        settings.back().options.shape = shape;
        return &settings.back().options;
    };
    shaped("tree cacheback, frozen", TreeShape::Cacheback, {SourceKind::Cacheback})->frozen_table = subject.frozen();
    shaped("tree recycling", TreeShape::Recycling, {SourceKind::Recycling});
    shaped("tree ngrammys", TreeShape::NGrammys, {SourceKind::Context, SourceKind::Bigram, SourceKind::Unigram});
    shaped("tree chain", TreeShape::Chain, kinds);
    for (const std::int64_t budget : {1, 2, 3, 5, 8, 16, 33, 64, 96, 200, 512})
        settings.push_back({fmt::format("merged {}", budget), base(kinds, budget)});
    settings.push_back({"merged auto", base(kinds, 64)});
    settings.back().options.adapt_budget = true;
    settings.push_back({"merged blind", base(kinds, 48)});
    settings.back().options.noise_ranking = NoiseRanking::Blind;
    return settings;
}

// Plain decoding, or decoding with the guesses of `proposer`, `kNewTokens` tokens at most.
class Decoder {
public:
    Decoder(const Subject& subject, const SamplerOptions& sampling)
        : subject_(&subject),
          sampler_(sampling, subject.model->config().vocab),
          walk_(sampler_),
          cache_(subject.model->device(), subject.model->kv_layouts(), kContext,
                 SelfCheck::scratch_nodes_for(kMaxBudget)),
          view_(subject.model->device(), subject.model->kv_layouts(),
                {.n_slots = kView.slots(), .max_nodes = 2 * kMaxBudget}),
          view_builder_(cache_, view_, *subject.model, kView),
          forward_(*subject.model, forward_limits_for(kMaxBudget)),
          view_passes_(forward_, view_),
          tail_(subject.model->device(), subject.model->config().d_model, kHiddenRows, cache_.max_nodes()),
          self_check_(*subject.model, cache_) {}

    enum class Checked : std::uint8_t { No, Yes };
    std::vector<TokenId> run(Proposer& proposer, std::int64_t budget, const std::vector<TokenId>& prompt,
                             Checked checked) {
        cache_.truncate(0);
        proposer.observe({.text = {}, .n_new = 0});  // another text comes
        RankTarget target(forward_, cache_);
        view_builder_.restart();
        target.build_views_with({&view_builder_});
        target.keep_hidden_in(&tail_);
        Sequence sequence(target);
        GenerationLoop loop(sequence, walk_, proposer, {budget, subject_->tokenizer->end_tokens()});
        if (checked == Checked::Yes) loop.check_with(self_check_);
        loop.begin(prompt);
        const auto n_prompt = static_cast<std::int64_t>(prompt.size());
        const std::vector<TokenId> ends = subject_->tokenizer->end_tokens();
        for (;;) {
            const std::int64_t left = n_prompt + kNewTokens - static_cast<std::int64_t>(loop.text().size());
            if (left <= 0) break;
            const auto fresh = loop.step(left);
            if (fresh.empty()) break;
            ++n_passes;
            if (std::find(ends.begin(), ends.end(), fresh.back()) != ends.end()) break;
        }
        return {loop.text().begin() + n_prompt, loop.text().end()};
    }

    [[nodiscard]] ViewPasses& view() { return view_passes_; }
    [[nodiscard]] const HiddenTail& tail() const { return tail_; }
    std::int64_t n_passes = 0;

private:
    const Subject* subject_;
    Sampler sampler_;
    ExactVerifier walk_;
    KvCache cache_;
    KvView view_;
    ViewBuilder view_builder_;
    Forward forward_;
    ViewPasses view_passes_;
    HiddenTail tail_;
    DeviceSelfCheck self_check_;
};

// The whole matrix in parts, so that none takes long.
constexpr std::size_t kParts = kStride == 1 ? 6 : 1;

using Parameters = std::tuple<std::string, double, std::size_t>;  // model, temperature, part

class Exactness : public testing::TestWithParam<Parameters> {};

TEST_P(Exactness, GuessesNeverChangeTheTokens) {
    const auto& [name, temperature, part] = GetParam();
    const Subject* model = subject(name);
    if (model == nullptr) GTEST_SKIP() << "stories260K is not there: " << kData << "stories260K";
    SamplerOptions sampling{.temperature = temperature, .top_k = 0, .seed = 11};
    if (temperature > 0.0) {
        sampling.top_p = 0.95;
        sampling.repeat_penalty = 1.15;
    }
    Decoder decoder(*model, sampling);

    NoProposer nothing;
    std::vector<std::vector<TokenId>> plain;
    for (const std::vector<TokenId>& prompt : model->prompts)
        plain.push_back(decoder.run(nothing, 1, prompt, Decoder::Checked::No));

    std::size_t n_runs = 0;
    std::size_t n_tokens = 0;
    decoder.n_passes = 0;
    const std::vector<Setting> settings = all_settings(*model);
    for (std::size_t s = part; s < settings.size(); s += kParts) {
        const Setting& setting = settings[s];
        DraftContext target;
        target.vocab = model->model->config().vocab;
        target.sampling = sampling;
        target.files = model->files.get();
        target.tokenizer_fingerprint = model->fingerprint;
        target.model = model->model.get();
        target.draft_model = model->draft_model.get();
        target.head = model->head.get();
        const std::unique_ptr<Drafter> drafter = make_drafter(setting.options, target);
        drafter->attach_view(decoder.view(), {});
        drafter->attach_hidden(decoder.tail());
        for (std::size_t p = s % kStride; p < plain.size(); p += kStride) {
            SCOPED_TRACE(fmt::format("{}, prompt {}", setting.name, p));
            // Tables of earlier texts are as good as none.
            if (p % 2 == 0) drafter->reset();
            const auto checked = n_runs % 4 == 0 ? Decoder::Checked::Yes : Decoder::Checked::No;
            EXPECT_EQ(decoder.run(*drafter, setting.options.max_budget, model->prompts[p], checked), plain[p]);
            ++n_runs;
            n_tokens += plain[p].size();
        }
    }
    // Guesses were made, and some were right.
    EXPECT_LT(decoder.n_passes, static_cast<std::int64_t>(n_tokens));
    RecordProperty("runs", static_cast<int>(n_runs));
    fmt::print("{} at T = {}: {} settings, {} prompts, {} runs; {} tokens in {} passes\n", name, temperature,
               settings.size(), plain.size(), n_runs, n_tokens, decoder.n_passes);
}

INSTANTIATE_TEST_SUITE_P(Models, Exactness,
                         testing::Combine(testing::Values("demo", "stories260K"), testing::Values(0.0, 0.3, 0.8, 1.2),
                                          testing::Range<std::size_t>(0, kParts)),
                         [](const auto& test) {
                             return fmt::format("{}At{}Part{}", std::get<0>(test.param),
                                                static_cast<int>(std::get<1>(test.param) * 10 + 0.5),
                                                std::get<2>(test.param));
                         });

}  // namespace
}  // namespace slipstream::draft
