// The kernels of the emulated machine's table: the very launch functions of kernels/cuda, compiled for the host.
#include "emulated_blas.h"
#include "emulated_machine.h"
#include "emulated_nccl.h"
#include "kernels/cuda/attention/attention_launch.h"
#include "kernels/cuda/elementwise_launch.h"
#include "kernels/cuda/kv_launch.h"
#include "kernels/cuda/kv_view_launch.h"
#include "kernels/cuda/link_pace_launch.h"
#include "kernels/cuda/matmul/matmul_launch.h"
#include "kernels/cuda/matmul/prompt_launch.h"
#include "kernels/cuda/sampling_launch.h"
#include "tests/cuda_emulation/machine_state.h"

namespace slipstream::emulation {

namespace {

using namespace cuda;  // of the launches

// Parameters are copied, as a card does; the place that a stream has among kernels is all that it is here.
template <typename Launch, void (*kLaunch)(const Launch&, void*)>
Status run(Place place, const Launch* launch, ErrorText* error) {
    return enqueue(
        place, [launch = *launch] { kLaunch(launch, nullptr); }, error);
}

cuda::Module full_table() {
    cuda::Module table = runtime_table();
    table.can_access_peer = can_access_peer;
    table.nccl_version = nccl_version;
    table.make_communicators = make_communicators;
    table.free_communicator = free_communicator;
    table.abort_communicator = abort_communicator;
    table.sum_parts = sum_parts;
    table.gather_parts = gather_parts;
    table.add = run<AddLaunch, launch_add>;
    table.argmax = run<ArgmaxLaunch, launch_argmax>;
    table.attention = run<AttentionLaunch, launch_attention>;
    table.gumbel = run<GumbelLaunch, launch_gumbel>;
    table.kv_commit = run<KvCommitLaunch, launch_kv_commit>;
    table.kv_gather = run<KvGatherLaunch, launch_kv_gather>;
    table.kv_score = run<KvScoreLaunch, launch_kv_score>;
    table.kv_write = run<KvWriteLaunch, launch_kv_write>;
    table.link_pace = run<LinkPaceLaunch, launch_link_pace>;
    table.logit_sum = run<LogitSumLaunch, launch_logit_sum>;
    table.matmul = run<MatmulLaunch, launch_matmul>;
    table.move_rows = run<MoveRowsLaunch, launch_move_rows>;
    table.prompt_activations = run<PromptActivationsLaunch, launch_prompt_activations>;
    table.prompt_product = prompt_product;
    table.prompt_store = run<PromptStoreLaunch, launch_prompt_store>;
    table.prompt_weights = run<PromptWeightsLaunch, launch_prompt_weights>;
    table.rms_norm = run<RmsNormLaunch, launch_rms_norm>;
    table.rope = run<RopeLaunch, launch_rope>;
    table.rotate_write = run<RotateWriteLaunch, launch_rotate_write>;
    table.swiglu = run<SwigluLaunch, launch_swiglu>;
    table.top_k = run<TopKLaunch, launch_top_k>;
    return table;
}

}  // namespace

const cuda::Module& Machine::table() const {
    static cuda::Module table = full_table();
    table.architectures = state_->options.architectures;
    return table;
}

}  // namespace slipstream::emulation
