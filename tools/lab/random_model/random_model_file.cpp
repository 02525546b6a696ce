// Chooses the tensors and the distribution of their values, and writes them in pieces. Each piece has its own random
// seed, so that the bytes depend only on the seed of the model; each thread writes the pieces that it makes, since a
// single writing thread would be slower than all threads together.
//
// The deviations keep the activations of an untrained model in range: normalised activations have deviation 1, so
// weights of deviation 1/sqrt(K) preserve it. Scores and logits get a somewhat larger one, so that attention selects
// and candidates differ.
#include "tools/lab/random_model/random_model_file.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "kernels/base/thread_pool.h"
#include "runtime/formats/family.h"
#include "tools/lab/random_model/random_model_blocks.h"
#include "tools/lab/random_model/random_model_header.h"
#include "tools/terminal/file_output.h"
#include "tools/terminal/signals.h"

namespace slipstream::tools {

namespace {

// Elements of a tensor that are made from one random seed, at once; at most 1 MiB.
constexpr std::int64_t kPieceElements = std::int64_t{1} << 18;
// Ranges of kPieceElements elements that are made between two checks for a signal.
constexpr std::int64_t kPiecesPerWait = 1024;
constexpr double kScoreGain = 1.4;  // gain_of() of the matrices Q and K: attention scores get deviation 2
constexpr double kLogitGain = 3.0;
constexpr double kRouterGain = 2.0;  // the most likely expert of 128 then has about a quarter of the softmax
// With normal products of deviation kRouterGain. Of 128 experts, 4 a token, the first quarter then gets 0.735 of the
// choices; drawn one after the other by Zipf's law, it gets 0.727.
constexpr double kZipfGain = 1.0;

// Returns the deviation of the router's products with its input, whatever the norm of this is multiplied by.
double router_gain(const ModelConfig& config) {
    return kRouterGain / static_cast<double>(config.layers.back().feed_forward.experts.router_norm_scale);
}

// Returns the deviation of the elements of a matrix times the square root of its columns.
double gain_of(TensorRole role, const ModelConfig& config) {
    switch (role) {
        case TensorRole::Q:
        case TensorRole::K:
            return kScoreGain;
        case TensorRole::Router:
            return router_gain(config);
        case TensorRole::Down:
            return 2.0;  // silu(gate) * up has deviation 0.6
        case TensorRole::LmHead:
            return kLogitGain;
        case TensorRole::TokenEmbedding:  // also the LM head if embeddings are tied
            return config.tied_embeddings ? kLogitGain : std::sqrt(static_cast<double>(config.d_model));
        default:
            return 1.0;
    }
}

// Adds the tensors of a model, of which layer i is layer first_layer + i of the file; of its layers alone with
// LayersOnly.
enum class Parts : std::uint8_t { Whole, LayersOnly };
void add_tensors(std::vector<RandomTensor>& tensors, const ModelConfig& config, Quantisation quantisation,
                 std::int64_t first_layer, Parts parts) {
    const TensorNames& names = gguf_family(config).gguf_names;
    const ModelWeights weights = shape_weights(config, quantisation);
    for_each_tensor(weights, [&](const TensorInfo& info, std::int64_t layer, const ConstTensorView& view) {
        if (info.role == TensorRole::LmHead && config.tied_embeddings) return;
        const bool is_layers = layer < config.n_layers();
        if (!is_layers && parts == Parts::LayersOnly) return;
        const bool is_experts = info.is_matrix() && info.is_of_experts();
        const bool is_shared = is_layers && info.is_matrix() && !config.experts(layer).empty() &&
                               (info.rows == TensorDim::FeedForward || info.cols == TensorDim::FeedForward);
        std::string name(is_experts  ? names.experts[expert_tensor(info.role)].stacked
                         : is_shared ? names.shared_expert[expert_tensor(info.role)]
                                     : names[info.role]);
        if (name.empty()) return;  // a constant, which files do not store
        if (is_layers) name = fmt::format("{}{}.{}", names.layer_prefix, first_layer + layer, name);
        const double deviation = gain_of(info.role, config) / std::sqrt(static_cast<double>(view.cols()));
        if (is_experts) {
            // A tensor holds the matrices of all experts.
            if (std::ranges::find(tensors, name, &RandomTensor::name) != tensors.end()) return;
            tensors.push_back({name,
                               view.dtype,
                               {config.experts(layer).n_experts, view.rows(), view.cols()},
                               Draw::Normal,
                               deviation});
        } else if (info.role == TensorRole::DeltaDecay) {
            // With the biases below, a state keeps 0.3 to 0.99 of its size in a step.
            tensors.push_back(
                {.name = name, .shape = {view.cols()}, .draw = Draw::Uniform, .low = -2.0F, .width = 1.9F});
        } else if (info.role == TensorRole::DeltaDecayBias) {
            tensors.push_back(
                {.name = name, .shape = {view.cols()}, .draw = Draw::Uniform, .low = -3.0F, .width = 3.0F});
        } else if (!info.is_vector()) {
            tensors.push_back({name, view.dtype, {view.rows(), view.cols()}, Draw::Normal, deviation});
        } else {
            const bool is_factor = info.role == TensorRole::DeltaNorm || info.role == TensorRole::ExpertScales;
            const bool is_bias = info.kind == TensorKind::Bias && !is_factor;
            tensors.push_back(
                {name, DType::F32, {view.cols()}, is_bias ? Draw::Normal : Draw::Uniform, is_bias ? 0.1 : 0.0});
        }
    });
}

// Adds the head's layer, which is of the kind of the last one with attention, and its own tensors (HeadFiles). Files of
// GLM-4.5 have an embedding and an LM head for it, too.
void add_head(std::vector<RandomTensor>& tensors, const RandomModelOptions& options) {
    const ModelConfig& config = options.config;
    const auto last = std::ranges::find_if(config.layers.rbegin(), config.layers.rend(),
                                           [](const LayerConfig& layer) { return layer.has_attention(); });
    ModelConfig head = config;
    head.layers = {*last};
    add_tensors(tensors, head, options.quantisation, config.n_layers(), Parts::LayersOnly);
    const std::string prefix =
        fmt::format("{}{}.nextn.", gguf_family(config).gguf_names.layer_prefix, config.n_layers());
    const std::int64_t d = config.d_model;
    const ModelWeights weights = shape_weights(head, options.quantisation);
    const auto add_matrix = [&](const char* name, DType type, std::int64_t rows, std::int64_t cols, double gain) {
        tensors.push_back({fmt::format("{}{}.weight", prefix, name),
                           type,
                           {rows, cols},
                           Draw::Normal,
                           gain / std::sqrt(static_cast<double>(cols))});
    };
    add_matrix("eh_proj", weights.layers[0][TensorRole::Q].dtype, d, 2 * d, 1.0);
    if (gguf_family(config).head == HeadNaming::OneLayer) {
        add_matrix("embed_tokens", weights.token_embedding.dtype, config.vocab, d,
                   gain_of(TensorRole::TokenEmbedding, config));
        add_matrix("shared_head_head", weights.lm_head.dtype, config.vocab, d, gain_of(TensorRole::LmHead, config));
    }
    for (const char* norm : {"enorm.weight", "hnorm.weight", "shared_head_norm.weight"})
        tensors.push_back({.name = prefix + norm, .shape = {d}, .draw = Draw::Uniform});
}

std::vector<RandomTensor> random_tensors(const RandomModelOptions& options) {
    const ModelConfig& config = options.config;
    std::vector<RandomTensor> tensors;
    add_tensors(tensors, config, options.quantisation, 0, Parts::Whole);
    if (options.has_head) add_head(tensors, options);
    if (options.zipf_routers)
        for (RandomTensor& tensor : tensors)
            if (tensor.name.ends_with(gguf_family(config).gguf_names[TensorRole::RouterBias])) tensor.draw = Draw::Zipf;
    for (const RopeConfig& rope : config.ropes) {
        if (rope.n_fixed_pairs == 0) continue;
        const std::int64_t n_pairs = rope.n_rotated / 2;
        tensors.push_back({.name = "rope_freqs.weight",
                           .shape = {n_pairs},
                           .draw = Draw::PairDivisors,
                           .n_rotated_pairs = n_pairs - rope.n_fixed_pairs});
    }
    return tensors;
}

void fill_uniform(std::byte* dst, std::int64_t n, const RandomTensor& tensor, std::uint64_t seed) {
    RandomWords words(seed);
    for (std::int64_t i = 0; i < n; ++i) {
        const float value = tensor.low + tensor.width * static_cast<float>(words.next() >> 40) * 0x1p-24F;
        std::memcpy(dst + i * sizeof(value), &value, sizeof(value));
    }
}

void fill_zipf(std::byte* dst, std::int64_t begin, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
        const auto value = static_cast<float>(-kZipfGain * std::log(static_cast<double>(begin + i + 1)));
        std::memcpy(dst + i * sizeof(value), &value, sizeof(value));
    }
}

class TensorWriter {
public:
    TensorWriter(WholeFile& file, int n_threads) : file_(file), pool_(n_threads) {
        for (int i = 0; i < n_threads; ++i) buffers_.emplace_back(row_bytes(DType::F32, kPieceElements));
    }

    // Writes a tensor at `offset` of the file, and zeros after it up to the next multiple of kGgufAlignment.
    void write(const RandomTensor& tensor, std::uint64_t offset, std::uint64_t seed) {
        const RandomBlocks blocks(tensor.type, tensor.deviation);
        const std::int64_t n = tensor.n_elements();
        const std::int64_t n_pieces = (n + kPieceElements - 1) / kPieceElements;
        std::atomic<int> error{0};
        for (std::int64_t done = 0; done < n_pieces; done += kPiecesPerWait) {
            throw_if_interrupted();
            pool_.run(std::min(kPiecesPerWait, n_pieces - done), 1, [&](std::int64_t i, std::int64_t, int thread) {
                if (error != 0) return;
                const std::int64_t begin = (done + i) * kPieceElements;
                const std::int64_t count = std::min(kPieceElements, n - begin);
                const std::uint64_t own = RandomWords::mixed(seed) + static_cast<std::uint64_t>(done + i);
                std::vector<std::byte>& buffer = buffers_[thread];
                if (tensor.draw == Draw::Uniform) {
                    fill_uniform(buffer.data(), count, tensor, own);
                } else if (tensor.draw == Draw::Zipf) {
                    fill_zipf(buffer.data(), begin, count);
                } else if (tensor.draw == Draw::PairDivisors) {
                    for (std::int64_t pair = 0; pair < count; ++pair) {
                        const float divisor = begin + pair < tensor.n_rotated_pairs ? 1.0F : 1e30F;
                        std::memcpy(buffer.data() + pair * sizeof(divisor), &divisor, sizeof(divisor));
                    }
                } else {
                    blocks.fill(buffer.data(), count / dtype_info(tensor.type).block_elements, own);
                }
                const int refused = file_.write_at(offset + row_bytes(tensor.type, begin),
                                                   std::span(buffer).first(row_bytes(tensor.type, count)));
                if (refused != 0) error = refused;
            });
            if (error != 0) file_.fail(error);
        }
        constexpr std::array<std::byte, kGgufAlignment> kZeros{};
        const int refused = file_.write_at(offset + tensor.bytes(),
                                           std::span(kZeros).first(gguf_padded(tensor.bytes()) - tensor.bytes()));
        if (refused != 0) file_.fail(refused);
    }

private:
    WholeFile& file_;
    ThreadPool pool_;
    std::vector<std::vector<std::byte>> buffers_;  // one per thread
};

void check_room(const std::filesystem::path& path, std::size_t bytes) {
    std::error_code error;
    if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error)) return;
    const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
    const std::filesystem::space_info room = std::filesystem::space(folder, error);
    if (!error && room.available < bytes)
        throw IoError(
            fmt::format("{}: the file takes {:.2f} GB and its disk has {:.2f} GB left; choose a smaller "
                        "shape, a smaller type or another place",
                        path.string(), static_cast<double>(bytes) * 1e-9, static_cast<double>(room.available) * 1e-9));
}

}  // namespace

std::size_t random_model_bytes(const RandomModelOptions& options) {
    const std::vector<RandomTensor> tensors = random_tensors(options);
    std::size_t bytes = gguf_header(options, tensors).size();
    for (const RandomTensor& tensor : tensors) bytes += gguf_padded(tensor.bytes());
    return bytes;
}

void write_random_model(const std::filesystem::path& path, const RandomModelOptions& options) {
    check_room(path, random_model_bytes(options));
    const std::vector<RandomTensor> tensors = random_tensors(options);
    WholeFile file(path);
    const std::string header = gguf_header(options, tensors);
    file.write(header);
    TensorWriter writer(file, options.n_threads);
    std::uint64_t offset = header.size();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        writer.write(tensors[i], offset, RandomWords::mixed(options.seed) + i);
        offset += gguf_padded(tensors[i].bytes());
    }
    file.complete();
}

}  // namespace slipstream::tools
