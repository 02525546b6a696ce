// The self-check of a target on one device, with the second forward pass that it computes with.
#pragma once

#include "runtime/loop/device_target.h"
#include "runtime/loop/self_check.h"

namespace slipstream {

struct PlainPasses {
    PlainPasses(const Model& model, KvCache& cache, PassStream* pass)
        : forward(model, check_forward_limits(), pass), plain(forward, cache) {}
    Forward forward;
    DeviceTarget plain;
};

class DeviceSelfCheck : private PlainPasses, public SelfCheck {
public:
    /// `pass` as Forward takes it.
    DeviceSelfCheck(const Model& model, KvCache& cache, PassStream* pass = nullptr)
        : PlainPasses(model, cache, pass), SelfCheck(plain) {}
};

}  // namespace slipstream
