// Products of a pass with matrices that are cut into parts, resident or streamed.
#include <array>

#include "kernels/matmul.h"
#include "runtime/pass/model_pass.h"

namespace slipstream {

PassStage product_stage(TensorRole role) {
    switch (role) {
        case TensorRole::AttnOut:
        case TensorRole::DeltaOut:
            return PassStage::Output;
        case TensorRole::Gate:
            return PassStage::GateUp;
        case TensorRole::Down:
            return PassStage::Down;
        case TensorRole::LmHead:
            return PassStage::Head;
        default:
            return PassStage::Qkv;
    }
}

// Computes y = x W^T + bias for each product, timed as one stage; waits for the weights that stream.
void ModelPass::multiply(std::int64_t layer, const PassRows& rows, const ConstTensorView& x,
                         std::span<const Product> products, MatmulStore store) {
    const PassStage of_product = product_stage(products.front().role);
    stage(
        of_product, of_product == PassStage::Head ? -1 : layer, x.rows(), [&] { return weight_bytes(layer, products); },
        [&] { multiply_parts(layer, rows, x, products, store); });
}

std::size_t ModelPass::weight_bytes(std::int64_t layer, std::span<const Product> products, std::int32_t expert) const {
    std::size_t bytes = 0;
    for (const Product& product : products)
        for (const MatrixPart& part : model_->parts(layer, product.role, expert)) bytes += rows_bytes(part.packed);
    return bytes;
}

// A matrix may be in several parts; each part makes columns of y. Parts that are on the device at the same time go to
// the kernel together; a streamed item is computed with, and released, where its last part ends.
void ModelPass::multiply_parts(std::int64_t layer, const PassRows& rows, const ConstTensorView& x,
                               std::span<const Product> products, MatmulStore store) {
    std::array<MatmulArgs, 8> batch;
    std::size_t n = 0;
    const auto compute = [&] {
        matmuls(exec(), std::span(batch).first(n));
        n = 0;
    };
    for (const Product& product : products) {
        for (const MatrixPart& part : model_->parts(layer, product.role)) {
            const std::int64_t n_rows = part.packed.shape[0];
            const bool streams = model_->streams(part.item);
            MatmulArgs& args = batch[n++];
            args = {
                .weights = part.packed, .x = x, .y = matrix_columns(product.y, part.first_row, n_rows), .store = store};
            if (rows.phase == Phase::Prefill)
                args.prompt = PrefillChunk{.first_token = rows.n_committed % kPrefillChunkTokens,
                                           .first_row = part.first_row,
                                           .matrix_rows = product.y.shape[1]};
            if (streams) args.weights.data = acquire_part(layer, part);
            if (!product.bias.empty()) args.bias = matrix_columns(product.bias, part.first_row, n_rows);
            const bool ends = streams && part.ends_item;
            if (ends || n == batch.size()) compute();
            if (ends) weights_->release_item(part.item, *stream_);
        }
    }
    if (n > 0) compute();
}

const std::byte* ModelPass::acquire_part(std::int64_t layer, const MatrixPart& part) {
    const std::byte* data = nullptr;
    stage(PassStage::Wait, layer, -1, no_bytes,
          [&] { data = weights_->acquire_item(part.item, *stream_) + part.offset; });
    return data;
}

// Returns the types of the matrices of `roles` in a layer, or in those of its `experts`, which are multiplied with an
// op's output next: the op may lay out its output for them. Returns none in prefill chunks, whose kernels may need
// another layout.
NextWeights ModelPass::next_weights(std::int64_t layer, const PassRows& rows, std::initializer_list<TensorRole> roles,
                                    std::span<const std::int32_t> experts) const {
    NextWeights next;
    if (rows.phase == Phase::Prefill) return next;
    for (const TensorRole role : roles)
        for (const std::int32_t expert : experts)
            for (const MatrixPart& part : model_->parts(layer, role, expert))
                next.set(static_cast<std::size_t>(part.packed.dtype));
    return next;
}

}  // namespace slipstream
