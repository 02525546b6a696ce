// ChatLoop: reads messages and commands, and writes the answers to stdout and everything else to stderr.
//
// At a terminal, an error is a line on stderr and the chat goes on. In a pipe, an error ends the chat.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "tools/chat/chat_commands.h"
#include "tools/chat/chat_file.h"
#include "tools/chat/chat_generator.h"
#include "tools/chat/chat_input.h"
#include "tools/chat/chat_session.h"
#include "tools/engine/engine.h"
#include "tools/terminal/console.h"
#include "tools/terminal/file_output.h"

namespace slipstream::tools {

enum class InputMode : std::uint8_t { Piped, Interactive };

class ChatLoop {
public:
    /// Called before `command` (its name, for messages) writes the file `path`. Throws if it may not.
    using OutputCheck = std::function<void(std::string_view command, const std::filesystem::path& path)>;

    /// Prepares a chat that run() runs. `file`: the session is saved to it after every change; null: it is not saved.
    /// All references and `file` must outlive this object.
    ChatLoop(ChatGenerator& generator, const ChatForm& form, Console& console, InputMode mode, ChatSession session,
             ChatFile* file, OutputCheck check_output);

    /// Runs until the input ends, the reader of stdout closes it, or the user leaves by a command or a signal. Returns
    /// the exit code. With piped input, throws what a command or an answer throws.
    [[nodiscard]] int run(ChatInput& input);

    [[nodiscard]] const ChatSession& session() const { return session_; }
    /// Whether the last message has no answer.
    [[nodiscard]] bool ends_unanswered() const { return tools::ends_unanswered(session_); }
    [[nodiscard]] const TextOutput& output() const { return output_; }
    [[nodiscard]] TextOutput& output() { return output_; }

private:
    enum class Next : std::uint8_t { Go, Leave };
    /// What happens to a message whose answer is interrupted before its first word, if the chat ends then.
    enum class Unanswered : std::uint8_t { Kept, TakenBack };

    [[nodiscard]] Next on_text(const std::string& text);
    [[nodiscard]] Next on_interrupt();
    [[nodiscard]] Next obey(const ChatCommandLine& line);
    void send(const std::string& message, Unanswered unanswered);
    [[nodiscard]] ChatAnswer ask(Message& so_far);
    [[nodiscard]] TemplateArguments template_arguments() const;
    void tell(const ChatAnswer& answer);
    void say(std::string_view lines);
    void undo();
    void regenerate();
    void answer_unanswered();
    void set(const std::string& argument);
    void set_system(const std::string& argument);
    void load(const std::string& argument);
    void save_to(const std::string& argument);
    void show_context();
    void keep();
    void keep_unanswered();
    void leave_out_unanswered();
    [[nodiscard]] bool is_unanswered() const;
    [[nodiscard]] bool goes_on() const;
    [[nodiscard]] int exit_code() const;

    ChatGenerator& generator_;
    const ChatForm& form_;
    Console& console_;
    InputMode mode_;
    ChatSession session_;
    std::size_t n_loaded_;  // messages of session_ when it was loaded
    ChatFile* file_;
    OutputCheck check_output_;
    TextOutput output_{std::nullopt};
    int interrupts_ = 0;  // consecutive Ctrl-C, with no message in between
};

}  // namespace slipstream::tools
