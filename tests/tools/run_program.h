// Runs the built program as a user would: own environment, given stdin, everything it says kept.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include <sys/types.h>

#include <nlohmann/json_fwd.hpp>

namespace slipstream::tools {

struct ProgramResult {
    int code = -1;  // exit code; -1 - N where signal N killed it
    std::string out;
    std::string err;
};

struct ProgramRun {
    std::vector<std::string> arguments;
    std::string input;  // stdin
    // All variables, besides PATH and an empty HOME, if they are not in it.
    std::map<std::string, std::string> environment;
    std::string stdout_path;     // where stdout goes instead of into the result
    int terminal = -1;           // descriptor that stdin, stdout and stderr are, instead of pipes; nothing is read then
    std::string shell;           // commands of sh that end in running "$0" "$@", which is the program; empty: no shell
    bool input_goes_on = false;  // stdin stays open behind `input`, as if somebody were about to write more
    int output_pipe_bytes = 0;   // room in the pipe of stdout; 0: as the system has it
    bool ends_with_children = false;  // a run of more than two minutes is killed with all that `shell` has started
    bool nonblocking = false;  // the pipes of stdout and stderr do not block, as if shared with a program of that kind
};

/// Runs to the end. A run of more than two minutes is killed.
[[nodiscard]] ProgramResult run_program(const ProgramRun& run);
[[nodiscard]] ProgramResult run_program(const std::vector<std::string>& arguments);

/// The statistics of a run that is expected to end well, and in `text` what it said.
[[nodiscard]] nlohmann::json run_with_statistics(std::vector<std::string> arguments, std::string& text);

/// Waits until the program `process` has installed its signal handlers and all its threads sleep. Throws after two
/// minutes.
void wait_until_asleep(pid_t process);

/// The program with stdout on a pipe, still running.
class RunningProgram {
public:
    explicit RunningProgram(const ProgramRun& run);
    ~RunningProgram();  // kills what still runs
    RunningProgram(const RunningProgram&) = delete;
    RunningProgram& operator=(const RunningProgram&) = delete;

    /// Waits for so many bytes of stdout.
    void wait_for_output(std::size_t bytes);
    void wait_until_asleep() const { tools::wait_until_asleep(process_); }
    void send(int signal) const;
    /// Files in `folder` that the program writes and that do not have their name yet.
    [[nodiscard]] std::ptrdiff_t n_unfinished_files(const std::string& folder) const;
    [[nodiscard]] bool is_running() const;
    /// Nobody reads stdout any more.
    void close_output();
    [[nodiscard]] ProgramResult finish();

private:
    friend ProgramResult run_program(const ProgramRun& run);
    void read_some(int& descriptor, std::string& text, std::chrono::milliseconds patience);
    void end_now() const;

    const bool ends_with_children_;
    pid_t process_ = -1;
    int out_ = -1;
    int err_ = -1;
    int in_ = -1;
    std::string unsent_;
    ProgramResult result_;
};

/// The path of a file of the source tree.
[[nodiscard]] std::string source_path(const std::string& name);
/// The path of a file of the data folder beside the checkout, which need not be there.
[[nodiscard]] std::string data_path(const std::string& name);
/// The path of a model in the user's cache (tools/get_model), or "" where it is not there.
[[nodiscard]] std::string cached_model(const std::string& name);
[[nodiscard]] std::string file_text(const std::string& path);

}  // namespace slipstream::tools
