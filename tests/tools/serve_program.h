// `slipstream serve` as a program under test.
#pragma once

#include <chrono>
#include <cstdint>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/tools/run_program.h"
#include "tests/tools/serve/raw_client.h"
#include "tests/tools/temporary_folder.h"

namespace slipstream::tools {

inline constexpr std::chrono::seconds kTimeLimit{60};

template <typename Condition>
bool becomes(Condition is_so) {
    const auto end = std::chrono::steady_clock::now() + kTimeLimit;
    while (!is_so()) {
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return true;
}

/// The program, serving on a free port.
class Server {
public:
    explicit Server(const std::vector<std::string>& more = {}, std::map<std::string, std::string> environment = {})
        : program_(run_of(log_path(), more, std::move(environment))) {
        constexpr std::string_view kPlace = "listening at http://127.0.0.1:";
        const bool listens = becomes([&] {
            const std::string log = file_text(log_path());
            const std::size_t at = log.find(kPlace);
            if (at == std::string::npos) return !program_.is_running();
            port_ = static_cast<std::uint16_t>(std::stoi(log.substr(at + kPlace.size())));
            return true;
        });
        if (!listens || port_ == 0) throw std::runtime_error("it does not listen: " + program_.finish().err);
    }

    [[nodiscard]] RawClient connect() const { return RawClient(port_); }
    [[nodiscard]] RawAnswer post(std::string_view path, const nlohmann::json& body) const {
        RawClient client = connect();
        client.send(post_request(path, body.dump()));
        return read_answer(client);
    }
    [[nodiscard]] std::string get(std::string_view path) const {
        RawClient client = connect();
        client.send(get_request(path));
        return read_answer(client).body;
    }
    [[nodiscard]] bool is_idle() const {
        return !nlohmann::json::parse(get("/slots")).at(0).at("is_processing").get<bool>();
    }
    [[nodiscard]] std::string log() const { return file_text(log_path()); }
    [[nodiscard]] RunningProgram& program() { return program_; }

private:
    [[nodiscard]] std::string log_path() const { return (folder_.path() / "log").string(); }
    static ProgramRun run_of(const std::string& log, const std::vector<std::string>& more,
                             std::map<std::string, std::string> environment) {
        std::ofstream{log};
        ProgramRun run;
        run.arguments = {"serve", "--port", "0", "--log-file", log, "--tables", "off"};
        run.arguments.insert(run.arguments.end(), more.begin(), more.end());
        run.environment = std::move(environment);
        return run;
    }

    TemporaryFolder folder_;
    RunningProgram program_;
    std::uint16_t port_ = 0;
};

/// Returns a figure of `/metrics`; -1: there is none of that name.
[[nodiscard]] inline std::int64_t metric(const Server& server, std::string_view name) {
    const std::string text = server.get("/metrics");
    const std::string line = fmt::format("\nslipstream:{} ", name);
    const std::size_t at = text.find(line);
    return at == std::string::npos ? -1 : std::stoll(text.substr(at + line.size()));
}

}  // namespace slipstream::tools
