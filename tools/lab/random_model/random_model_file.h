// Writes a GGUF file with random weights for a shape, for benchmarks and placement tests that do not have the model
// itself. It loads, plans and generates as the real model does; the generated text has no meaning.
#pragma once

#include <cstdint>
#include <filesystem>

#include "runtime/model/model_config.h"
#include "tools/plan/model_shapes.h"

namespace slipstream::tools {

struct RandomModelOptions {
    ModelConfig config;
    Quantisation quantisation = Quantisation::Q4_K_M;
    bool has_head = false;  // an MTP head as the family's GGUF files have it; only of families that have them
    /// Biases of routers for which experts are chosen roughly by Zipf's law, expert 0 most often; only of families
    /// whose routers have biases.
    bool zipf_routers = false;
    std::uint64_t seed = 1;
    int n_threads = 1;
};

/// Returns the size in bytes of the file that write_random_model() makes.
[[nodiscard]] std::size_t random_model_bytes(const RandomModelOptions& options);

/// Writes the file. Its bytes depend on shape, types and seed only, not on the number of threads. The file gets its
/// name when it is complete. Takes 1 MiB of memory per thread. Throws IoError (for a full disk before any work, if the
/// free space is known), and Interrupted after a signal.
///
/// The tokenizer has the 256 bytes, one word for each other id, and no token that ends a text, since random weights
/// would choose it early.
void write_random_model(const std::filesystem::path& path, const RandomModelOptions& options);

}  // namespace slipstream::tools
