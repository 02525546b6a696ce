// Where Model takes its weights from: a configuration and views into memory that can be read ahead and given up.
// ModelFiles (runtime/formats) is one; so a model knows no file format.
#pragma once

#include <cstddef>
#include <span>

#include "runtime/model/model_config.h"
#include "runtime/model/weights.h"

namespace slipstream {

class WeightSource {
public:
    virtual ~WeightSource() = default;

    [[nodiscard]] virtual const ModelConfig& config() const = 0;
    /// Returns the weights by role, with shapes checked against config(). Throws FormatError, which names the tensor
    /// that is missing or has the wrong shape, and Unsupported for a type with which no device computes. Views live as
    /// long as this object.
    [[nodiscard]] virtual ModelWeights weights() const = 0;
    /// Brings the pages of `part` (of a tensor's view) into memory and into this process. Blocks.
    virtual void prefetch(std::span<const std::byte> part) const = 0;
    /// Gives up the pages of `part` after the caller has copied it elsewhere: they no longer count as this process's
    /// memory. The part stays readable; its pages return when it is touched.
    virtual void release(std::span<const std::byte> part) const = 0;
};

}  // namespace slipstream
