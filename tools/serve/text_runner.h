// Runs the texts of the queue, one at a time, on the calling thread.
#pragma once

#include <functional>
#include <string_view>

#include "tools/serve/live_feed.h"
#include "tools/serve/server_status.h"
#include "tools/serve/text_queue.h"

namespace slipstream::tools {

/// Generates the text of a job and answers its request. Reports to `status` and `live`, and calls `log` with one line,
/// which has nothing of the text. Does not throw.
void run_text(TextJob& job, TextEngine& engine, ServerStatus& status, LiveFeed& live,
              const std::function<void(std::string_view)>& log);

}  // namespace slipstream::tools
