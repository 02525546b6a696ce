// The kernels of the emulated machine's table: the very launch functions of kernels/cuda, compiled for the host.
#include "emulated_blas.h"
#include "emulated_machine.h"
#include "emulated_nccl.h"
#include "kernels/cuda/launches.h"
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
    table.prompt_product = prompt_product;
#define SLIPSTREAM_RUN_LAUNCH(name, Launch) table.name = run<Launch, launch_##name>;
    SLIPSTREAM_CUDA_LAUNCHES(SLIPSTREAM_RUN_LAUNCH)
#undef SLIPSTREAM_RUN_LAUNCH
    return table;
}

}  // namespace

const cuda::Module& Machine::table() const {
    static cuda::Module table = full_table();
    table.architectures = state_->options.architectures;
    return table;
}

}  // namespace slipstream::emulation
