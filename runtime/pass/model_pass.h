// The computation of a pass: embedding, layers, LM head. This is the only place that knows what a layer computes; it
// follows the model's configuration and the tensors that the model has. Forward (forward.h) decides which tokens go
// through which layers, and owns streams, graphs and errors.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/collective.h"
#include "kernels/device.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "runtime/cache/pass_kv.h"
#include "runtime/model/model.h"
#include "runtime/pass/activations.h"
#include "runtime/pass/delta_steps.h"
#include "runtime/pass/expert_choices.h"
#include "runtime/pass/expert_figures.h"
#include "runtime/pass/expert_rows.h"
#include "runtime/pass/pass_control.h"
#include "runtime/pass/pass_hooks.h"
#include "runtime/pass/pass_paths.h"
#include "runtime/pass/pass_profile.h"
#include "runtime/pass/pass_reads.h"

namespace slipstream {

/// Tokens that go through a layer together.
struct PassRows {
    PassKv* kv = nullptr;
    std::span<const TokenId> tokens{};
    std::span<const NodeId> nodes{};  // scratch rows
    std::int64_t n_committed = 0;     // committed positions before the tokens of the nodes
    Phase phase = Phase::Decode;
    PassHooks* hooks = nullptr;  // null: no observer
    [[nodiscard]] std::int64_t n() const { return static_cast<std::int64_t>(nodes.size()); }
};

/// What is computed of a layer: all of it, or only the rows that it adds to the KV.
enum class LayerPart : std::uint8_t { Whole, KvRows };

/// Returns columns [first, first + n) of a float matrix or vector.
template <typename Byte>
[[nodiscard]] BasicTensorView<Byte> matrix_columns(BasicTensorView<Byte> view, std::int64_t first, std::int64_t n) {
    view.data += row_bytes(DType::F32, first);
    view.shape[view.rank - 1] = n;
    return view;
}

/// The bytes of a stage that none are counted for.
inline constexpr auto no_bytes = [] { return std::size_t{0}; };

/// Returns the bytes of the rows of a view.
[[nodiscard]] inline std::size_t rows_bytes(const ConstTensorView& rows) {
    return static_cast<std::size_t>(rows.rows()) * row_bytes(rows.dtype, rows.cols());
}

/// Returns the stage of a product, by the first of its matrices.
[[nodiscard]] PassStage product_stage(TensorRole role);

class ModelPass {
public:
    /// Allocates activations on the model's device. All work is enqueued on `stream`. `collective` sums the products of
    /// the shards of a split model; null: products are whole. All arguments must outlive this. Throws OutOfBudget.
    ModelPass(const Model& model, Stream& stream, const ActivationLimits& limits, Collective* collective);

    [[nodiscard]] Activations& activations() { return activations_; }
    [[nodiscard]] const Activations& activations() const { return activations_; }
    /// Returns the slots, positions and paths of the tokens of the running pass.
    [[nodiscard]] const PassPaths& paths() const { return paths_; }
    /// Sets from where the next calls read weights and KV that are not resident; null: all are resident.
    void read_from(WeightStream* weights, KvStream* kv) {
        weights_ = weights;
        kv_ = kv;
    }
    [[nodiscard]] KvStream* kv_stream() const { return kv_; }
    /// Times the stages of the next calls; null: they are not timed. It must outlive its use.
    void profile_with(PassProfile* profile) { profile_ = profile; }
    [[nodiscard]] PassProfile* profile() const { return profile_; }
    /// Notes in `choices` what the tokens of the next calls choose; null: not. It must outlive its use, and have the
    /// scratch rows of all nodes of the passes.
    void note_choices_in(ExpertChoices* choices) { choices_ = choices; }

    /// Returns [n_layers]: what passes needed of experts since construction; empty if no layer has experts.
    [[nodiscard]] std::span<const ExpertFigures> expert_figures() const { return expert_figures_; }

    // The steps of a pass, in this order.

    /// Sets the tokens of the pass to those at `nodes` of `kv`.
    void trace(PassKv& kv, std::span<const NodeId> nodes);
    /// Sets the tokens of the pass to a chain of `n` of a prompt, in scratch rows 0 to n - 1, from position `begin` on.
    void trace_chain(PassKv& kv, std::int64_t begin, std::int64_t n);
    /// Computes the RoPE angles of the first `n` tokens of paths().
    void rope_angles(std::int64_t n);
    /// Fills the residual stream with the embedding of rows.tokens.
    void embed(const PassRows& rows);
    /// Runs a layer over the residual stream.
    void run_layer(std::int64_t layer, const PassRows& rows, LayerPart part);
    /// Computes logits from the residual stream of `n_tokens` tokens, for those with the indices `logit_tokens`.
    void compute_logits(std::int64_t n_tokens, std::span<const std::int32_t> logit_tokens);

private:
    /// A product with a matrix: y = x W^T + bias. For experts, `bias` has a row for each.
    struct Product {
        TensorRole role;
        TensorView y;
        ConstTensorView bias{};
    };

    /// Rows of consecutive experts that are in memory together: those from expert_rows_' row `first` on.
    struct ExpertWave {
        std::int64_t first = 0;
        TensorView inputs;  // then the results of the experts
        TensorView gate;
        TensorView up;
    };

    /// Where the running layer finds an expert that has rows.
    enum class ExpertPlace : std::uint8_t {
        Device,  // resident, or held from a pass before
        Copied,  // on the way
        Host,    // stays in host memory, from where the CPU computes it
    };

    [[nodiscard]] ExecRef exec() const { return {model_->device(), *stream_}; }
    template <typename Bytes, typename Work>
    void stage(PassStage stage, std::int64_t layer, std::int64_t n_tokens, const Bytes& bytes, const Work& work) {
        run_stage(profile_, stage, *stream_, layer, n_tokens, bytes, work);
    }
    void norm(std::int64_t layer, const ConstTensorView& x, const ConstTensorView& weight, const TensorView& y,
              NextWeights next = {});
    void norm(std::int64_t layer, const RmsNormArgs& args);
    /// Norms the result of half a layer, or of a part of it, in place. An empty weight: there is no such norm.
    void post_norm(std::int64_t layer, const TensorView& x, const ConstTensorView& weight);
    void keys_and_values(std::int64_t layer, const PassRows& rows);
    void attend(std::int64_t layer, const PassRows& rows);
    void gate_attention(std::int64_t layer, const PassRows& rows, const TensorView& attended);
    // The fold over a layer's KV, wherever it is (model_attention.cpp).
    void fold(const AttentionArgs& args, std::int64_t layer, const PassRows& rows);
    void fold_chunks(const AttentionArgs& args, std::int64_t layer, const PassRows& rows);
    void fold_pages(AttentionArgs args, const LayerPages& pages, std::int64_t layer, const PassRows& rows);
    void fold_segments(AttentionArgs args, const ChunkRange& streamed, std::int64_t layer, const PassRows& rows);
    // Of layers that are delta nets (model_delta.cpp).
    void delta_inputs(std::int64_t layer, const PassRows& rows);
    struct TurnOperand {
        TensorView y;
        std::int64_t run = 0;  // columns that it has in each turn
    };
    void take_apart(const ConstTensorView& x, std::initializer_list<TurnOperand> operands);
    void run_delta_net(std::int64_t layer, const PassRows& rows);
    void delta_output(std::int64_t layer, const PassRows& rows);

    void feed_forward(std::int64_t layer, const PassRows& rows);
    /// Computes gate and up of the part that all tokens pass, and the activation: the result is in Activation::Gate.
    void gate_and_up(std::int64_t layer, const PassRows& rows, const ConstTensorView& normed);

    // Of layers that have experts (model_experts.cpp).
    void mixture(std::int64_t layer, const PassRows& rows);
    void choose(std::int64_t layer, const PassRows& rows, const ConstTensorView& normed);
    void weigh_shared(std::int64_t layer, const PassRows& rows, const ConstTensorView& normed);
    [[noreturn]] void refuse_damaged(std::string_view what, std::int64_t row) const;
    void compute_experts(std::int64_t layer, const PassRows& rows, const TensorView& normed, const TensorView& sums);
    void compute_wave(std::int64_t layer, const PassRows& rows, std::int32_t first, std::int32_t end,
                      const TensorView& normed, const TensorView& sums, bool from_zero);
    void compute_group(std::int64_t layer, const PassRows& rows, const ExpertWave& wave,
                       std::span<const std::int32_t> experts);
    void activate_group(std::int64_t layer, const PassRows& rows, const ExpertWave& wave,
                        std::span<const std::int32_t> experts);
    void multiply_experts(std::int64_t layer, std::int64_t first_row, std::span<const std::int32_t> experts,
                          const ConstTensorView& x, std::span<const Product> products);
    void multiply_expert_parts(std::int64_t layer, std::int64_t first_row, std::span<const std::int32_t> experts,
                               const ConstTensorView& x, std::span<const Product> products);
    [[nodiscard]] std::int64_t rows_of(std::span<const std::int32_t> experts) const;
    /// acquire_part() and the release of an item of an expert, counted in expert_figures_.
    [[nodiscard]] const std::byte* acquire_expert(std::int64_t layer, const MatrixPart& part);
    void release_expert(std::int32_t item);
    void need_experts(std::int64_t layer, const PassRows& rows);

    /// Half a layer's result: x times a matrix, plus a bias, normed if the layer has that norm. `scale` multiplies the
    /// residual stream after the addition.
    struct HalfResult {
        TensorRole matrix;
        ConstTensorView x;
        ConstTensorView bias{};
        ConstTensorView post_norm{};
        ConstTensorView scale{};
    };
    void add_to_residual(std::int64_t layer, const PassRows& rows, const HalfResult& half);

    // Products with matrices, which may be in parts and may stream (model_products.cpp).
    void multiply(std::int64_t layer, const PassRows& rows, const ConstTensorView& x, std::span<const Product> products,
                  MatmulStore store = MatmulStore::Overwrite);
    void multiply_parts(std::int64_t layer, const PassRows& rows, const ConstTensorView& x,
                        std::span<const Product> products, MatmulStore store);
    /// Returns where a part of a streamed item is on the device; waits for it.
    [[nodiscard]] const std::byte* acquire_part(std::int64_t layer, const MatrixPart& part);
    [[nodiscard]] std::size_t weight_bytes(std::int64_t layer, std::span<const Product> products,
                                           std::int32_t expert = kNoExpert) const;
    static constexpr std::array kNoExperts{kNoExpert};
    [[nodiscard]] NextWeights next_weights(std::int64_t layer, const PassRows& rows,
                                           std::initializer_list<TensorRole> roles,
                                           std::span<const std::int32_t> experts = kNoExperts) const;

    const Model* model_;
    Stream* stream_;
    Collective* collective_;
    Activations activations_;
    PassPaths paths_;
    DeltaSteps delta_steps_;  // only for caches with recurrent layers
    ExpertRows expert_rows_;
    std::vector<MatmulArgs> expert_products_;    // that are computed together
    std::vector<ExpertPlace> expert_places_;     // [experts of the running layer], of those that have rows
    std::vector<std::int32_t> expert_group_;     // experts of a wave that have rows and are in one place
    std::vector<ExpertFigures> expert_figures_;  // [n_layers]
    ExpertChoices* choices_ = nullptr;           // null: choices are not noted
    ExpertFigures* counted_ = nullptr;           // of the running layer; null: its pass is not counted
    std::vector<ItemNeed> needed_items_;         // of the experts that a layer's tokens chose: not on the device
    std::vector<float> query_factors_;           // [n_tokens] of the running pass, for one rotary embedding
    WeightStream* weights_ = nullptr;
    KvStream* kv_ = nullptr;
    PassProfile* profile_ = nullptr;
};

}  // namespace slipstream
