#include "tools/serve/serve_options.h"

#include <arpa/inet.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "tools/base/usage_error.h"
#include "tools/options/offload_options.h"
#include "tools/options/settings.h"
#include "tools/terminal/bounded_file.h"

namespace slipstream::tools {

namespace {

constexpr std::size_t kMostKeyBytes = 4096;
constexpr std::string_view kKeyVariable = "SLIPSTREAM_API_KEY";

// Returns whether `host` is a loopback address. A name such as 127.example.org is not, whatever it resolves to.
bool is_loopback(const std::string& host) {
    if (host.empty() || host == "localhost" || host == "::1") return true;
    in_addr address{};
    return host.starts_with("127.") && inet_pton(AF_INET, host.c_str(), &address) == 1;
}

// Returns the key without line ends after it. Throws RequestError, which names `where`, unless the key is one word of
// visible ASCII, as a header field requires.
std::string checked_key(std::string key, std::string_view where) {
    while (!key.empty() && (key.back() == '\n' || key.back() == '\r')) key.pop_back();
    const bool is_word = std::ranges::all_of(key, [](char c) { return c > ' ' && c < '\x7f'; });
    if (key.empty() || !is_word)
        throw RequestError(fmt::format("{}: one line without blanks is expected as the key", where));
    return key;
}

std::string key_setting(const Settings& settings) {
    if (const auto path = settings.path("api-key-file"))
        return checked_key(read_text(*path, "--api-key-file", kMostKeyBytes), "--api-key-file");
    const std::optional<std::string> key = settings.environment()(std::string(kKeyVariable));
    return key ? checked_key(*key, kKeyVariable) : std::string();
}

}  // namespace

std::vector<OptionSpec> serve_option_specs() {
    return {{"host", "--host", "H", "Address to listen on [127.0.0.1 and ::1]; another one needs a key or --insecure"},
            {"port", "--port", "N", "Port to listen on; 0: any free one [8080]"},
            {"api-key-file", "--api-key-file", "F",
             "File with the key that clients must send [the variable SLIPSTREAM_API_KEY]", OptionRole::InputFile},
            {"insecure", "--insecure", "", "Listen on another address than loopback without a key"},
            {"allow-host", "--allow-host", "NAME",
             "Name by which clients may address the server, besides IP addresses and localhost (may be repeated)"},
            {"allow-origin", "--allow-origin", "ORIGIN",
             "Origin whose pages may use the server, such as app://obsidian.md; '*': all (may be repeated)"},
            {"alias", "-a,--alias", "NAME", "Name of the model for clients [that of its file]"},
            kept_memory_option(
                "Most host memory for the KV of earlier texts, so that their prompts are not computed again; 0: only "
                "the last text is kept [what is left, at most 4G]")};
}

ListenSettings listen_settings(const Settings& settings) {
    ListenSettings listen{.host = settings.text("host").value_or("")};
    if (const auto port = settings.integer("port", {0, 65535})) listen.port = static_cast<std::uint16_t>(*port);
    listen.access = {
        .key = key_setting(settings), .hosts = settings.texts("allow-host"), .origins = settings.texts("allow-origin")};
    if (!listen.host.empty()) listen.access.hosts.push_back(listen.host);
    if (!is_loopback(listen.host) && listen.access.key.empty() && !settings.flag("insecure"))
        throw UsageError(
            fmt::format("--host {}: other machines could use the server; give a key by --api-key-file F or {}, "
                        "or --insecure",
                        listen.host, kKeyVariable));
    return listen;
}

}  // namespace slipstream::tools
