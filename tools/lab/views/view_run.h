// Runs a comparison of KV views.
#pragma once

#include "tools/lab/views/view_report.h"
#include "tools/lab/views/view_request.h"
#include "tools/options/command.h"

namespace slipstream::tools {

/// Compares the views on the text of a file or of a session. All views are fed the same tokens, whatever they predict
/// (view_comparison.h). Throws RequestError if the text is too short or if something would stream, Interrupted after a
/// signal, and what loading throws.
[[nodiscard]] ViewsResult run_views(const ViewsRequest& request, CommandContext& context);

}  // namespace slipstream::tools
