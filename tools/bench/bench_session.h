// A session as the text of a benchmark: its long prompt was prefilled by the run that began the session, and is not
// prefilled again. The session file is not changed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "tools/engine/engine.h"
#include "tools/options/command.h"

namespace slipstream::tools {

/// Opens the session and stores its context and KV type in `compute`. Throws RequestError if there is no session or if
/// options ask for another context or KV type, and what opening a session throws.
[[nodiscard]] TextSession open_bench_session(const std::filesystem::path& path, const Settings& settings,
                                             ComputeOptions& compute);
/// Returns the prompt and the generated tokens of the session.
[[nodiscard]] std::vector<TokenId> session_text(const TextSession& session);

}  // namespace slipstream::tools
