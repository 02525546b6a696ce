#include "tools/engine/engine.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/base/error.h"
#include "kernels/cpu_faults.h"
#include "kernels/cuda/host/cuda_device.h"
#include "runtime/formats/ignored_tensors.h"
#include "runtime/formats/model_fingerprint.h"
#include "runtime/model/weight_items.h"
#include "runtime/plan/split_plan.h"
#include "runtime/ranks/model_split.h"
#include "tools/base/amounts.h"
#include "tools/base/kv_type_option.h"
#include "tools/engine/context_choice.h"
#include "tools/engine/kept_rates.h"
#include "tools/engine/kept_splits.h"
#include "tools/machine/host.h"
#include "tools/machine/tokenizer_files.h"

namespace slipstream::tools {

namespace {

// Compute capability, times ten, of the GPUs on which the whole of cuda_card_tests has passed (tests/gpu_reports).
constexpr int kTestedCapability = 90;

}  // namespace

OpenedModel::OpenedModel(std::filesystem::path path) : path_(std::move(path)), files_(ModelFiles::open(path_)) {}

void OpenedModel::check_host_memory(std::int64_t context_tokens) const {
    static_cast<void>(
        choose_context(config(), config().kv_dtype, context_tokens, files_->total_bytes(), host_memory()));
}

PlacedModel::PlacedModel(OpenedModel&& opened, const ComputeOptions& options, const EngineCallbacks& callbacks)
    : OpenedModel(std::move(opened)),
      offload_(options.offload),
      tables_folder_(options.tables_folder),
      rates_options_(options.rates),
      callbacks_(callbacks),
      n_threads_(options.n_threads) {
    kv_dtype_ = options.kv_dtype.value_or(config().kv_dtype);
    const ContextChoice choice =
        choose_context(config(), kv_dtype_, options.context_tokens, files().total_bytes(),
                       options.host_memory == HostMemoryCheck::Yes ? host_memory() : HostMemory{});
    context_tokens_ = choice.tokens;
    if (const auto note = pre_tokenizer_note(files().tokenizer_source())) callbacks.note(*note);
    if (choice.reduced) callbacks.note(reduction_note(config(), choice.tokens));
    if (choice.tokens > config().context_tokens)
        callbacks.note(fmt::format("the model was made for {}; with --ctx {} quality may drop beyond them",
                                   counted(config().context_tokens, "token"), choice.tokens));
    make_devices(options, callbacks);
    check_experts();
    if (kv_dtype_ == DType::Q8_0)
        callbacks.note("--kv-type q8 rounds keys and values to 8 bits, which changes the output a little");
    callbacks.choice("ctx", fmt::format("{}", choice.tokens),
                     choice.reduced ? "what fits into memory" : "the model's own");
    callbacks.choice("kv-type", kv_type_option(kv_dtype_), "the model's own");
    weights_ = std::make_unique<const ModelWeights>(files().weights());
    if (const std::string ignored = describe_ignored_tensors(files()); !ignored.empty())
        callbacks.note(fmt::format("these tensors of the model's files are not used: {}", ignored));
    for (const EngineDevice& each : devices_) check_kernels(*weights_, each.device->kind());
    choose_shards(callbacks);
}

PlacedModel::PlacedModel(PlacedModel&&) noexcept = default;
PlacedModel::~PlacedModel() = default;

ExpertMisses PlacedModel::expert_misses(std::size_t device) const {
    return tools::expert_misses(devices_[device].device->kind(), offload_.experts);
}

// Refuses --experts for a model that has none, and says what it does on each device.
void PlacedModel::check_experts() const {
    if (!config().has_experts()) {
        if (offload_.experts_demanded.empty()) return;
        throw RequestError(
            fmt::format("{}: {} has no experts; leave it out", offload_.experts_demanded, path().string()));
    }
    if (!budgeted_) return;
    for (std::size_t i = 0; i < devices_.size(); ++i)
        callbacks_.detail(expert_misses(i) == ExpertMisses::Cpu
                              ? fmt::format("experts that {} lacks are computed from host memory, by the same cores",
                                            devices_[i].choice.name())
                              : fmt::format("experts that {} lacks are copied", devices_[i].choice.name()));
}

DeviceForms PlacedModel::device_forms() const {
    std::vector<DeviceChoice> choices;
    for (const EngineDevice& each : devices_) choices.push_back(each.choice);
    return tools::device_forms(choices);
}

ModelConfig PlacedModel::shard_config(std::size_t device) const {
    return shards_.empty() ? config() : slipstream::shard_config(config(), shards_[device]);
}

const MachineRates& PlacedModel::rates(std::size_t device) const {
    std::optional<MachineRates>& known = rates_[device];
    if (known) return *known;
    const EngineDevice& asked = devices_[device];
    for (std::size_t i = 0; i < devices_.size(); ++i)
        if (rates_[i] && !devices_[i].choice.card && !asked.choice.card) known = rates_[i];
    if (known) return *known;
    Device* card = asked.device->kind() == DeviceKind::Cuda ? asked.device.get() : nullptr;
    // CPU devices that share matrices compute at the same time, on shared cores and memory bandwidth.
    const std::size_t at_once = shards_matrices() && card == nullptr ? devices_.size() : 1;
    known = machine_rates(rate_question(device_threads_ * static_cast<int>(at_once), card), rates_options_, callbacks_)
                .shared_by(at_once);
    return *known;
}

PassRates PlacedModel::host_rates() const {
    for (std::size_t i = 0; i < devices_.size(); ++i)
        if (rates_[i] && !devices_[i].choice.card && device_threads_ == n_threads_) return rates_[i]->rates;
    return machine_rates(rate_question(n_threads_, nullptr), rates_options_, callbacks_).rates;
}

RateQuestion PlacedModel::rate_question(int n_threads, Device* card) const {
    return {.config = &config(), .weights = &weights(), .kv_dtype = kv_dtype_, .n_threads = n_threads, .card = card};
}

void PlacedModel::make_devices(const ComputeOptions& options, const EngineCallbacks& callbacks) {
    std::string names;
    faults_ = std::make_unique<CpuFaults>();
    faults_->stop = callbacks.cancel;
    split_ = options.offload.split.value_or(SplitKind::Layers);
    device_threads_ = tools::device_threads(options.n_threads, options.devices.size(), split_);
    for (std::size_t i = 0; i < options.devices.size(); ++i) {
        const DeviceChoice& choice = options.devices[i];
        const DeviceLimits limits = options.offload.limits(i);
        devices_.push_back(
            {.choice = choice,
             .device = make_compute_device(
                 choice, {.n_threads = device_threads_,
                          .limits = limits,
                          .number = options.devices.size() > 1 ? static_cast<int>(i) + 1 : 0,
                          .on_announcement = [callbacks](std::string_view line) { callbacks.note(line); },
                          .faults = faults_.get()}),
             .throttled_link_bytes_per_second = limits.link_bytes_per_second});
        const Device& device = *devices_.back().device;
        if (const auto* card = dynamic_cast<const CudaDevice*>(&device)) {
            callbacks.note(fmt::format("{} computes ({}){}", choice.name(), device.instruction_form(),
                                       card->properties().sm == kTestedCapability
                                           ? ""
                                           : "; this backend has run on GPUs of compute capability 9.0 only so far: "
                                             "if a text looks wrong, compare --devices cpu"));
            if (!card->no_blas().empty()) callbacks.note(card->no_blas());
        }
        names += fmt::format("{}{}", names.empty() ? "" : ",", choice.name());
    }
    rates_.resize(devices_.size());
    budgeted_ = devices_.size() > 1 || device().budget().limit_bytes() != Budget::kUnlimited;
    callbacks.choice("devices", names, options.devices.front().why);
    callbacks.choice("threads", fmt::format("{}", options.n_threads),
                     "physical cores, or what the control group allows");
}

// Returns everything that a planned split depends on, except measured rates, as one line of text.
std::string PlacedModel::split_key() const {
    std::string key = split_ == SplitKind::Layers ? "" : fmt::format("{} ", split_name(split_));
    key += fmt::format("{:016x} ctx {} threads {} kv {} expect {} ring {}", model_fingerprint(files()), context_tokens_,
                       device_threads_, kv_type_name(kv_dtype_), offload_.expect_tokens.value_or(1),
                       offload_.ring.value_or(0));
    for (std::size_t i = 0; i < devices_.size(); ++i) {
        const DeviceLimits limits = offload_.limits(i);
        key += fmt::format(", {} {} memory {} link {}", devices_[i].choice.name(), devices_[i].choice.form,
                           limits.memory_bytes ? fmt::format("{}", *limits.memory_bytes) : "-",
                           limits.link_bytes_per_second);
    }
    return key;
}

// Returns the layers or kv heads of each device, planned by this machine's rates for decoding without drafting: draft
// sources never change the split.
std::vector<std::int64_t> PlacedModel::planned_parts() const {
    PlacementRequest request = placement_request(*this, {.needs = generation_needs(1, 0, CheckPasses::No),
                                                         .ring_bytes = offload_.ring,
                                                         .pass_tokens = offload_.expect_tokens.value_or(1),
                                                         .timed = true});
    // Where the split decides bits, it must not depend on --experts.
    if (!device_forms().is_one)
        for (PlannedDevice& device : request.devices) device.misses = ExpertMisses::Copy;
    return choose_parts(split_plan_request(request), devices_.size());
}

DeviceTraits PlacedModel::traits(std::size_t device) const {
    const auto* card = dynamic_cast<const CudaDevice*>(devices_[device].device.get());
    DeviceTraits traits{.form = devices_[device].choice.form, .limits = offload_.limits(device)};
    if (card != nullptr) {
        traits.card = card->properties().name;
        traits.card_bytes = card->properties().memory_bytes;
    }
    return traits;
}

// Returns whether the devices are alike (are_alike()).
bool PlacedModel::devices_are_alike() const {
    std::vector<DeviceTraits> all;
    for (std::size_t i = 0; i < devices_.size(); ++i) all.push_back(traits(i));
    return are_alike(all);
}

// Returns the layers or kv heads of each device. A split of layers between devices of one kind changes no bit, and is
// planned at each start. Equal devices that share matrices get even parts. Other splits are planned once and kept.
// `why` becomes the reason, unless the user gave the shares.
std::vector<std::int64_t> PlacedModel::chosen_parts(std::string& why) const {
    if (!offload_.shares.empty()) return parts_by_share(split_, config(), weights(), offload_.shares);
    const bool is_tensor = split_ == SplitKind::Tensor;
    if (is_tensor && devices_are_alike()) {
        why = "even: the devices are alike";
        return even_parts(split_, config(), weights(), devices_.size());
    }
    why = "planned: the least time for a pass";
    if (!is_tensor && device_forms().is_one) return planned_parts();
    if (!tables_folder_)
        throw RequestError(fmt::format(
            "{}: a split over {} is kept beside the tables, so that texts stay the same, and there is no such "
            "folder; name one by --tables, or give --shares {}",
            offload_.split_where.empty() ? "--devices" : offload_.split_where,
            is_tensor ? "unequal devices, of matrices," : "devices of several kinds",
            fmt::join(even_parts(split_, config(), weights(), devices_.size()), ",")));
    const std::string key = split_key();
    const std::int64_t n = n_parts(split_, config());
    if (const auto kept = kept_split(*tables_folder_, key, devices_.size(), n)) {
        why = "planned before, and kept";
        return *kept;
    }
    return keep_split(*tables_folder_, key, planned_parts());
}

// Sets shards_, one for each device; leaves it empty if there is one device. Throws RequestError if the model cannot be
// split so.
void PlacedModel::choose_shards(const EngineCallbacks& callbacks) {
    if (devices_.size() == 1) return;
    std::string why;
    try {
        const std::vector<std::int64_t> parts = chosen_parts(why);
        shards_ = deal_parts(split_, config(), weights(), parts);
        callbacks.choice("shares", fmt::format("{} {}s", fmt::join(parts, ","), part_name(split_)), why);
    } catch (const Unsupported& error) {
        const std::string& where = offload_.shares_where.empty() ? offload_.split_where : offload_.shares_where;
        throw RequestError(fmt::format("{}: {}", where.empty() ? "--devices" : where, error.what()));
    }
}

}  // namespace slipstream::tools
