#include "tools/bench/bench_session.h"

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "tools/options/compute_options.h"
#include "tools/options/settings.h"

namespace slipstream::tools {

TextSession open_bench_session(const std::filesystem::path& path, const Settings& settings, ComputeOptions& compute) {
    SessionRequest asked{.path = path};
    if (settings.on_command_line("ctx") != nullptr) asked.context_tokens = compute.context_tokens;
    if (settings.on_command_line("kv-type") != nullptr) asked.kv_dtype = compute.kv_dtype;
    asked.split = settings.on_command_line("split") != nullptr;
    asked.shares = settings.on_command_line("shares") != nullptr;
    TextSession session(std::move(asked), SessionUse::Read);
    if (!session.resumes())
        throw RequestError(fmt::format(
            "there is no session {}; begin one by 'slipstream generate --session F -n 1 --prompt-file TEXT'",
            path.string()));
    TextGenerationOptions unused;
    session.decide(compute, unused);
    return session;
}

std::vector<TokenId> session_text(const TextSession& session) {
    std::vector<TokenId> text = session.begin().prompt;
    text.insert(text.end(), session.tokens().begin(), session.tokens().end());
    return text;
}

}  // namespace slipstream::tools
