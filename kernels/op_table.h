// A backend is a table of functions, one per op. Each gets the arguments of the op's header, already checked. The CPU
// has one table per kernel variant; a loadable backend passes its table through one extern "C" entry.
#pragma once

#include <cstddef>
#include <span>

namespace slipstream {

class Device;
struct ExecRef;
struct AddArgs;
struct AttentionArgs;
struct ChooseExpertsArgs;
struct CombineExpertsArgs;
struct DeltaNetArgs;
struct EmbedArgs;
struct GatedActivationArgs;
struct GatherColumnsArgs;
struct KvCommitArgs;
struct KvGatherArgs;
struct KvScoreArgs;
struct KvWriteArgs;
struct LogitArgmaxArgs;
struct LogitGumbelArgs;
struct LogitSumArgs;
struct LogitTopKArgs;
struct MatmulArgs;
struct MoveRowsArgs;
struct PackWeightsArgs;
struct PagesAttentionArgs;
struct PagesWriteArgs;
struct RmsNormArgs;
struct RopeArgs;
struct RopeTableArgs;
struct RotateWriteArgs;
struct SoftcapArgs;
struct WorkspaceShapes;

struct OpTable {
    void (*add)(ExecRef, const AddArgs&);
    void (*attention)(ExecRef, const AttentionArgs&);
    void (*choose_experts)(ExecRef, const ChooseExpertsArgs&);
    void (*combine_experts)(ExecRef, const CombineExpertsArgs&);
    void (*delta_net)(ExecRef, const DeltaNetArgs&);
    void (*embed)(ExecRef, const EmbedArgs&);
    void (*gated_activation)(ExecRef, const GatedActivationArgs&);
    void (*gather_columns)(ExecRef, const GatherColumnsArgs&);
    void (*grouped_matmul)(ExecRef, std::span<const MatmulArgs>);
    void (*kv_commit)(ExecRef, const KvCommitArgs&);
    void (*kv_gather)(ExecRef, const KvGatherArgs&);
    void (*kv_score)(ExecRef, const KvScoreArgs&);
    void (*kv_write)(ExecRef, const KvWriteArgs&);
    void (*logit_argmax)(ExecRef, const LogitArgmaxArgs&);
    void (*logit_gumbel)(ExecRef, const LogitGumbelArgs&);
    void (*logit_sum)(ExecRef, const LogitSumArgs&);
    void (*logit_top_k)(ExecRef, const LogitTopKArgs&);
    void (*matmul)(ExecRef, const MatmulArgs&);
    void (*matmuls)(ExecRef, std::span<const MatmulArgs>);  // null: matmul is called for each product
    void (*move_rows)(ExecRef, const MoveRowsArgs&);
    void (*pack_weights)(ExecRef, const PackWeightsArgs&);
    void (*reserve_workspace)(Device&, const WorkspaceShapes&);
    void (*rms_norm)(ExecRef, const RmsNormArgs&);
    void (*rope)(ExecRef, const RopeArgs&);
    void (*rope_table)(ExecRef, const RopeTableArgs&);
    void (*rotate_write)(ExecRef, const RotateWriteArgs&);  // null: rms_norm, rope and kv_write are called instead
    void (*softcap)(ExecRef, const SoftcapArgs&);
    void (*view_pages_attention)(ExecRef, const PagesAttentionArgs&);
    void (*view_pages_write)(ExecRef, const PagesWriteArgs&);
    std::size_t (*workspace_bytes)(Device&, const WorkspaceShapes&);
};

}  // namespace slipstream
