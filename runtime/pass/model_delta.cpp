// ModelPass: the first half of a layer that is a delta net.
#include <array>

#include "kernels/base/check.h"
#include "kernels/delta_net.h"
#include "runtime/pass/model_pass.h"

namespace slipstream {

namespace {

// Returns the bytes of state that a pass reads and writes.
std::size_t state_bytes(const DeltaNetShape& shape, bool writes) {
    return static_cast<std::size_t>(shape.state_floats() + shape.tap_floats()) * sizeof(float) * (writes ? 2 : 1);
}

const float* floats(const ConstTensorView& view) {
    return reinterpret_cast<const float*>(view.data);
}

}  // namespace

void ModelPass::trace(PassKv& kv, std::span<const NodeId> nodes) {
    paths_.trace(kv, nodes);
    if (kv.states() != nullptr) delta_steps_.trace(kv, nodes);
}

void ModelPass::trace_chain(PassKv& kv, std::int64_t begin, std::int64_t n) {
    paths_.trace_chain(begin, n);
    if (kv.states() != nullptr) delta_steps_.trace_prompt(*kv.states(), begin, n);
}

void ModelPass::delta_inputs(std::int64_t layer, const PassRows& rows) {
    using enum TensorRole;
    const DeltaNetConfig& net = model_->config().delta_net(layer);
    const DeltaNetShape& shape = net.shape;
    const std::int64_t n = rows.n();
    const TensorView normed = activations_.rows(Activation::Normed, n, model_->config().d_model);
    norm(layer, activations_.hidden(n), model_->weights().layers[layer][AttnNorm], normed,
         next_weights(layer, rows, {DeltaIn, DeltaGate, DeltaDecayIn, DeltaBeta}));
    const TensorView inputs = activations_.rows(Activation::DeltaRows, n, shape.row_cols());
    const std::int64_t convolved = shape.convolved_cols();
    const TensorView in = matrix_columns(inputs, 0, convolved);
    const TensorView gate = activations_.rows(Activation::AttnGate, n, shape.value_cols());
    const TensorView decay = matrix_columns(inputs, convolved, shape.n_value_heads);
    const TensorView beta = matrix_columns(inputs, convolved + shape.n_value_heads, shape.n_value_heads);
    // Products whose columns belong to several operands in turn are taken apart afterwards.
    const std::int64_t n_in = net.gate_in_inputs ? convolved + shape.value_cols() : 0;
    const std::int64_t n_beta = net.decay_in_beta ? 2 * shape.n_value_heads : 0;
    const TensorView grouped = activations_.rows(Activation::Grouped, n, n_in + n_beta);
    const TensorView in_and_gate = matrix_columns(grouped, 0, n_in);
    const TensorView beta_and_decay = matrix_columns(grouped, n_in, n_beta);
    std::array<Product, 4> products;
    std::size_t n_products = 0;
    products[n_products++] = {DeltaIn, net.gate_in_inputs ? in_and_gate : in};
    if (!net.gate_in_inputs) products[n_products++] = {DeltaGate, gate};
    if (!net.decay_in_beta) products[n_products++] = {DeltaDecayIn, decay};
    products[n_products++] = {DeltaBeta, net.decay_in_beta ? beta_and_decay : beta};
    multiply(layer, rows, normed, std::span(products).first(n_products));
    const std::int64_t per_key = shape.n_value_heads / shape.n_key_heads;
    if (net.gate_in_inputs)
        take_apart(in_and_gate,
                   {{matrix_columns(in, 0, shape.key_cols()), shape.key_dim},
                    {matrix_columns(in, shape.key_cols(), shape.key_cols()), shape.key_dim},
                    {matrix_columns(in, 2 * shape.key_cols(), shape.value_cols()), per_key * shape.value_dim},
                    {gate, per_key * shape.value_dim}});
    if (net.decay_in_beta) take_apart(beta_and_decay, {{beta, per_key}, {decay, per_key}});
}

// Copies the columns of `x`, which are a run of each operand in turn, again and again, to the operands.
void ModelPass::take_apart(const ConstTensorView& x, std::initializer_list<TurnOperand> operands) {
    std::int64_t stride = 0;
    for (const TurnOperand& operand : operands) stride += operand.run;
    std::int64_t first = 0;
    for (const TurnOperand& operand : operands) {
        gather_columns(exec(), {.x = x, .y = operand.y, .run = operand.run, .first = first, .stride = stride});
        first += operand.run;
    }
}

// Takes the tokens through the recurrence: reads the layer's state, writes its next state, stores the inputs of draft
// tokens. The result is in Activation::Attended.
void ModelPass::run_delta_net(std::int64_t layer, const PassRows& rows) {
    using enum TensorRole;
    const DeltaNetShape& shape = model_->config().delta_net(layer).shape;
    const LayerWeights& weights = model_->weights().layers[layer];
    RecurrentStates& states = *rows.kv->states();
    const TensorView inputs = activations_.rows(Activation::DeltaRows, rows.n(), shape.row_cols());
    const TensorView result = activations_.rows(Activation::Attended, rows.n(), shape.value_cols());
    // No two of the three states have the same number of positions.
    const std::int64_t first = delta_steps_.before();
    CHECK(first == states.kept() || first == states.next(layer) || first == states.prompt(layer),
          "layer {}: a pass from position {}, the states end at {}, {} and {}", layer, first, states.kept(),
          states.next(layer), states.prompt(layer));
    const RecurrentStates::State before = first == states.kept()        ? states.kept_state(layer)
                                          : first == states.next(layer) ? states.next_state(layer)
                                                                        : states.prompt_state(layer);
    const RecurrentStates::State next =
        delta_steps_.is_prompt() ? states.prompt_state(layer) : states.next_state(layer);
    states.bring_back(exec());
    if (first > 0 && first % kPrefillChunkTokens == 0) states.make_checkpoint(exec(), layer, first, before);
    stage(
        PassStage::Attention, layer, rows.n(), [&] { return state_bytes(shape, delta_steps_.writes()); },
        [&] {
            states.store_drafts(exec(), layer, inputs, delta_steps_.first_draft(), delta_steps_.drafts());
            RecurrentStates::State from = before;
            for (const DeltaSteps::Part& part : delta_steps_.parts()) {
                delta_net(exec(), {.shape = shape,
                                   .rows = inputs.slice_rows(part.first_row, part.n_rows),
                                   .stored = states.stored(layer),
                                   .steps = part.steps,
                                   .n_kept = part.n_kept,
                                   .n_working = part.n_working,
                                   .conv = floats(weights[DeltaConv]),
                                   .decay_rates = floats(weights[DeltaDecay]),
                                   .decay_bias = floats(weights[DeltaDecayBias]),
                                   .state = from.state,
                                   .taps = from.taps,
                                   .kept_state = next.state,
                                   .kept_taps = next.taps,
                                   .convolved =
                                       reinterpret_cast<float*>(activations_.memory(Activation::DeltaConvolved).data()),
                                   .out = result.slice_rows(part.first_row, part.n_rows)});
                from = next;
                if (&part != &delta_steps_.parts().back()) states.make_checkpoint(exec(), layer, part.after, next);
            }
        });
    if (!delta_steps_.writes()) return;
    if (delta_steps_.is_prompt())
        states.set_prompt(layer, delta_steps_.after());
    else
        states.set_next(layer, delta_steps_.after());
}

void ModelPass::delta_output(std::int64_t layer, const PassRows& rows) {
    using enum TensorRole;
    const DeltaNetShape& shape = model_->config().delta_net(layer).shape;
    const TensorView result = activations_.rows(Activation::Attended, rows.n(), shape.value_cols());
    const TensorView heads = as_heads(result, shape.value_dim);
    norm(layer, heads, model_->weights().layers[layer][DeltaNorm], heads);
    const TensorView gate = activations_.rows(Activation::AttnGate, rows.n(), shape.value_cols());
    stage(
        PassStage::Activation, layer, rows.n(), [&] { return rows_bytes(gate) + rows_bytes(result); },
        [&] {
            gated_activation(exec(), {.gate = gate,
                                      .up = result,
                                      .y = result,
                                      .kind = GatedActivation::Silu,
                                      .next = next_weights(layer, rows, {DeltaOut})});
        });
    add_to_residual(layer, rows, {.matrix = DeltaOut, .x = result});
}

}  // namespace slipstream
