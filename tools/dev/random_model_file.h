// A GGUF file of random weights for a shape: what a benchmark or a placement needs of a model when the model itself is
// not there. Loads, plans and generates as the real one would; the text means nothing.
#pragma once

#include <cstdint>
#include <filesystem>

#include "runtime/model/model_config.h"
#include "tools/plan/model_shapes.h"

namespace slipstream::tools {

struct RandomModelOptions {
    ModelConfig config;
    Quantisation quantisation = Quantisation::Q4_K_M;
    std::uint64_t seed = 1;
    int n_threads = 1;
};

/// Bytes of the file that write_random_model() makes.
[[nodiscard]] std::size_t random_model_bytes(const RandomModelOptions& options);

/// Writes it; the same bytes for the same shape, types and seed, whatever the threads. The file appears when it is
/// whole. Takes 1 MiB of memory a thread. Throws IoError (the disk is full: before the work where that can be seen),
/// Interrupted.
///
/// The tokenizer has the 256 bytes, a word to each other id, and no token that ends a text: by chance it would come
/// early.
void write_random_model(const std::filesystem::path& path, const RandomModelOptions& options);

}  // namespace slipstream::tools
