// The ops of a CUDA device for kernels/op_table.h. They turn checked arguments into launch parameters. Defined in the
// ops_*.cpp.
#pragma once

#include "kernels/op_table.h"

namespace slipstream {
struct KvLayout;
}

namespace slipstream::cuda {

[[nodiscard]] const OpTable& op_table();

void add(ExecRef exec, const AddArgs& args);
void attention(ExecRef exec, const AttentionArgs& args);
void choose_experts(ExecRef exec, const ChooseExpertsArgs& args);
void combine_experts(ExecRef exec, const CombineExpertsArgs& args);
void delta_net(ExecRef exec, const DeltaNetArgs& args);
void embed(ExecRef exec, const EmbedArgs& args);
void gated_activation(ExecRef exec, const GatedActivationArgs& args);
void gather_columns(ExecRef exec, const GatherColumnsArgs& args);
void grouped_matmul(ExecRef exec, std::span<const MatmulArgs> products);
void kv_commit(ExecRef exec, const KvCommitArgs& args);
void kv_gather(ExecRef exec, const KvGatherArgs& args);
void kv_score(ExecRef exec, const KvScoreArgs& args);
void kv_write(ExecRef exec, const KvWriteArgs& args);
void logit_argmax(ExecRef exec, const LogitArgmaxArgs& args);
void logit_gumbel(ExecRef exec, const LogitGumbelArgs& args);
void logit_sum(ExecRef exec, const LogitSumArgs& args);
void logit_top_k(ExecRef exec, const LogitTopKArgs& args);
void matmul(ExecRef exec, const MatmulArgs& args);
void matmuls(ExecRef exec, std::span<const MatmulArgs> products);
void move_rows(ExecRef exec, const MoveRowsArgs& args);
void pack_weights(ExecRef exec, const PackWeightsArgs& args);
void reserve_workspace(Device& device, const WorkspaceShapes& shapes);
void rms_norm(ExecRef exec, const RmsNormArgs& args);
void rope(ExecRef exec, const RopeArgs& args);
void rope_table(ExecRef exec, const RopeTableArgs& args);
void rotate_write(ExecRef exec, const RotateWriteArgs& args);
void softcap(ExecRef exec, const SoftcapArgs& args);
void view_pages_attention(ExecRef exec, const PagesAttentionArgs& args);
void view_pages_write(ExecRef exec, const PagesWriteArgs& args);
[[nodiscard]] std::size_t workspace_bytes(Device& device, const WorkspaceShapes& shapes);

}  // namespace slipstream::cuda
