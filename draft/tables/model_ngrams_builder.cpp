// Computes the tables of model_ngrams.h.
//
// Bigrams: every token is a text of its own. Many tokens go through the model in one pass, as siblings at position 0 on
// an empty cache, so that none attends to another. Unigrams: the mean row u, then V^T V u as a sum over the rows of V,
// then its product with each row of U. V^T V itself is never formed.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "draft/logit_row.h"
#include "draft/tables/model_ngrams.h"
#include "kernels/elementwise.h"
#include "runtime/cache/kv_cache.h"
#include "runtime/pass/forward.h"

namespace slipstream::draft {

namespace {

// Rows of an embedding that are read at once. Bounds the memory for them, and the time between two checks for
// cancellation.
constexpr std::int64_t kBlockRows = 512;

// Counts operations, reports them, and checks for cancellation.
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

// Returns the number of weights that a token is multiplied with, the output matrix included.
double parameters(const ModelConfig& config) {
    std::int64_t rows = config.vocab;  // of d_model elements
    for (const LayerConfig& layer : config.layers) {
        const ExpertsConfig& experts = layer.feed_forward.experts;
        rows += layer.has_attention() ? 2 * (layer.attention().q_cols() + layer.attention().kv_cols())
                                      : layer.delta_net().shape.row_cols() + 2 * layer.delta_net().shape.value_cols();
        rows += 3 * layer.feed_forward.d_ff + experts.n_experts + 3 * experts.n_chosen * experts.d_ff;
    }
    return static_cast<double>(rows) * static_cast<double>(config.d_model);
}

double unigram_operations(const ModelConfig& config) {
    return 3.0 * static_cast<double>(config.vocab * config.d_model);
}

double bigram_operations(const ModelConfig& config) {
    return 2.0 * static_cast<double>(config.vocab) * parameters(config);
}

void fill_row(BigramTable& table, TokenId token, std::span<const float> logits, RowTop& row_top) {
    const std::span<const TopToken> top = row_top.best(logits, table.k);
    if (top.empty()) return;  // no logit above -inf: nothing follows the token
    const float greatest = top.front().logit;
    const float normaliser = log_normaliser(logits, greatest, 1.0F);
    const auto begin = static_cast<std::size_t>(token * table.k);
    for (std::size_t i = 0; i < top.size(); ++i) {
        const float log_p = top[i].logit - greatest - normaliser;
        // A log p below the most negative half-precision number is so improbable that it is not worth a draft token.
        constexpr float least_half = -65504.0F;
        table.tokens[begin + i] = top[i].token;
        table.log_p[begin + i] = to_half(log_p > least_half ? log_p : least_half);
    }
}

// Fills `table` by passes over all tokens of the vocabulary, each a text of its own. Returns false if it was cancelled.
bool build_bigrams(const Model& model, const ModelNgramsOptions& options, Work& work, BigramTable& table) {
    const ModelConfig& config = model.config();
    const auto logit_rows = static_cast<std::int64_t>(options.max_logit_bytes / row_bytes(DType::F32, config.vocab));
    const std::int64_t n_pass = std::clamp<std::int64_t>(std::min(options.pass_tokens, logit_rows), 1, config.vocab);
    KvCache cache(model.device(), model.kv_layouts(), 1, n_pass);
    Forward forward(model, {.max_tokens = n_pass, .max_logit_rows = n_pass});
    RowTop row_top(table.k, config.vocab);
    std::vector<TokenId> tokens;
    std::vector<NodeId> nodes;
    std::vector<std::int32_t> logit_tokens(n_pass);
    std::iota(logit_tokens.begin(), logit_tokens.end(), 0);
    // Fills the rows of tokens [begin, begin + n). Returns false if it was cancelled.
    const auto fill = [&](std::int64_t begin, std::int64_t n) {
        tokens.resize(n);
        std::iota(tokens.begin(), tokens.end(), static_cast<TokenId>(begin));
        nodes.clear();
        for (std::int64_t i = 0; i < n; ++i) nodes.push_back(cache.add_node(kCommittedTip));
        const ConstTensorView logits =
            forward.run(cache, tokens, nodes, std::span(logit_tokens).first(tokens.size()), {.cancel = options.cancel});
        cache.forget();
        if (logits.empty()) return false;
        for (std::int64_t i = 0; i < n; ++i)
            fill_row(table, static_cast<TokenId>(begin + i),
                     {float_row(logits, i), static_cast<std::size_t>(config.vocab)}, row_top);
        return true;
    };
    for (std::int64_t begin = 0; begin < config.vocab; begin += n_pass) {
        const std::int64_t n = std::min(n_pass, config.vocab - begin);
        try {
            if (!fill(begin, n)) return false;
        } catch (const FormatError&) {
            // A mixture fails on a token whose numbers are not finite at a router or in an expert. Such a token gets no
            // row, as in a model without experts, where its logits are not numbers; the others of the pass get theirs.
            cache.forget();
            for (std::int64_t token = begin; token < begin + n; ++token) {
                try {
                    if (!fill(token, 1)) return false;
                } catch (const FormatError&) {
                    cache.forget();
                }
            }
        }
        if (!work.goes_on()) return false;
        work.add(bigram_operations(config) * static_cast<double>(n) / static_cast<double>(config.vocab));
    }
    return true;
}

// Reads the rows of an embedding as floats, kBlockRows at a time, from any memory and of any type.
class EmbeddingRows {
public:
    explicit EmbeddingRows(const Model& model)
        : device_(&model.device()), stream_(device_->make_stream(StreamKind::Compute)), d_(model.config().d_model) {
        const std::size_t bytes = kBlockRows * row_bytes(DType::F32, d_);
        rows_ = device_->allocate(bytes, MemoryTag::Draft, "rows of an embedding");
        host_rows_.resize(kBlockRows * d_);
    }

    // Calls fn(token, row) for every row [d_model] of `table`. Returns false if it was cancelled.
    template <typename Fn>
    bool for_each(const ConstTensorView& table, Work& work, const Fn& fn) {
        const auto d = static_cast<std::size_t>(d_);
        for (std::int64_t begin = 0; begin < table.rows(); begin += kBlockRows) {
            if (!work.goes_on()) return false;
            const std::int64_t n = std::min(kBlockRows, table.rows() - begin);
            gather(table, begin, n);
            for (std::int64_t i = 0; i < n; ++i)
                fn(begin + i, std::span<const float>(host_rows_).subspan(static_cast<std::size_t>(i) * d, d));
            work.add(static_cast<double>(n * d_));
        }
        return true;
    }

private:
    // Copies rows [begin, begin + n) of `table` to host_rows_, as floats.
    void gather(const ConstTensorView& table, std::int64_t begin, std::int64_t n) {
        std::vector<std::int32_t> ids(n);
        std::iota(ids.begin(), ids.end(), static_cast<std::int32_t>(begin));
        const TensorView rows = matrix_view(reinterpret_cast<float*>(rows_.data()), n, d_);
        embed({*device_, *stream_}, {.table = table, .tokens = ids.data(), .y = rows});
        stream_->copy(host_rows_.data(), rows_.data(), n * d_ * sizeof(float));
        stream_->synchronize();
    }

    Device* device_;
    std::unique_ptr<Stream> stream_;
    std::int64_t d_;
    Buffer rows_;                   // [kBlockRows, d_model], on the device
    std::vector<float> host_rows_;  // [kBlockRows, d_model]
};

double dot(std::span<const float> a, std::span<const double> b) {
    double sum = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
    return sum;
}

void add_to(std::span<double> sum, std::span<const float> row, double weight) {
    for (std::size_t i = 0; i < row.size(); ++i) sum[i] += weight * static_cast<double>(row[i]);
}

// Writes the unigrams to `common`. Returns false if it was cancelled.
bool find_common(const Model& model, const ModelFiles& files, Work& work, std::vector<std::int32_t>& common) {
    const ModelWeights weights = files.weights();
    const auto d = static_cast<std::size_t>(model.config().d_model);
    const auto vocab = static_cast<std::size_t>(model.config().vocab);
    EmbeddingRows embedding(model);
    std::vector<double> mean(d);       // u
    std::vector<double> direction(d);  // V^T V u
    std::vector<double> alignments(vocab);
    const double share = 1.0 / static_cast<double>(vocab);
    const bool done =
        embedding.for_each(weights.lm_head, work, [&](std::size_t, auto row) { add_to(mean, row, share); }) &&
        embedding.for_each(weights.token_embedding, work,
                           [&](std::size_t, auto row) { add_to(direction, row, dot(row, mean)); }) &&
        embedding.for_each(weights.lm_head, work,
                           [&](std::size_t token, auto row) { alignments[token] = dot(row, direction); });
    if (!done) return false;
    // Values that are not finite come last.
    for (double& value : alignments)
        if (!std::isfinite(value)) value = std::numeric_limits<double>::max();
    common.resize(vocab);
    std::iota(common.begin(), common.end(), 0);
    std::ranges::stable_sort(common, {}, [&](std::int32_t token) { return alignments[token]; });
    common.resize(std::min(vocab, static_cast<std::size_t>(kCommonTokens)));
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
    bigrams.tokens.assign(config.vocab * bigrams.k, -1);
    bigrams.log_p.resize(bigrams.tokens.size());
    Work work(options, unigram_operations(config) + bigram_operations(config));
    if (!work.goes_on() || !find_common(model, files, work, ngrams.common) ||
        !build_bigrams(model, options, work, bigrams))
        return std::nullopt;
    return ngrams;
}

}  // namespace slipstream::draft
