// Which tensors there are, how their values are drawn, and their way into the file: pieces with random numbers of their
// own, so that the bytes depend on the seed alone, and each thread writes the pieces that it makes; one alone would
// take longer to hand them over than all take to make them.
//
// Deviations keep a model alive that was never trained: normed activations have deviation 1, so weights of 1/sqrt(K)
// hand on deviation 1; scores and logits get somewhat more, so that attention chooses and candidates differ.
#include "tools/dev/random_model_file.h"

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
#include "tools/dev/random_model_blocks.h"
#include "tools/dev/random_model_header.h"
#include "tools/terminal/file_output.h"
#include "tools/terminal/signals.h"

namespace slipstream::tools {

namespace {

constexpr std::int64_t kPieceElements = std::int64_t{1} << 18;  // with random numbers of their own; at most 1 MiB
constexpr std::int64_t kPiecesPerWait = 1024;                   // before a signal is looked for
constexpr double kScoreGain = 1.4;                              // of q and k: scores of deviation 2
constexpr double kLogitGain = 3.0;

class TensorList {
public:
    void matrix(std::string name, const ConstTensorView& view, double gain) {
        const double deviation = gain / std::sqrt(static_cast<double>(view.cols()));
        tensors_.push_back(
            {std::move(name) + ".weight", view.dtype, {view.rows(), view.cols()}, Draw::Normal, deviation});
    }
    void norm(std::string name, const ConstTensorView& view) {
        if (!view.empty())
            tensors_.push_back({std::move(name) + ".weight", DType::F32, {view.cols()}, Draw::AroundOne, 0.0});
    }
    void bias(std::string name, const ConstTensorView& view) {
        if (!view.empty())
            tensors_.push_back({std::move(name) + ".bias", DType::F32, {view.cols()}, Draw::Normal, 0.1});
    }
    [[nodiscard]] std::vector<RandomTensor> take() { return std::move(tensors_); }

private:
    std::vector<RandomTensor> tensors_;
};

std::vector<RandomTensor> random_tensors(const RandomModelOptions& options) {
    const ModelWeights weights = shape_weights(options.config, options.quantisation);
    const auto d_model = static_cast<double>(options.config.d_model);
    TensorList list;
    // Tied, its rows are the head's too.
    list.matrix("token_embd", weights.token_embedding,
                options.config.tied_embeddings ? kLogitGain : std::sqrt(d_model));
    for (std::size_t i = 0; i < weights.layers.size(); ++i) {
        const LayerWeights& layer = weights.layers[i];
        const auto name = [&](const char* stem) { return fmt::format("blk.{}.{}", i, stem); };
        list.norm(name("attn_norm"), layer.attn_norm);
        list.matrix(name("attn_q"), layer.q, kScoreGain);
        list.bias(name("attn_q"), layer.q_bias);
        list.matrix(name("attn_k"), layer.k, kScoreGain);
        list.bias(name("attn_k"), layer.k_bias);
        list.matrix(name("attn_v"), layer.v, 1.0);
        list.bias(name("attn_v"), layer.v_bias);
        list.norm(name("attn_q_norm"), layer.q_norm);
        list.norm(name("attn_k_norm"), layer.k_norm);
        list.matrix(name("attn_output"), layer.attn_out, 1.0);
        list.norm(name("ffn_norm"), layer.ffn_norm);
        list.matrix(name("ffn_gate"), layer.gate, 1.0);
        list.matrix(name("ffn_up"), layer.up, 1.0);
        list.matrix(name("ffn_down"), layer.down, 2.0);  // silu(gate) * up has deviation 0.6
    }
    list.norm("output_norm", weights.output_norm);
    if (!options.config.tied_embeddings) list.matrix("output", weights.lm_head, kLogitGain);
    return list.take();
}

void fill_around_one(std::byte* dst, std::int64_t n, std::uint64_t seed) {
    RandomWords words(seed);
    for (std::int64_t i = 0; i < n; ++i) {
        const float value = 0.8F + 0.4F * static_cast<float>(words.next() >> 40) * 0x1p-24F;
        std::memcpy(dst + i * sizeof(value), &value, sizeof(value));
    }
}

class TensorWriter {
public:
    TensorWriter(WholeFile& file, int n_threads) : file_(file), pool_(n_threads) {
        for (int i = 0; i < n_threads; ++i) buffers_.emplace_back(row_bytes(DType::F32, kPieceElements));
    }

    // At `offset` of the file, and zeros behind it as far as the next one begins.
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
                if (tensor.draw == Draw::AroundOne) {
                    fill_around_one(buffer.data(), count, own);
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
    std::vector<std::vector<std::byte>> buffers_;  // one a thread
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
