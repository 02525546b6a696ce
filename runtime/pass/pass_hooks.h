// Observers of a pass: they get the rows that a pass produces and the KV that it reads.
#pragma once

#include <cstdint>

#include "kernels/base/tensor_view.h"
#include "kernels/device.h"
#include "runtime/pass/pass_reads.h"

namespace slipstream {

/// Observes a pass: receives the rows that it produces and the KV that it reads. All views are valid for work that is
/// enqueued on the stream of `exec` during the call.
class PassHooks {
public:
    virtual ~PassHooks() = default;
    /// Gets the keys and values that a layer computes, both [n_tokens, n_kv_heads * head_dim], F32: keys after their
    /// head norm and before RoPE.
    virtual void on_rows(ExecRef /*exec*/, std::int64_t /*layer*/, const ConstTensorView& /*k*/,
                         const ConstTensorView& /*v*/) {}
    /// Gets committed KV chunks of a layer while they are on the device, in ascending order, each once; those wholly
    /// outside the layer's window may be left out. `q` [n_tokens, n_q_heads * head_dim] are the queries that read them,
    /// rotated. `n_committed` is the number of slots that are committed before these queries: fewer for a prefill chunk
    /// than for the pass after it.
    virtual void on_kv(ExecRef /*exec*/, std::int64_t /*layer*/, const KvSegment& /*segment*/,
                       const ConstTensorView& /*q*/, std::int64_t /*n_committed*/) {}
};

}  // namespace slipstream
