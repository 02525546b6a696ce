// What a pass hands out on its way to whoever wants it: rows that it makes, KV that it reads.
#pragma once

#include <cstdint>

#include "kernels/base/tensor_view.h"
#include "kernels/device.h"
#include "runtime/pass/pass_reads.h"

namespace slipstream {

/// Who wants what a pass has in its hands anyway. All views hold for work that is enqueued on the stream of `exec`
/// during the call.
class PassHooks {
public:
    virtual ~PassHooks() = default;
    /// What a layer makes for the KV, [n_tokens, n_kv_heads * head_dim] both, F32: keys before rope, and values.
    virtual void on_rows(ExecRef /*exec*/, std::int64_t /*layer*/, const ConstTensorView& /*k*/,
                         const ConstTensorView& /*v*/) {}
    /// Committed chunks of a layer as they pass by, ascending, each once, those wholly outside of a layer's window left
    /// out at will; the queries that read them [n_tokens, n_q_heads * head_dim], turned; and the slots that are
    /// committed before those: fewer for a prefill chunk than for the pass behind it.
    virtual void on_kv(ExecRef /*exec*/, std::int64_t /*layer*/, const KvSegment& /*segment*/,
                       const ConstTensorView& /*q*/, std::int64_t /*n_committed*/) {}
};

}  // namespace slipstream
