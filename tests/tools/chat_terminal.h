// A person at a terminal, for tests of chat: the program on a pseudo terminal of its own, keys that are typed, and the
// screen as it looks afterwards.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tests/tools/run_program.h"
#include "tests/tools/temporary_folder.h"

namespace slipstream::tools {

class ChatTerminal {
public:
    /// Starts `slipstream chat` with these arguments and a session file, in a home of its own, on a terminal of
    /// `columns`; returns when it waits for the first line.
    ChatTerminal(const std::vector<std::string>& arguments, int columns);
    ~ChatTerminal();  // ends what still runs
    ChatTerminal(const ChatTerminal&) = delete;
    ChatTerminal& operator=(const ChatTerminal&) = delete;

    void type(std::string_view keys);
    /// Waits for bytes that stand behind those that were waited for before. Throws where they do not come.
    void wait_for(std::string_view text);
    /// Waits until keys are read one by one: before that the terminal itself would show them.
    void wait_for_prompt();
    /// Types a line and waits until the next one is asked for.
    void send(std::string_view line);
    /// Types a message and waits until `n_bytes` of its answer are on the screen, counted in complete lines: a progress
    /// bar or a rate is only ever drawn on the last one, and a slow program draws many bytes of them before its answer.
    void begin_answer(std::string_view message, std::size_t n_bytes);
    void resize(int columns);
    void send_signal(int signal) const;
    /// Waits until all threads of the program sleep, which they do at the prompt.
    void wait_until_asleep() const { tools::wait_until_asleep(process_); }
    /// Closes the window.
    void hang_up();
    /// Whether the terminal did not show what is typed at some time before the program greeted.
    [[nodiscard]] bool hid_typing_before_greeting() const { return hid_typing_before_greeting_; }
    /// Whether the terminal shows what is typed.
    [[nodiscard]] bool echoes() const;
    /// Whether a shell would find the terminal as it left it: lines, echo, signals, and pastes without brackets.
    [[nodiscard]] bool is_as_before() const;
    /// Waits for the end; the exit code, or -1 - N where signal N ended it.
    [[nodiscard]] int finish();

    /// All that came, from `begin` on.
    [[nodiscard]] const std::string& bytes() const { return bytes_; }
    [[nodiscard]] std::filesystem::path session() const { return home_.path() / "session.json"; }
    [[nodiscard]] std::filesystem::path history() const {
        return home_.path() / ".local" / "state" / "slipstream" / "chat_history";
    }
    /// Messages of the session file, user's and answers in turns.
    [[nodiscard]] std::vector<std::string> messages() const;

private:
    bool read_some(int patience_ms);
    void wait_for_greeting();

    TemporaryFolder home_;
    pid_t process_ = -1;
    int terminal_ = -1;
    std::string bytes_;
    std::size_t seen_ = 0;
    bool hid_typing_before_greeting_ = false;
};

/// What the terminal shows of these bytes, on lines of any length: knows what libedit writes (cursor, erasing,
/// inserting and deleting), throws for other sequences. Spaces at the ends of lines are left out.
[[nodiscard]] std::string screen_text(std::string_view bytes);

}  // namespace slipstream::tools
