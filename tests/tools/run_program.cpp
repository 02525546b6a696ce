#include "tests/tools/run_program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <system_error>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/tools/temporary_folder.h"

namespace slipstream::tools {

namespace {

constexpr auto kTimeLimit = std::chrono::seconds(120);

// {read end, write end}
std::array<int, 2> make_pipe() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
    return ends;
}

const std::string& empty_home() {
    static const TemporaryFolder folder;
    static const std::string path = folder.path().string();
    return path;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
    std::vector<char*> result;
    for (std::string& text : texts) result.push_back(text.data());
    result.push_back(nullptr);
    return result;
}

void close_end(int& descriptor) {
    if (descriptor >= 0) close(descriptor);
    descriptor = -1;
}

}  // namespace

void wait_until_asleep(pid_t process) {
    const auto end = std::chrono::steady_clock::now() + kTimeLimit;
    const std::string folder = fmt::format("/proc/{}/", process);
    for (int times = 0; times < 10;) {
        if (std::chrono::steady_clock::now() > end) throw std::runtime_error("the program does not come to rest");
        const std::string status = file_text(folder + "status");
        const std::size_t caught = status.find("SigCgt:");
        const bool handles = caught != std::string::npos &&
                             (std::stoull(status.substr(caught + 7), nullptr, 16) & (1ULL << (SIGINT - 1))) != 0;
        // All threads must sleep: the main thread also sleeps while it waits for a worker that has no core yet.
        bool sleeps = true;
        std::error_code gone;
        for (std::filesystem::directory_iterator thread(folder + "task", gone), end_of_list;
             !gone && thread != end_of_list; thread.increment(gone))
            sleeps = sleeps && file_text(thread->path().string() + "/status").find("State:\tS") != std::string::npos;
        sleeps = sleeps && !gone;
        times = handles && sleeps ? times + 1 : 0;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
}

RunningProgram::RunningProgram(const ProgramRun& run)
    : ends_with_children_(run.ends_with_children), unsent_(run.input) {
    signal(SIGPIPE, SIG_IGN);  // the program may leave its stdin unread
    const auto in = make_pipe();
    const auto out = make_pipe();
    const auto err = make_pipe();
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    if (run.output_pipe_bytes > 0 && fcntl(out[1], F_SETPIPE_SZ, run.output_pipe_bytes) < 0)
        throw std::system_error(errno, std::generic_category(), "size of a pipe");
    for (const int end : {out[1], err[1]})
        if (run.nonblocking && fcntl(end, F_SETFL, O_NONBLOCK) != 0)
            throw std::system_error(errno, std::generic_category(), "a pipe that does not block");
    posix_spawn_file_actions_adddup2(&actions, run.terminal >= 0 ? run.terminal : in[0], STDIN_FILENO);
    if (run.terminal >= 0) {
        posix_spawn_file_actions_adddup2(&actions, run.terminal, STDOUT_FILENO);
    } else if (run.stdout_path.empty()) {
        posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    } else {
        posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, run.stdout_path.c_str(), O_WRONLY, 0);
    }
    posix_spawn_file_actions_adddup2(&actions, run.terminal >= 0 ? run.terminal : err[1], STDERR_FILENO);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t defaults;
    sigemptyset(&defaults);
    // As a shell starts it, whatever started the tests (nohup).
    for (const int number : {SIGPIPE, SIGHUP, SIGINT, SIGQUIT, SIGTERM}) sigaddset(&defaults, number);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(
        &attributes, static_cast<short>(POSIX_SPAWN_SETSIGDEF | (run.ends_with_children ? POSIX_SPAWN_SETPGROUP : 0)));

    // Inputs of tests fit into a pipe; written now, since the program may be gone before it has read them.
    if (!unsent_.empty() && write(in[1], unsent_.data(), unsent_.size()) != static_cast<ssize_t>(unsent_.size()))
        throw std::runtime_error("stdin of the program takes nothing");

    std::vector<std::string> arguments;
    if (!run.shell.empty()) arguments = {"sh", "-c", run.shell};
    arguments.emplace_back(SLIPSTREAM_PROGRAM);
    arguments.insert(arguments.end(), run.arguments.begin(), run.arguments.end());
    std::vector<std::string> variables;
    if (!run.environment.contains("PATH")) variables.emplace_back("PATH=/usr/bin:/bin");
    if (!run.environment.contains("HOME")) variables.push_back("HOME=" + empty_home());
    for (const auto& [name, value] : run.environment) variables.push_back(fmt::format("{}={}", name, value));
    const int error = posix_spawn(&process_, run.shell.empty() ? SLIPSTREAM_PROGRAM : "/bin/sh", &actions, &attributes,
                                  pointers(arguments).data(), pointers(variables).data());
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    for (const int end : {in[0], out[1], err[1]}) close(end);
    in_ = in[1];
    out_ = out[0];
    err_ = err[0];
    if (error != 0) throw std::system_error(error, std::generic_category(), SLIPSTREAM_PROGRAM);
    if (!run.input_goes_on) close_end(in_);
}

RunningProgram::~RunningProgram() {
    if (process_ > 0) {
        end_now();
        waitpid(process_, nullptr, 0);
    }
    for (int* end : {&in_, &out_, &err_}) close_end(*end);
}

void RunningProgram::read_some(int& descriptor, std::string& text, std::chrono::milliseconds patience) {
    pollfd waiting{descriptor, POLLIN, 0};
    if (poll(&waiting, 1, static_cast<int>(patience.count())) <= 0) return;
    std::array<char, 65536> piece;
    const ssize_t n = read(descriptor, piece.data(), piece.size());
    if (n > 0) {
        text.append(piece.data(), static_cast<std::size_t>(n));
    } else {
        close_end(descriptor);
    }
}

void RunningProgram::wait_for_output(std::size_t bytes) {
    const auto end = std::chrono::steady_clock::now() + kTimeLimit;
    while (result_.out.size() < bytes) {
        if (out_ < 0 || std::chrono::steady_clock::now() > end) throw std::runtime_error("no output came");
        read_some(out_, result_.out, std::chrono::milliseconds(100));
    }
}

bool RunningProgram::is_running() const {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
}

std::ptrdiff_t RunningProgram::n_unfinished_files(const std::string& folder) const {
    namespace fs = std::filesystem;
    std::ptrdiff_t n = 0;
    std::error_code error;
    for (fs::directory_iterator at(fmt::format("/proc/{}/fd", process_), error), end; !error && at != end;
         at.increment(error)) {
        std::error_code closed;
        const std::string name = fs::read_symlink(at->path(), closed).string();
        if (name.starts_with(folder + "/") && (name.ends_with(" (deleted)") || name.ends_with(".part"))) ++n;
    }
    return n;
}

void RunningProgram::send(int signal) const {
    kill(process_, signal);
}

void RunningProgram::end_now() const {
    kill(ends_with_children_ ? -process_ : process_, SIGKILL);
}

void RunningProgram::close_output() {
    close_end(out_);
}

ProgramResult RunningProgram::finish() {
    const auto end = std::chrono::steady_clock::now() + kTimeLimit;
    while (out_ >= 0 || err_ >= 0) {
        if (std::chrono::steady_clock::now() > end) end_now();
        if (out_ >= 0) read_some(out_, result_.out, std::chrono::milliseconds(err_ >= 0 ? 5 : 100));
        if (err_ >= 0) read_some(err_, result_.err, std::chrono::milliseconds(out_ >= 0 ? 5 : 100));
    }
    int status = 0;
    waitpid(process_, &status, 0);
    process_ = -1;
    result_.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1 - WTERMSIG(status);
    return std::move(result_);
}

ProgramResult run_program(const ProgramRun& run) {
    return RunningProgram(run).finish();
}

ProgramResult run_program(const std::vector<std::string>& arguments) {
    ProgramRun run;
    run.arguments = arguments;
    return run_program(run);
}

nlohmann::json run_with_statistics(std::vector<std::string> arguments, std::string& text) {
    const TemporaryFolder folder;
    const std::string file = (folder.path() / "stats.json").string();
    arguments.insert(arguments.end(), {"--stats", file});
    const ProgramResult result = run_program(arguments);
    EXPECT_EQ(result.code, 0) << result.err;
    text = result.out;
    return nlohmann::json::parse(file_text(file), nullptr, false);
}

std::string source_path(const std::string& name) {
    return std::string(SLIPSTREAM_SOURCE_DIR "/") + name;
}

std::string data_path(const std::string& name) {
    return std::string(SLIPSTREAM_SOURCE_DIR "/../shared/data/") + name;
}

std::string cached_model(const std::string& name) {
    const char* cache = std::getenv("XDG_CACHE_HOME");
    const char* home = std::getenv("HOME");
    if (cache == nullptr && home == nullptr) return "";
    const auto folder = cache != nullptr ? std::filesystem::path(cache) : std::filesystem::path(home) / ".cache";
    const auto path = folder / "slipstream/models" / name;
    return std::filesystem::exists(path) ? path.string() : "";
}

std::string file_text(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace slipstream::tools
