// How the tables of model_ngrams.h are computed.
//
// Bigrams: every token is a text of its own. Many go through the model at once, as siblings at position 0 under an
// empty cache, so that none sees another. Unigrams: |V (u_x - u)|^2 = (u_x - u)^T C (u_x - u) with C = V^T V, a matrix
// of [d_model, d_model]; both products are the device's own matmul, over blocks of rows that it gathers from the files.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "draft/sources/logit_row.h"
#include "draft/tables/model_ngrams.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "kernels/pack_weights.h"
#include "runtime/cache/kv_cache.h"
#include "runtime/pass/forward.h"

namespace slipstream::draft {

namespace {

constexpr std::int64_t kBlockRows = 512;

// Counts operations, tells how many are done, and whether to go on.
class Work {
public:
    Work(const ModelNgramsOptions& options, double total) : options_(&options), total_(total) {}
    [[nodiscard]] bool goes_on() const {
        return options_->cancel == nullptr || !options_->cancel->load(std::memory_order_relaxed);
    }
    void add(double operations) {
        done_ = std::min(done_ + operations, total_);
        if (options_->on_progress) options_->on_progress(done_, total_);
    }

private:
    const ModelNgramsOptions* options_;
    double total_;
    double done_ = 0.0;
};

double parameters(const ModelConfig& config) {
    const double attention = static_cast<double>(config.n_q_heads + config.n_kv_heads) * 2.0 *
                             static_cast<double>(config.head_dim * config.d_model);
    const double layer = attention + 3.0 * static_cast<double>(config.d_model) * static_cast<double>(config.d_ff);
    return static_cast<double>(config.n_layers) * layer +
           static_cast<double>(config.vocab) * static_cast<double>(config.d_model);
}

double unigram_operations(const ModelConfig& config) {
    return 4.0 * static_cast<double>(config.vocab) * static_cast<double>(config.d_model * config.d_model);
}

double bigram_operations(const ModelConfig& config) {
    return 2.0 * static_cast<double>(config.vocab) * parameters(config);
}

void fill_row(BigramTable& table, TokenId token, std::span<const float> logits, RowTop& row_top) {
    const std::span<const TopToken> top = row_top.best(logits, table.k);
    if (top.empty()) return;  // no numbers: the token is followed by nothing
    const float greatest = top.front().logit;
    const float normaliser = log_normaliser(logits, greatest, 1.0F);
    const auto begin = static_cast<std::size_t>(token * table.k);
    for (std::size_t i = 0; i < top.size(); ++i) {
        const float log_p = top[i].logit - greatest - normaliser;
        // What a half cannot hold is so improbable that it is not worth a guess.
        constexpr float least_half = -65504.0F;
        table.tokens[begin + i] = top[i].token;
        table.log_p[begin + i] = to_half(log_p > least_half ? log_p : least_half);
    }
}

// False where it was cancelled.
bool build_bigrams(const Model& model, const ModelNgramsOptions& options, Work& work, BigramTable& table) {
    const ModelConfig& config = model.config();
    const auto logit_rows = static_cast<std::int64_t>(options.max_logit_bytes / row_bytes(DType::F32, config.vocab));
    const std::int64_t n_pass = std::clamp<std::int64_t>(std::min(options.pass_tokens, logit_rows), 1, config.vocab);
    KvCache cache(model.device(), model.kv_shape(), config.n_layers, 1, n_pass);
    Forward forward(model, {.max_tokens = n_pass, .max_logit_rows = n_pass});
    RowTop row_top(table.k, config.vocab);
    std::vector<TokenId> tokens;
    std::vector<NodeId> nodes;
    std::vector<std::int32_t> logit_tokens(static_cast<std::size_t>(n_pass));
    std::iota(logit_tokens.begin(), logit_tokens.end(), 0);
    for (std::int64_t begin = 0; begin < config.vocab; begin += n_pass) {
        const std::int64_t n = std::min(n_pass, config.vocab - begin);
        tokens.resize(static_cast<std::size_t>(n));
        std::iota(tokens.begin(), tokens.end(), static_cast<TokenId>(begin));
        nodes.clear();
        for (std::int64_t i = 0; i < n; ++i) nodes.push_back(cache.add_node(kCommittedTip));
        const ConstTensorView logits =
            forward.run(cache, tokens, nodes, std::span(logit_tokens).first(tokens.size()), {.cancel = options.cancel});
        cache.forget();
        if (logits.empty() || !work.goes_on()) return false;
        for (std::int64_t i = 0; i < n; ++i)
            fill_row(table, static_cast<TokenId>(begin + i),
                     {float_row(logits, i), static_cast<std::size_t>(config.vocab)}, row_top);
        work.add(bigram_operations(config) * static_cast<double>(n) / static_cast<double>(config.vocab));
    }
    return true;
}

// Rows of an embedding as floats, a block at a time, and products with them; on the model's device, whatever it is.
class EmbeddingAlgebra {
public:
    EmbeddingAlgebra(const Model& model, std::int64_t d)
        : device_(&model.device()), stream_(device_->make_stream(StreamKind::Compute)), d_(d) {
        rows_ = floats(kBlockRows, "rows of an embedding");
        products_ = floats(kBlockRows, "products of embeddings");
        square_ = floats(d, "V^T V");
        if (!device_->shares_host_memory()) {
            const std::size_t bytes = packed_bytes(DType::F32, d, std::max(d, kBlockRows));
            packed_ = device_->allocate(bytes, MemoryTag::Draft, "a packed matrix");
            host_packed_ = device_->allocate_host(bytes, MemoryTag::Draft, "a packed matrix");
        }
        host_rows_.resize(static_cast<std::size_t>(kBlockRows * d));
        host_products_.resize(static_cast<std::size_t>(kBlockRows * d));
    }

    // Rows [begin, begin + n) of `table`, [n, d], valid until the next call.
    std::span<float> gather(const ConstTensorView& table, std::int64_t begin, std::int64_t n) {
        ids_.resize(static_cast<std::size_t>(n));
        std::iota(ids_.begin(), ids_.end(), static_cast<std::int32_t>(begin));
        embed(exec(), {.table = table, .tokens = ids_.data(), .y = view(rows_, n, d_)});
        const std::span<float> rows(host_rows_.data(), static_cast<std::size_t>(n * d_));
        stream_->copy(rows.data(), rows_.data(), rows.size_bytes());
        stream_->synchronize();
        return rows;
    }

    void clear_square() {
        const std::vector<float> zeros(static_cast<std::size_t>(d_ * d_));
        stream_->copy(square_.data(), zeros.data(), zeros.size() * sizeof(float));
        stream_->synchronize();
    }

    // C += V_b^T V_b of the block of n rows that was gathered last, C being [d, d].
    void add_to_square(std::int64_t n) {
        // Both operands have the reduced length last: the block turned by a quarter, [d, n].
        std::vector<float>& turned = host_products_;
        for (std::int64_t row = 0; row < n; ++row)
            for (std::int64_t i = 0; i < d_; ++i)
                turned[static_cast<std::size_t>(i * n + row)] = host_rows_[static_cast<std::size_t>(row * d_ + i)];
        stream_->copy(rows_.data(), turned.data(), static_cast<std::size_t>(n * d_) * sizeof(float));
        const TensorView block = view(rows_, d_, n);
        square_is_packed_ = false;
        matmul(exec(), {.weights = packed_.data() == nullptr ? block : packed(turned, n),
                        .x = block,
                        .y = view(square_, d_, d_),
                        .store = MatmulStore::Add});
    }

    // x C of n rows x, [n, d]; valid until the next call.
    std::span<const float> times_square(std::span<const float> rows) {
        const auto n = static_cast<std::int64_t>(rows.size()) / d_;
        stream_->copy(rows_.data(), rows.data(), rows.size_bytes());
        matmul(exec(), {.weights = square(), .x = view(rows_, n, d_), .y = view(products_, n, d_)});
        stream_->copy(host_products_.data(), products_.data(), rows.size_bytes());
        stream_->synchronize();
        return std::span(host_products_).first(rows.size());
    }

private:
    [[nodiscard]] ExecRef exec() { return {*device_, *stream_}; }
    [[nodiscard]] Buffer floats(std::int64_t n_rows, std::string_view what) {
        return device_->allocate(static_cast<std::size_t>(n_rows) * row_bytes(DType::F32, d_), MemoryTag::Draft, what);
    }
    // [d, cols] as its matmul wants weights, on a device that the host does not write to; valid until the next call.
    TensorView packed(std::span<const float> matrix, std::int64_t cols) {
        stream_->synchronize();  // the pack before may be under way
        const Layout layout = packed_layout(device_->kind());
        pack_weights(exec(), {.weights = matrix_view(matrix.data(), d_, cols),
                              .packed = packed_view(host_packed_.data(), DType::F32, d_, cols, layout)});
        stream_->copy(packed_.data(), host_packed_.data(), packed_bytes(DType::F32, d_, cols));
        return packed_view(packed_.data(), DType::F32, d_, cols, layout);
    }
    TensorView square() {
        if (packed_.data() == nullptr) return view(square_, d_, d_);
        if (square_is_packed_) return packed_view(packed_.data(), DType::F32, d_, d_, packed_layout(device_->kind()));
        std::vector<float> host(static_cast<std::size_t>(d_ * d_));
        stream_->copy(host.data(), square_.data(), host.size() * sizeof(float));
        stream_->synchronize();
        square_is_packed_ = true;
        return packed(host, d_);
    }
    static TensorView view(const Buffer& buffer, std::int64_t rows, std::int64_t cols) {
        return matrix_view(reinterpret_cast<float*>(buffer.data()), rows, cols);
    }

    Device* device_;
    std::unique_ptr<Stream> stream_;
    std::int64_t d_;
    Buffer rows_;                       // [block, d], or [d, block]
    Buffer products_;                   // [block, d]
    Buffer square_;                     // [d, d]
    Buffer packed_;                     // [d, max(d, block)], packed; empty where matmul takes the host's matrices
    Buffer host_packed_;                // the same on the host
    bool square_is_packed_ = false;     // packed_ holds square_
    std::vector<float> host_rows_;      // [block, d]
    std::vector<float> host_products_;  // [block, d]
    std::vector<std::int32_t> ids_;
};

// Calls fn(begin, n) for blocks of rows; false where it was cancelled.
template <typename Fn>
bool for_each_block(std::int64_t vocab, double operations, Work& work, const Fn& fn) {
    for (std::int64_t begin = 0; begin < vocab; begin += kBlockRows) {
        if (!work.goes_on()) return false;
        const std::int64_t n = std::min(kBlockRows, vocab - begin);
        fn(begin, n);
        work.add(operations * static_cast<double>(n) / static_cast<double>(vocab));
    }
    return true;
}

float dot(std::span<const float> a, std::span<const float> b) {
    double sum = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    return static_cast<float>(sum);
}

bool build_unigrams(const Model& model, const ModelFiles& files, Work& work, UnigramTable& table) {
    const ModelConfig& config = model.config();
    const ModelWeights weights = files.weights();
    const std::int64_t vocab = config.vocab;
    const auto d = static_cast<std::size_t>(config.d_model);
    const double half = unigram_operations(config) / 2;
    EmbeddingAlgebra algebra(model, config.d_model);
    algebra.clear_square();
    if (!for_each_block(vocab, half, work, [&](std::int64_t begin, std::int64_t n) {
            static_cast<void>(algebra.gather(weights.token_embedding, begin, n));
            algebra.add_to_square(n);
        }))
        return false;

    std::vector<double> mean(d, 0.0);
    if (!for_each_block(vocab, 0.0, work, [&](std::int64_t begin, std::int64_t n) {
            const std::span<const float> rows = algebra.gather(weights.lm_head, begin, n);
            for (std::size_t i = 0; i < rows.size(); ++i) mean[i % d] += static_cast<double>(rows[i]);
        }))
        return false;
    for (double& value : mean) value /= static_cast<double>(vocab);

    const std::vector<float> center(mean.begin(), mean.end());
    const std::span<const float> product = algebra.times_square(center);
    const std::vector<float> direction(product.begin(), product.end());  // u C
    table.distances.resize(static_cast<std::size_t>(vocab));
    table.alignments.resize(static_cast<std::size_t>(vocab));
    if (!for_each_block(vocab, half, work, [&](std::int64_t begin, std::int64_t n) {
            const std::span<float> rows = algebra.gather(weights.lm_head, begin, n);
            for (std::int64_t row = 0; row < n; ++row)
                table.alignments[static_cast<std::size_t>(begin + row)] =
                    dot(rows.subspan(static_cast<std::size_t>(row) * d, d), direction);
            for (std::size_t i = 0; i < rows.size(); ++i) rows[i] -= center[i % d];
            const std::span<const float> products = algebra.times_square(rows);
            for (std::int64_t row = 0; row < n; ++row) {
                const auto at = static_cast<std::size_t>(row) * d;
                // Rounding may leave a square just below 0.
                const float square = std::max(dot(rows.subspan(at, d), products.subspan(at, d)), 0.0F);
                table.distances[static_cast<std::size_t>(begin + row)] = std::sqrt(square);
            }
        }))
        return false;
    // What is no number comes last.
    for (std::vector<float>* values : {&table.distances, &table.alignments})
        for (float& value : *values)
            if (!std::isfinite(value)) value = std::numeric_limits<float>::max();
    return true;
}

}  // namespace

std::optional<ModelNgrams> build_model_ngrams(const Model& model, const ModelFiles& files,
                                              const ModelNgramsOptions& options) {
    const ModelConfig& config = model.config();
    CHECK(options.k >= 1 && options.pass_tokens >= 1, "{} candidates, {} tokens a pass", options.k,
          options.pass_tokens);
    ModelNgrams ngrams;
    BigramTable& bigrams = ngrams.bigrams;
    bigrams.vocab = config.vocab;
    bigrams.k = std::min(options.k, config.vocab);
    bigrams.tokens.assign(static_cast<std::size_t>(config.vocab * bigrams.k), -1);
    bigrams.log_p.resize(bigrams.tokens.size());
    Work work(options, unigram_operations(config) + bigram_operations(config));
    if (!work.goes_on() || !build_unigrams(model, files, work, ngrams.unigrams) ||
        !build_bigrams(model, options, work, bigrams))
        return std::nullopt;
    return ngrams;
}

}  // namespace slipstream::draft
