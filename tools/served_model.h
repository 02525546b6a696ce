// A model on its way from a path to something that computes: files opened, context chosen, weights loaded with a bar.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/cpu_device.h"
#include "runtime/formats/model_files.h"
#include "runtime/model.h"
#include "tools/command.h"
#include "tools/compute_options.h"

namespace slipstream::tools {

/// What the command line says about computing, checked before anything is opened.
struct ComputeOptions {
    std::optional<std::int64_t> context_tokens;
    std::optional<DType> kv_dtype;
    int n_threads = 1;
};
[[nodiscard]] ComputeOptions compute_options(const CommandContext& context);

/// Owners in the order in which they depend on one another.
struct ServedModel {
    std::filesystem::path path;
    std::unique_ptr<ModelFiles> files;
    std::unique_ptr<CpuDevice> device;
    std::unique_ptr<Model> model;
    double load_seconds = 0.0;
};

/// Opens the files only.
[[nodiscard]] ServedModel open_model(const std::filesystem::path& path);
/// Makes the device and loads the weights, with a progress bar; notes on the console what was decided. Throws
/// Interrupted after a signal.
void load_model(ServedModel& served, const ComputeOptions& options, CommandContext& context);

/// FormatError where an id of `tokens` is not in the model's vocabulary.
void check_tokens(std::span<const TokenId> tokens, const ModelConfig& config);

}  // namespace slipstream::tools
