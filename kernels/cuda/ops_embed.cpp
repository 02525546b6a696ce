// Ops that the host computes: rows of the embedding, which stays in host memory, and the angles of RoPE, which are
// computed in double. The device's host threads write both to pinned memory, from where they are copied in stream
// order.
#include <algorithm>
#include <cstdint>

#include "kernels/cpu/elementwise.h"
#include "kernels/cuda/host/cuda_op.h"
#include "kernels/cuda/op_table.h"
#include "kernels/elementwise.h"

namespace slipstream::cuda {

void embed(ExecRef exec, const EmbedArgs& args) {
    CHECK(args.y.packed() || args.y.rows() <= 1, "embedding rows of {} bytes", args.y.row_stride_bytes);
    Op op(exec);
    CHECK(op.graph() == nullptr, "embedding rows in a graph: they are the host's");
    const std::int64_t d = args.table.cols();
    op.device().staging().send_rows(op.stream(), args.y.data, row_bytes(DType::F32, d), args.y.rows(),
                                    [&](std::byte* out, std::int64_t first, std::int64_t n) {
                                        auto* rows = reinterpret_cast<float*>(out);
                                        op.device().pool().run(n, 4, [&](std::int64_t begin, std::int64_t end, int) {
                                            for (std::int64_t t = begin; t < end; ++t)
                                                cpu::embed_row(args, first + t, rows + t * d);
                                        });
                                    });
}

void rope_table(ExecRef exec, const RopeTableArgs& args) {
    CHECK(args.cos_sin.packed() || args.cos_sin.rows() <= 1, "rope angles in rows of {} bytes",
          args.cos_sin.row_stride_bytes);
    Op op(exec);
    CHECK(op.graph() == nullptr, "rope angles in a graph: they are the host's");
    const std::int64_t half = args.cos_sin.cols() / 2;
    op.device().staging().send_rows(
        op.stream(), args.cos_sin.data, row_bytes(DType::F32, 2 * half), args.cos_sin.rows(),
        [&](std::byte* out, std::int64_t first, std::int64_t n) {
            auto* rows = reinterpret_cast<float*>(out);
            const std::int64_t piece = std::max<std::int64_t>(1, 1024 / std::max<std::int64_t>(1, half));
            op.device().pool().run(n, piece, [&](std::int64_t begin, std::int64_t end, int) {
                for (std::int64_t t = begin; t < end; ++t) cpu::rope_row(args, first + t, rows + t * 2 * half);
            });
        });
}

}  // namespace slipstream::cuda
