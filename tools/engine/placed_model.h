// A model before its weights are loaded: first opened, which is its files, then placed, which adds devices, context and
// the shard of each device. loaded_model.h has the third type. Each is moved into the next, so a wrong order of the
// phases does not compile, and what is decided in one phase does not change in a later one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cpu_faults.h"
#include "kernels/device.h"
#include "runtime/formats/model_files.h"
#include "runtime/model/model_config.h"
#include "runtime/model/model_shard.h"
#include "runtime/model/weights.h"
#include "tools/engine/engine_callbacks.h"
#include "tools/engine/engine_options.h"
#include "tools/engine/measured_rates.h"

namespace slipstream::tools {

/// A model whose files are open. References to files() and config() stay valid when it is moved.
class OpenedModel {
public:
    /// Throws as ModelFiles::open() does.
    explicit OpenedModel(std::filesystem::path path);
    /// Of files that are open already.
    OpenedModel(std::filesystem::path path, std::unique_ptr<ModelFiles> files)
        : path_(std::move(path)), files_(std::move(files)) {}

    [[nodiscard]] const std::filesystem::path& path() const { return path_; }
    [[nodiscard]] const ModelFiles& files() const { return *files_; }
    [[nodiscard]] const ModelConfig& config() const { return files_->config(); }

private:
    std::filesystem::path path_;
    std::unique_ptr<ModelFiles> files_;
};

/// A device that computes the model, or a part of it.
struct EngineDevice {
    DeviceChoice choice{};
    std::unique_ptr<Device> device;
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

    [[nodiscard]] const ModelWeights& weights() const { return *weights_; }  // views into files()
    [[nodiscard]] std::int64_t context_tokens() const { return context_tokens_; }
    [[nodiscard]] DType kv_dtype() const { return kv_dtype_; }
    /// KV shape of the whole model.
    [[nodiscard]] KvShape kv_shape() const { return {config().n_kv_heads, config().head_dim, kv_dtype_}; }
    [[nodiscard]] const OffloadOptions& offload() const { return offload_; }

    [[nodiscard]] std::span<const EngineDevice> devices() const { return devices_; }
    /// The first device, on which draft models run.
    [[nodiscard]] Device& device() const { return *devices_.front().device; }
    [[nodiscard]] DeviceForms device_forms() const;
    /// Threads of all CPU devices together.
    [[nodiscard]] int n_threads() const { return n_threads_; }
    /// Threads of each CPU device: all if the devices compute in turn, else the device's part of them.
    [[nodiscard]] int device_threads() const { return device_threads_; }
    /// Whether the device memory is planned: then all else that uses it is made before the weights are loaded.
    [[nodiscard]] bool budgeted() const { return budgeted_; }

    [[nodiscard]] SplitKind split() const { return split_; }
    /// [devices]; empty if one device has the whole model.
    [[nodiscard]] const std::vector<ModelShard>& shards() const { return shards_; }
    /// Whether every device has a part of each matrix.
    [[nodiscard]] bool shards_matrices() const { return devices_.size() > 1 && split_ == SplitKind::Tensor; }
    /// Config of the device's shard.
    [[nodiscard]] ModelConfig shard_config(std::size_t device) const;

    /// Returns the rates of a device, measured at the first call. Must not be called by several threads at the same
    /// time.
    [[nodiscard]] const MachineRates& rates(std::size_t device) const;
    /// Sets known rates, so that none are measured.
    void set_rates(std::size_t device, const MachineRates& rates) { rates_[device] = rates; }

private:
    void make_devices(const ComputeOptions& options, const EngineCallbacks& callbacks);
    void choose_shards(const ComputeOptions& options, const EngineCallbacks& callbacks);
    [[nodiscard]] std::vector<std::int64_t> chosen_parts(const ComputeOptions& options, std::string& why) const;
    [[nodiscard]] std::vector<std::int64_t> planned_parts() const;
    [[nodiscard]] bool devices_are_alike() const;
    [[nodiscard]] std::string split_key() const;

    std::unique_ptr<const ModelWeights> weights_;
    std::int64_t context_tokens_ = 0;
    DType kv_dtype_ = DType::F16;
    OffloadOptions offload_;
    int n_threads_ = 1;
    int device_threads_ = 1;
    std::unique_ptr<CpuFaults> faults_;  // before devices_, whose links poll it
    std::vector<EngineDevice> devices_;
    mutable std::vector<std::optional<MachineRates>> rates_;  // [devices]
    bool budgeted_ = false;
    SplitKind split_ = SplitKind::Layers;
    std::vector<ModelShard> shards_;
};

}  // namespace slipstream::tools
