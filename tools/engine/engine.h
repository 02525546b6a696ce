// The engine: the one way in for the commands, and for a server. It opens a model, places it on devices, loads it and
// generates. Other folders include this header and no other of tools/engine (checked by tests/checks).
//
// One text:  OpenedModel -> TextGenerator, which places and loads the model -> start() or resume() -> generate().
// By parts:  OpenedModel -> PlacedModel -> Drafting, LoadedModel -> make_runner(), for benchmarks and plans.
// A model is moved from each type into the next, so a wrong order of its phases does not compile, and what is decided
// in one phase does not change in a later one. Drafting stands beside it: made for a placed model, attached to a loaded
// one. Nothing here refers to a request after it is answered: options are copied, and what callbacks refer to must
// outlive the object that was given them.
//
// The options are in engine_options.h, prompts as token ids in prompts.h, sessions in session.h and kept_prompt.h,
// figures in statistics.h, plans in planner.h and ways.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/attention.h"
#include "kernels/device.h"
#include "offload/trace_file.h"
#include "runtime/formats/model_files.h"
#include "runtime/loop/logprobs.h"
#include "runtime/loop/proposer.h"
#include "runtime/loop/text_generation.h"
#include "runtime/loop/verify.h"
#include "runtime/model/model_config.h"
#include "runtime/model/model_shard.h"
#include "runtime/model/weights.h"
#include "runtime/ranks/model_runner.h"
#include "tools/engine/engine_callbacks.h"
#include "tools/engine/engine_options.h"
#include "tools/engine/kept_expert_counts.h"
#include "tools/engine/kept_prompt.h"
#include "tools/engine/memory_plan.h"
#include "tools/engine/planner.h"
#include "tools/engine/prefix_store.h"
#include "tools/engine/prompts.h"
#include "tools/engine/sampling_choice.h"
#include "tools/engine/session.h"
#include "tools/engine/statistics.h"
#include "tools/engine/view_acceptance.h"
#include "tools/engine/ways.h"

namespace slipstream {

struct CpuFaults;
class Model;
class PinnedArena;
class SplitPlan;
struct KvPlacement;
struct WeightPlacement;

}  // namespace slipstream

namespace slipstream::tools {

/// A model whose files are open. References to files() and config() stay valid when it is moved.
class OpenedModel {
public:
    /// Opens the model's files. Throws what ModelFiles::open() throws.
    explicit OpenedModel(std::filesystem::path path);
    /// Takes over `files`, which are open already; `path` names them in messages.
    OpenedModel(std::filesystem::path path, std::unique_ptr<ModelFiles> files)
        : path_(std::move(path)), files_(std::move(files)) {}

    [[nodiscard]] const std::filesystem::path& path() const { return path_; }
    [[nodiscard]] const ModelFiles& files() const { return *files_; }
    [[nodiscard]] const ModelConfig& config() const { return files_->config(); }
    /// Throws OutOfBudget if the files and a KV cache of that many tokens do not fit into this machine's memory.
    void check_host_memory(std::int64_t context_tokens) const;

private:
    std::filesystem::path path_;
    std::unique_ptr<ModelFiles> files_;
};

/// A device that computes the model, or a part of it.
struct EngineDevice {
    DeviceChoice choice{};
    std::shared_ptr<Device> device;              // with the drafting for the model
    double throttled_link_bytes_per_second = 0;  // 0: not throttled
};

/// An opened model with the devices that compute it, the context that it serves, and the shard of each device.
class PlacedModel : public OpenedModel {
public:
    /// Chooses the context, makes the devices, and decides the shard of each; reports what was decided. The split
    /// follows from model, devices and options only, never from the draft sources. Throws RequestError if the model
    /// cannot be split so. The devices keep copies of `callbacks`, and poll callbacks.cancel: what those refer to must
    /// outlive this model and what is loaded of it.
    PlacedModel(OpenedModel&& opened, const ComputeOptions& options, const EngineCallbacks& callbacks);
    PlacedModel(PlacedModel&& placed, const ComputeOptions& options, const EngineCallbacks& callbacks) = delete;
    PlacedModel(PlacedModel&&) noexcept;
    ~PlacedModel();

    [[nodiscard]] const ModelWeights& weights() const { return *weights_; }  // views into files()
    [[nodiscard]] std::int64_t context_tokens() const { return context_tokens_; }
    [[nodiscard]] DType kv_dtype() const { return kv_dtype_; }
    /// Returns the layout of the KV of each layer of the whole model.
    [[nodiscard]] std::vector<KvLayout> kv_layouts() const { return config().kv_layouts(kv_dtype_); }
    [[nodiscard]] const OffloadOptions& offload() const { return offload_; }

    [[nodiscard]] std::span<const EngineDevice> devices() const { return devices_; }
    /// Returns the first device, on which draft models run.
    [[nodiscard]] Device& device() const { return *devices_.front().device; }
    [[nodiscard]] DeviceForms device_forms() const;
    /// Returns the number of threads of all CPU devices together.
    [[nodiscard]] int n_threads() const { return n_threads_; }
    /// Returns the number of threads of each CPU device: all if the devices compute in turn, else the device's part.
    [[nodiscard]] int device_threads() const { return device_threads_; }
    [[nodiscard]] const std::optional<std::filesystem::path>& tables_folder() const { return tables_folder_; }
    [[nodiscard]] const RatesOptions& rates_options() const { return rates_options_; }
    /// Returns the callbacks that the constructor was given.
    [[nodiscard]] const EngineCallbacks& callbacks() const { return callbacks_; }
    /// Returns whether the device memory is planned: then drafting and the workspace are made before the weights are
    /// loaded, and the plan counts what is made after them.
    [[nodiscard]] bool budgeted() const { return budgeted_; }

    [[nodiscard]] SplitKind split() const { return split_; }
    /// Returns the shards, [devices]; empty if one device has the whole model.
    [[nodiscard]] const std::vector<ModelShard>& shards() const { return shards_; }
    /// Returns whether every device has a part of each matrix (--split tensor on several devices).
    [[nodiscard]] bool shards_matrices() const { return devices_.size() > 1 && split_ == SplitKind::Tensor; }
    /// Returns the config of the device's shard; that of the model if one device has all of it.
    [[nodiscard]] ModelConfig shard_config(std::size_t device) const;

    /// Returns what happens to needed experts that a device lacks (tools::expert_misses()).
    [[nodiscard]] ExpertMisses expert_misses(std::size_t device) const;

    /// Returns the rates of a device, rounded by steady_rates(): kept ones, or measured ones at the first call
    /// (kept_rates.h). Must not be called by several threads at the same time.
    [[nodiscard]] const MachineRates& rates(std::size_t device) const;
    /// Returns the rates of all of the host's cores that computing may use, whatever the devices are.
    [[nodiscard]] PassRates host_rates() const;
    /// Sets known rates, so that none are measured.
    void set_rates(std::size_t device, const MachineRates& rates) { rates_[device] = rates; }

private:
    void make_devices(const ComputeOptions& options, const EngineCallbacks& callbacks);
    void choose_shards(const EngineCallbacks& callbacks);
    [[nodiscard]] std::vector<std::int64_t> chosen_parts(std::string& why) const;
    void check_experts() const;
    [[nodiscard]] std::vector<std::int64_t> planned_parts() const;
    [[nodiscard]] DeviceTraits traits(std::size_t device) const;
    [[nodiscard]] bool devices_are_alike() const;
    [[nodiscard]] std::string split_key() const;
    [[nodiscard]] RateQuestion rate_question(int n_threads, Device* card) const;

    std::unique_ptr<const ModelWeights> weights_;
    std::int64_t context_tokens_ = 0;
    DType kv_dtype_ = DType::F16;
    OffloadOptions offload_;
    std::optional<std::filesystem::path> tables_folder_;
    RatesOptions rates_options_;
    EngineCallbacks callbacks_;
    int n_threads_ = 1;
    int device_threads_ = 1;
    std::unique_ptr<CpuFaults> faults_;  // declared before devices_, whose links poll it
    std::vector<EngineDevice> devices_;
    mutable std::vector<std::optional<MachineRates>> rates_;  // [devices]
    bool budgeted_ = false;
    SplitKind split_ = SplitKind::Layers;
    std::vector<ModelShard> shards_;
};

/// A model that is ready to compute: placed, with its weights loaded.
class LoadedModel : public PlacedModel {
public:
    /// Plans what stays on each device, beside what the device holds already and what `needs` requires, and loads the
    /// weights. What `callbacks` refer to must outlive this object. Throws Interrupted, OutOfBudget.
    LoadedModel(PlacedModel&& placed, const RunNeeds& needs, const EngineCallbacks& callbacks);
    LoadedModel(LoadedModel&& loaded, const RunNeeds& needs, const EngineCallbacks& callbacks) = delete;
    LoadedModel(LoadedModel&&) noexcept;
    /// Calls report_lock_refusal(), since host memory is also allocated while a text grows.
    ~LoadedModel();

    /// Returns the loaded models, [devices], each with the shard of its device.
    [[nodiscard]] std::span<const std::unique_ptr<Model>> models() const { return models_; }
    /// The model if one device has all of it; null if several devices share it.
    [[nodiscard]] const Model* whole_model() const { return models_.size() == 1 ? models_.front().get() : nullptr; }
    /// Returns the residency plan of all devices; null for a single CPU without a memory budget.
    [[nodiscard]] const SplitPlan* plan() const { return plan_.get(); }
    /// Returns the line that says why experts have no slots, as PlanWithin::fixed_note.
    [[nodiscard]] const std::string& fixed_experts_note() const { return fixed_experts_note_; }
    /// Returns the file of what the model's texts chose of its experts; null if there is none: the model has no
    /// experts, or there is no folder of tables.
    [[nodiscard]] const KeptExpertCounts* kept_expert_counts() const {
        return kept_expert_counts_ ? &*kept_expert_counts_ : nullptr;
    }
    /// Returns what the file said when the model was loaded, as KeptExpertCounts::read(). Plans follow it.
    [[nodiscard]] std::span<const ExpertCountsOfLayer> expert_counts() const { return expert_counts_; }
    /// Returns the memory of each device by purpose, [devices]; empty if there is no plan.
    [[nodiscard]] const std::vector<DeviceMemory>& device_memory() const { return device_memory_; }
    /// Returns the host memory of what streams, and of hidden states between several devices; null on one device if
    /// nothing streams.
    [[nodiscard]] PinnedArena* arena() const { return arena_.get(); }
    /// Returns where the KV cache of a text of the planned length is: how many KV chunks of each layer are resident on
    /// that device; the others stream.
    [[nodiscard]] KvPlacement kv_placement(std::size_t device) const;
    /// Returns the bytes of the transfer ring of that device; 0 if nothing streams there.
    [[nodiscard]] std::size_t ring_bytes(std::size_t device) const;
    [[nodiscard]] bool streams() const;
    [[nodiscard]] double load_seconds() const { return load_seconds_; }
    /// Reports a note, once, if the system has refused to lock host memory.
    void report_lock_refusal() const;

private:
    void make_plan(const RunNeeds& needs);
    void look_for_a_faster_way(const PlacementRequest& request);
    [[nodiscard]] WeightPlacement weight_placement(std::size_t device) const;
    void load_weights(const EngineCallbacks& callbacks);
    void report(const EngineCallbacks& callbacks) const;

    std::unique_ptr<SplitPlan> plan_;
    std::vector<DeviceMemory> device_memory_;
    std::string fixed_experts_note_;  // as PlanWithin::fixed_note
    std::optional<KeptExpertCounts> kept_expert_counts_;
    std::vector<ExpertCountsOfLayer> expert_counts_;  // [layers], or empty
    std::optional<std::string> faster_way_;  // note for the user if another way to run the model is much faster
    std::unique_ptr<PinnedArena> arena_;
    std::vector<std::unique_ptr<Model>> models_;
    double load_seconds_ = 0.0;
    mutable bool refusal_reported_ = false;
};

/// Makes the runner of a loaded model: the shards of the devices, the sums between them, and the planned residency.
/// `model` must outlive the runner; if it is budgeted, it must have been loaded for `needs`. Reports a note if the
/// system refused to lock host memory. Throws OutOfBudget.
[[nodiscard]] std::unique_ptr<ModelRunner> make_runner(const LoadedModel& model, const RunNeeds& needs,
                                                       const EngineCallbacks& callbacks);

struct EngineDraftModel;
struct EngineHead;

/// The proposer of one loop, with its learnt state. Drafting makes it.
class EngineDrafter {
public:
    /// All arguments, and what the callbacks refer to, must outlive this object; `draft_model` and `head` may be null.
    /// `target_model` is the whole target; null if it is not loaded yet or is split: tables that are computed from it
    /// must then be on disk. Of `auto`, sources that cannot be used here, or would cost more than they can gain, are
    /// left out and reported as details. May build tables. Throws Interrupted, and what make_drafter() throws.
    EngineDrafter(const DraftSettings& draft, const PlacedModel& target, const Model* target_model,
                  const EngineDraftModel* draft_model, const EngineHead* head, const SamplerOptions& sampling,
                  const EngineCallbacks& callbacks);

    [[nodiscard]] Proposer& proposer();
    /// Returns the most nodes of a pass, for the loop; 1 if there are no sources.
    [[nodiscard]] std::int64_t budget() const { return drafter_ ? budget_ : 1; }
    /// Makes the verifier of the rule in the draft settings. `sampler` and this object must outlive it.
    [[nodiscard]] std::unique_ptr<Verifier> make_verifier(Sampler& sampler) const;
    /// Call when the target is loaded: draft tokens are weighed by the planned time of its passes.
    void plan_passes(const LoadedModel& target);
    /// Returns what the target must provide for the KV view over which it drafts; no value if no source needs one.
    [[nodiscard]] std::optional<ViewNeeds> view_needs() const;
    /// Gives the drafter the passes over the KV view of view_needs(). Both arguments must outlive this object.
    void attach_view(const LoadedModel& target, ViewPasses& passes);
    /// Returns whether a source reads the target's hidden states, which attach_hidden() gives it. `tail` must outlive
    /// this object.
    [[nodiscard]] bool needs_hidden() const;
    void attach_hidden(const HiddenTail& tail);
    /// Call if the MTP head has no LM head that it can use: the source `mtp` proposes nothing from now on, which is
    /// noted. Throws OutOfBudget if it was requested by name.
    void drop_head();
    /// Returns the bytes of page-locked host memory that the passes of its MTP head take; 0: none.
    [[nodiscard]] std::size_t head_pass_bytes() const { return head_pass_bytes_; }
    [[nodiscard]] std::vector<draft::SourceFigures> figures() const;
    /// Returns the sources that proposed a node of the last tree, bit i for the i-th of figures(); 0 for node 0 and
    /// without sources (draft::Drafter::sources_of()).
    [[nodiscard]] std::uint32_t sources_of(TreeNode node);
    /// Forgets what the draft sources have learnt from texts.
    void reset();
    /// Drafts for these sampling options of the target from now on (Drafter::set_sampling()).
    void resample(const SamplerOptions& sampling);
    /// Saves what was learnt in the folder of --tables. A failure is only a note, since the text is complete.
    void save() const;
    /// Reports as a detail how often drafting paused and why; nothing if it never did.
    void report_backoff() const;

private:
    VerifyRule verify_;
    bool automatic_;
    std::int64_t budget_;
    std::size_t head_pass_bytes_ = 0;
    EngineCallbacks callbacks_;
    NoProposer nothing_;
    draft::DraftOptions made_with_;
    std::int64_t vocab_;
    std::unique_ptr<draft::Drafter> drafter_;  // null: plain decoding
};

/// Drafting for one target: every choice that `auto` leaves open is made, the draft model is loaded, and each list of
/// sources has its drafter. If the target is budgeted, drafting is made before the weights are loaded, so that the plan
/// uses what it leaves.
class Drafting {
public:
    /// Makes a drafter for each of `lists`; they share one draft model, the first that a list asks for, and one head.
    /// Reports what was chosen. `target` and what the callbacks refer to must outlive this object, but a placed target
    /// may be moved into a loaded one. `whole_model` is LoadedModel::whole_model(); null before the target is loaded.
    /// Throws what loading a draft model and making drafters throw, and OutOfBudget if a given tree budget does not fit
    /// although the target without drafting would.
    Drafting(std::span<const DraftSettings> lists, const PlacedModel& target, const Model* whole_model,
             const SamplerOptions& sampling, const EngineCallbacks& callbacks, CheckPasses check = CheckPasses::No);
    Drafting(Drafting&&) noexcept;
    ~Drafting();

    /// Returns the drafter of the i-th list.
    [[nodiscard]] EngineDrafter& drafter(std::size_t i = 0) { return *drafters_[i]; }
    [[nodiscard]] const EngineDrafter& drafter(std::size_t i = 0) const { return *drafters_[i]; }
    /// Returns the most nodes of a pass with any of the drafters.
    [[nodiscard]] std::int64_t budget() const;
    /// Returns what passes with any of the drafters need, for sequences of up to `text_tokens` tokens (0: the whole
    /// context).
    [[nodiscard]] RunNeeds needs(std::int64_t text_tokens, CheckPasses check = CheckPasses::No) const;
    /// Returns what earlier texts taught of KV views when this object was made; nothing if no list uses it.
    [[nodiscard]] const ViewAcceptance& view_acceptance() const { return view_acceptance_; }
    /// Returns whether its MTP head will use the LM head of the target, all of which must then stay on the device.
    [[nodiscard]] bool shares_lm_head() const;
    /// Call when the target is loaded and has its runner, which was made for needs(): the drafters get the planned time
    /// of its passes, and the passes over its KV view; its MTP head gets its LM head and hidden states. Both arguments
    /// must outlive this object. If the LM head, which was planned to stay on the device, does not, drops the MTP head
    /// (EngineDrafter::drop_head()).
    void attach(const LoadedModel& target, ModelRunner& runner);

private:
    // Devices outlive what is allocated on them, also if loading the target throws.
    std::vector<std::shared_ptr<Device>> devices_;
    std::unique_ptr<EngineDraftModel> model_;  // null: no list uses one
    std::unique_ptr<EngineHead> head_;         // null: no list uses it
    std::vector<std::unique_ptr<EngineDrafter>> drafters_;
    ViewAcceptance view_acceptance_;
};

/// Returns the bytes of host memory for hidden states of `target` that its MTP head reads, if a drafter of `draft`
/// would have one; else 0. Loads nothing. Throws what choosing the sources throws.
[[nodiscard]] std::size_t hidden_tail_bytes(const DraftSettings& draft, const PlacedModel& target,
                                            const EngineCallbacks& callbacks);

struct GeneratorOptions {
    ComputeOptions compute;
    DraftSettings draft;
    CheckPasses check = CheckPasses::No;
    std::optional<std::int64_t> prompt_tokens{};  // if known: too long a prompt is refused before loading
    // --kept-memory: most bytes of host memory for the KV, and states of recurrent layers, of earlier texts, besides
    // the last one; 0: only the last one is reused. No value: what the host has left when the model is loaded, at most
    // 4 GiB.
    std::optional<std::size_t> kept_memory = 0;
};

/// Turns prompts into texts: a loaded model, its drafting, its KV cache, the sampler, and one live sequence.
class TextGenerator {
public:
    /// Places and loads `opened`. Throws what placing and loading throw, and RequestError if the prompt is too long or
    /// a logit bias is for an unknown token. What `callbacks` refer to must outlive this object.
    TextGenerator(const GeneratorOptions& options, OpenedModel opened, const SamplerOptions& sampling,
                  std::vector<TokenId> end_tokens, const EngineCallbacks& callbacks);
    TextGenerator(TextGenerator&&) noexcept;
    ~TextGenerator();

    [[nodiscard]] const LoadedModel& model() const;
    /// Returns the end tokens; any of them ends a text.
    [[nodiscard]] const std::vector<TokenId>& end_tokens() const;
    /// Returns the live sequence: prompt and generated tokens, and the KV cache.
    [[nodiscard]] Sequence& sequence();
    [[nodiscard]] const Sequence& sequence() const;

    /// Starts a sequence with `prompt`, which must not be empty. Reuses the KV of the longest prefix that it shares
    /// with the previous sequence or an earlier one that is kept, and returns its length in tokens. Throws RequestError
    /// if the prompt leaves no room in the context.
    std::int64_t start(std::vector<TokenId> prompt);
    /// Starts or continues a sequence of which the first `n_prompt` tokens are the prompt and an earlier run generated
    /// the others, if there are any. The KV cache may hold a part of it, read from a session. Reuses nothing else.
    void resume(std::vector<TokenId> tokens, std::int64_t n_prompt);
    /// Generates from the end of the sequence (generate_text()). `start` tells whether the text begins there or
    /// continues the prompt.
    [[nodiscard]] TextGenerationResult generate(const Tokenizer& tokenizer, StreamingDetokenizer::Start start,
                                                const TextGenerationOptions& options,
                                                const TextGenerationCallbacks& callbacks);

    /// Records copies, waits, stages of passes and the parts of each step in `trace` from now on. `trace` must outlive
    /// this object. Must be called before start() and resume().
    void trace_with(TraceFile& trace);

    /// Samples by other options from now on; learnt and cached state stays. The next text must be started or resumed
    /// before generate(). Throws RequestError if an option is out of range; nothing has changed then.
    void resample(const SamplerOptions& sampling);
    /// Returns how much KV of earlier texts is kept, and how often it was reused.
    [[nodiscard]] KeptFigures kept() const;
    /// From now on, appends the log probabilities of committed tokens to `record`, which must live until the next call
    /// of this function. Null: records none.
    void record_logprobs(LogprobRecord* record);
    /// Returns the tokens that each source has offered and that were accepted since the start.
    [[nodiscard]] SourceTotals sources() const;
    /// From now on, calls `on_pass` after each pass that committed tokens (GenerationLoop::report_passes()); empty:
    /// calls nothing. Inside on_pass, sources_of() returns the sources of each node. It must not throw.
    void report_passes(std::function<void(const Observation&)> on_pass);
    /// Returns the sources that proposed a node of the running pass's tree, bit i for the i-th of sources().
    [[nodiscard]] std::uint32_t sources_of(TreeNode node);
    /// Returns the figures of the link to each device; empty if nothing streams. With several devices, call between
    /// passes only: the threads of a running pass change the figures.
    [[nodiscard]] std::vector<LinkFigures> links() const;
    /// From now on, saves prompts that go layer by layer in `checkpoints`, and goes on with what is saved there of the
    /// next prompt; null: saves none. It must outlive this object or be replaced (GenerationLoop::save_prompts()).
    void save_prompts(PromptCheckpoints* checkpoints);
    /// Separates the streaming figures of the prompt from those of decoding: call before decoding begins.
    void start_clock();
    /// Saves what drafting has learnt, what the target accepted of drafts over a view, and what the texts chose of
    /// experts, as complete() does; for long runs.
    void keep_tables() const;
    /// Call at the end of the run: calls keep_tables(), reports its back-off as a detail, and fills
    /// `figures`.
    void complete(RunFigures& figures) const;

private:
    [[nodiscard]] std::optional<ViewTotals> view_totals() const;
    [[nodiscard]] SourceTotal view_drafting() const;
    void learn_view_acceptance(const SourceTotal& before);

    struct Parts;
    std::unique_ptr<Parts> parts_;
};

/// Returns the tokens that end a text: those of the model's files, and those that the vocabulary names (</s>,
/// <|eot_id|>, ...), each once.
[[nodiscard]] std::vector<TokenId> all_end_tokens(const GenerationDefaults& defaults, const Tokenizer& tokenizer);
/// Throws FormatError if a token is not in the model's vocabulary.
void check_tokens(std::span<const TokenId> tokens, const ModelConfig& config);

}  // namespace slipstream::tools
