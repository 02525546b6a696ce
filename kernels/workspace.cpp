#include "kernels/workspace.h"

#include "kernels/base/check.h"
#include "kernels/op_table.h"

namespace slipstream {

namespace {

void check_shapes(const WorkspaceShapes& shapes) {
    CHECK(shapes.n_tokens >= 0 && shapes.max_cols >= 0 && shapes.prompt_rows >= 0,
          "workspace for {} tokens, {} columns, {} rows for prompts", shapes.n_tokens, shapes.max_cols,
          shapes.prompt_rows);
    for (const auto& [kv, n_q_heads] : shapes.attention)
        CHECK(!kv.state.empty() ||
                  (kv.n_kv_heads > 0 && kv.head_dim > 0 && n_q_heads > 0 && n_q_heads % kv.n_kv_heads == 0),
              "workspace for {} heads over {} of {}", n_q_heads, kv.n_kv_heads, kv.head_dim);
    CHECK(shapes.n_logit_rows == 0 || (shapes.n_logit_rows > 0 && shapes.vocab > 0), "workspace for logits [{}, {}]",
          shapes.n_logit_rows, shapes.vocab);
}

}  // namespace

std::size_t workspace_bytes(Device& device, const WorkspaceShapes& shapes) {
    check_shapes(shapes);
    return device.ops().workspace_bytes(device, shapes);
}

void reserve_workspace(Device& device, const WorkspaceShapes& shapes) {
    check_shapes(shapes);
    device.ops().reserve_workspace(device, shapes);
}

}  // namespace slipstream
