// Workspace of the CPU's ops (kernels/workspace.h): scratch of the device, the most that any op within the shapes
// takes.
#pragma once

#include <cstddef>

#include "kernels/device.h"
#include "kernels/workspace.h"

namespace slipstream::cpu {

[[nodiscard]] std::size_t workspace_bytes(Device& device, const WorkspaceShapes& shapes);
void reserve_workspace(Device& device, const WorkspaceShapes& shapes);

}  // namespace slipstream::cpu
