// The workspace ops (kernels/workspace.h) of the CPU. The workspace is the scratch of the CpuDevice, as large as the
// most that a matmul or attention within the shapes takes.
#pragma once

#include <cstddef>

#include "kernels/device.h"
#include "kernels/workspace.h"

namespace slipstream::cpu {

/// Returns the bytes of the memory budget that reserve_workspace() would take on a device without scratch.
[[nodiscard]] std::size_t workspace_bytes(Device& device, const WorkspaceShapes& shapes);
/// Allocates the scratch for `shapes`, so that no op within the shapes allocates later. `device` must be a CpuDevice.
void reserve_workspace(Device& device, const WorkspaceShapes& shapes);

}  // namespace slipstream::cpu
