// A session as the text of a bench: a long prompt is read once, by the run that began the session, and never again. The
// file stays as it is.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "tools/engine/engine.h"
#include "tools/options/command.h"

namespace slipstream::tools {

/// Opens the session and puts its context and KV type into `compute`. Throws RequestError where there is none, or where
/// options demand another context or KV type, and what opening a session throws.
[[nodiscard]] TextSession open_bench_session(const std::filesystem::path& path, const Settings& settings,
                                             ComputeOptions& compute);
/// Prompt and what was generated.
[[nodiscard]] std::vector<TokenId> session_text(const TextSession& session);

}  // namespace slipstream::tools
