#include "tools/chat/chat_loop.h"

#include <algorithm>
#include <csignal>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/base/error.h"
#include "runtime/text/answer/answer_reader.h"
#include "runtime/text/printable.h"
#include "tools/base/amounts.h"
#include "tools/base/kv_type_option.h"
#include "tools/base/usage_error.h"
#include "tools/chat/chat_report.h"
#include "tools/chat/chat_settings.h"
#include "tools/chat/unseen_typing.h"
#include "tools/terminal/bounded_file.h"
#include "tools/terminal/signals.h"
#include "tools/terminal/text_stream.h"

namespace slipstream::tools {

namespace {

// Returns a part of a message: how much of an interrupted prompt is kept, and that `goes_on` continues it. Empty if
// nothing is kept.
std::string saved_text(const ChatAnswer& answer, std::string_view goes_on) {
    if (!answer.saved_tokens) return {};
    return fmt::format("; {} of {} are kept, {} goes on there", *answer.saved_tokens,
                       counted(answer.result.prompt_tokens, "prompt token"), goes_on);
}

constexpr int kMostBridges = 2;  // paragraph breaks that may precede an answer of a model without a chat template

// Adds the statistics `more` of a second generation for the same answer to `sum`.
void add_to(TextGenerationResult& sum, const TextGenerationResult& more) {
    sum.stop_reason = more.stop_reason;
    sum.tokens.insert(sum.tokens.end(), more.tokens.begin(), more.tokens.end());
    sum.text_bytes += more.text_bytes;
    sum.passes += more.passes;
    sum.decode_seconds += more.prefill_seconds + more.decode_seconds;
    sum.tokens_per_second = more.tokens_per_second;
    sum.budget_mean = more.budget_mean;
}

}  // namespace

ChatLoop::ChatLoop(ChatGenerator& generator, const ChatForm& form, Console& console, InputMode mode,
                   ChatSession session, ChatFile* file, OutputCheck check_output)
    : generator_(generator),
      form_(form),
      console_(console),
      mode_(mode),
      session_(std::move(session)),
      n_loaded_(session_.messages.size()),
      file_(file),
      check_output_(std::move(check_output)) {}

int ChatLoop::run(ChatInput& input) {
    for (;;) {
        try {
            const ChatLine line = next_message(input, most_text_bytes(generator_.context_tokens()));
            if (line.kind == InputKind::End) return 0;
            if ((line.kind == InputKind::Interrupted ? on_interrupt() : on_text(line.text)) == Next::Leave)
                return exit_code();
            if (signal_exit_code() != 0 && !(mode_ == InputMode::Interactive && take_interrupt()))
                return signal_exit_code();
        } catch (const UsageError& error) {
            // The mistake is in a line of input: it must not get the hint and the exit code of a wrong command line.
            if (mode_ == InputMode::Piped) throw RequestError(error.what());
            console_.error(error.what());
        } catch (const Interrupted&) {  // send() has kept the answer so far
            if (on_interrupt() == Next::Leave) return exit_code();
        } catch (const Error& error) {
            if (mode_ == InputMode::Piped) throw;
            console_.error(error.what());
        }
        if (output_.closed()) return 0;
    }
}

// Returns whether the chat goes on after a signal: at a terminal, after a Ctrl-C and no other signal.
bool ChatLoop::goes_on() const {
    return mode_ == InputMode::Interactive && signal_exit_code() == 128 + SIGINT;
}

// Returns the exit code of a chat that a signal ended. Two Ctrl-C in a row are only in interrupts_: take_interrupt()
// has cleared each of them, so signal_exit_code() does not know them.
int ChatLoop::exit_code() const {
    const int code = signal_exit_code();
    return code == 0 && interrupts_ > 0 ? 128 + SIGINT : code;
}

// One Ctrl-C stops the answer or clears the line; two in a row end the chat.
ChatLoop::Next ChatLoop::on_interrupt() {
    if (mode_ == InputMode::Piped || !take_interrupt()) return Next::Leave;
    if (++interrupts_ >= 2) return Next::Leave;
    console_.note("Ctrl-C again leaves, and so does Ctrl-D");
    return Next::Go;
}

ChatLoop::Next ChatLoop::on_text(const std::string& text) {
    interrupts_ = 0;
    if (const auto command = parse_chat_command(text)) return obey(*command);
    const std::string message(message_of_line(text));
    const bool blank = message.find_first_not_of(" \t\r\n") == std::string::npos;
    // With a model without a chat template, an empty line lets the text go on.
    if (blank && !form_.is_one_text()) return Next::Go;
    send(blank ? std::string() : message, Unanswered::Kept);
    return Next::Go;
}

ChatLoop::Next ChatLoop::obey(const ChatCommandLine& line) {
    switch (line.command) {
        case ChatCommand::Help:
            say(chat_help());
            break;
        case ChatCommand::Stats:
            say(chat_figures(generator_));
            break;
        case ChatCommand::Context:
            show_context();
            break;
        case ChatCommand::Save:
            save_to(line.argument);
            break;
        case ChatCommand::Load:
            load(line.argument);
            break;
        case ChatCommand::Undo:
            undo();
            break;
        case ChatCommand::Regen:
            regenerate();
            break;
        case ChatCommand::Set:
            set(line.argument);
            break;
        case ChatCommand::System:
            set_system(line.argument);
            break;
        case ChatCommand::Read:
            if (line.argument.empty()) throw RequestError("/read takes the name of a file");
            send(read_text(line.argument, "/read", most_text_bytes(generator_.context_tokens())), Unanswered::Kept);
            break;
        case ChatCommand::Clear:
            session_.messages.clear();
            keep();
            console_.note("all messages are forgotten");
            break;
        case ChatCommand::Exit:
            return Next::Leave;
    }
    return Next::Go;
}

// Removes a last message that has no answer, since the program was killed: the model would read it as one with an empty
// answer.
void ChatLoop::leave_out_unanswered() {
    std::vector<Message>& messages = session_.messages;
    if (!is_unanswered()) return;
    messages.resize(messages.size() - 2);
    console_.note("the last message of the saved chat had no answer and is left out (/regen would have asked for one)");
}

void ChatLoop::send(const std::string& message, Unanswered unanswered) {
    leave_out_unanswered();
    session_.messages.push_back({"user", message});
    if (unanswered == Unanswered::Kept) keep_unanswered();
    const auto take_back = [&] {
        session_.messages.pop_back();
        if (unanswered == Unanswered::Kept) keep();
    };
    ChatAnswer answer;
    Message so_far{"assistant", ""};
    const auto has_begun = [&] { return !so_far.content.empty() || !so_far.thought.empty(); };
    const auto keep_so_far = [&] {
        if (unanswered == Unanswered::Kept && has_begun()) {
            session_.messages.push_back(so_far);
            keep();
        } else {
            take_back();
        }
    };
    try {
        answer = ask(so_far);
    } catch (const Interrupted&) {
        if (has_begun()) {  // a write that waited for a full pipe was interrupted
            keep_so_far();
            throw;
        }
        answer.result.stop_reason = StopReason::Interrupt;  // interrupted before the prompt was encoded
    } catch (...) {
        // An error while the answer is written, such as a stdout that cannot be written.
        keep_so_far();
        throw;
    }
    const bool is_interrupted = answer.result.stop_reason == StopReason::Interrupt;
    if (!is_interrupted || !answer.result.tokens.empty()) {
        session_.messages.push_back(so_far);
        keep();
        generator_.drop_prompt();
        tell(answer);
    } else if (file_ != nullptr && unanswered == Unanswered::Kept && !goes_on()) {
        session_.messages.push_back({"assistant", ""});
        console_.note("interrupted before the first word: the message is kept without an answer" +
                      saved_text(answer, "/regen"));
    } else {
        take_back();
        console_.note("stopped before the first word: the message is taken back" +
                      saved_text(answer, "the same message"));
    }
    if (is_interrupted && mode_ == InputMode::Interactive && take_interrupt()) interrupts_ = 1;
}

// Generates the answer to the last message and writes it as it is generated. If this throws, `so_far` has the part that
// was generated.
ChatAnswer ChatLoop::ask(Message& so_far) {
    const UnseenTyping unseen(mode_);
    if (output_.bytes() > 0 && output_.last_byte() != '\n') output_.write("\n");
    const TextGenerationOptions& given = session_.settings.text;
    const TextGenerationOptions options = form_.with_stops(given);
    if (mode_ == InputMode::Interactive) output_.wrap_words();
    TextStream stream(output_, console_);
    const auto save_prompt = [&] {
        if (const auto note = generator_.save_prompt()) stream.note(*note);
    };
    const AnswerForm answer_form = form_.answer_form();
    const auto prompt_after = [&](const std::string& begun) {
        return form_.prompt_text(session_.system, session_.messages, begun, session_.system_source,
                                 template_arguments());
    };
    const MarkedText prompt = prompt_after({});
    AnswerReader reader(
        answer_form, {},
        ends_in_thought(answer_form, prompt.bytes) ? AnswerReader::Start::Thought : AnswerReader::Start::Text);
    // Text is kept before it is written, since writing may throw.
    const auto show = [&](const std::vector<AnswerPiece>& pieces) {
        const auto is_thought = [](const AnswerPiece& piece) { return piece.kind == AnswerPiece::Kind::Thought; };
        for (const AnswerPiece& piece : pieces) (is_thought(piece) ? so_far.thought : so_far.content) += piece.text;
        for (const AnswerPiece& piece : pieces)
            is_thought(piece) ? stream.write_thought(piece.text) : stream.write(piece.text);
    };
    const TextGenerationCallbacks callbacks{.on_prefill =
                                                [&](std::int64_t done, std::int64_t total) {
                                                    stream.on_prefill(done, total);
                                                    save_prompt();
                                                },
                                            .on_text = [&](std::string_view text) { show(reader.push(text)); },
                                            .on_tokens =
                                                [&](std::int64_t n) {
                                                    stream.on_tokens(n);
                                                    save_prompt();
                                                },
                                            .cancel = &cancel_flag()};
    const auto generate = [&](const MarkedText& text) {
        return generator_.answer(generator_.encoded(text), session_.settings, options, callbacks);
    };
    ChatAnswer answer = generate(prompt);
    for (int i = 0; i < kMostBridges && answer.result.stop_reason == StopReason::StopString; ++i) {
        const auto bridge = form_.bridge(answer.text, given);
        if (!bridge) break;
        show(reader.push(*bridge));
        answer.text += *bridge;
        const ChatAnswer next = generate(prompt_after(answer.text));
        answer.text += next.text;
        add_to(answer.result, next.result);
    }
    show(reader.finish());
    stream.finish();
    return answer;
}

TemplateArguments ChatLoop::template_arguments() const {
    TemplateArguments arguments;
    if (const std::string_view variable = form_.thinking_variable(); session_.settings.think && !variable.empty())
        arguments.emplace_back(std::string(variable), TemplateValue(*session_.settings.think));
    return arguments;
}

void ChatLoop::tell(const ChatAnswer& answer) {
    console_.note(answer_line(answer, session_.settings.sampling, generator_, console_));
    if (const auto warning = context_warning(answer, generator_)) console_.note(*warning);
    if (const auto note = generator_.take_trace_note()) console_.note(*note);
}

// Writes the output of a command, also with -q: the user has asked for it.
void ChatLoop::say(std::string_view lines) {
    console_.draw({ControlKind::Dim, lines, ControlKind::PlainColor, lines.ends_with('\n') ? "" : "\n"});
}

void ChatLoop::undo() {
    if (session_.messages.empty()) throw RequestError("/undo: there is no message to take back");
    session_.messages.resize(session_.messages.size() - 2);
    keep();
    console_.note(session_.messages.empty()
                      ? "the first exchange is taken back"
                      : fmt::format("taken back; the last message is now: {}",
                                    printable(session_.messages[session_.messages.size() - 2].content, 60)));
}

// /regen of a message that was never answered: generates the answer with the same seed.
void ChatLoop::answer_unanswered() {
    const std::vector<Message> before = session_.messages;
    const std::string message = before[before.size() - 2].content;
    const auto restore = [&] {
        session_.messages = before;
        keep();
    };
    session_.messages.resize(before.size() - 2);
    try {
        send(message, Unanswered::Kept);
    } catch (...) {
        if (session_.messages.size() < before.size()) restore();
        throw;
    }
    if (session_.messages.size() < before.size()) {  // stopped at once
        restore();
        console_.note("the message stays without an answer");
    }
}

bool ChatLoop::is_unanswered() const {
    return !session_.messages.empty() && session_.messages.size() == n_loaded_ && ends_unanswered();
}

void ChatLoop::regenerate() {
    if (session_.messages.empty()) throw RequestError("/regen: there is no message to answer again");
    if (is_unanswered()) return answer_unanswered();
    SamplerOptions& sampling = session_.settings.sampling;
    if (sampling.temperature == 0.0)
        console_.note("temperature 0 takes the likeliest tokens whatever the seed: the answer will be the same");
    const std::vector<Message> before = session_.messages;
    const std::uint64_t seed = sampling.seed;
    const std::string message = session_.messages[session_.messages.size() - 2].content;
    session_.messages.resize(session_.messages.size() - 2);
    ++sampling.seed;
    console_.note(fmt::format("seed {}", sampling.seed));
    try {
        send(message, Unanswered::TakenBack);
    } catch (...) {
        session_.messages = before;
        sampling.seed = seed;
        throw;
    }
    if (session_.messages.size() < before.size()) {  // stopped at once
        session_.messages = before;
        console_.note("the previous answer stays");
    }
}

void ChatLoop::set(const std::string& argument) {
    if (argument.empty()) {
        std::string all;
        for (const std::string_view name : setting_names())
            all += fmt::format("  {}\n", describe_setting(session_.settings, name));
        say(all);
        return;
    }
    const std::size_t space = argument.find_first_of(" \t");
    const std::string name = argument.substr(0, space);
    const auto known = std::ranges::find(setting_names(), name) != setting_names().end();
    if (space == std::string::npos && known) {
        say(fmt::format("  {}", describe_setting(session_.settings, name)));
        return;
    }
    const std::size_t begin = space == std::string::npos ? space : argument.find_first_not_of(" \t", space);
    ChatSettings changed = session_.settings;
    change_setting(changed, name, begin == std::string::npos ? "" : argument.substr(begin),
                   fmt::format("/set {}", name));
    if (name == "think" && form_.thinking_variable().empty())
        throw RequestError(
            fmt::format("/set think: the chat template does not read {}", fmt::join(kThinkingVariables, " or ")));
    generator_.check(changed);
    session_.settings = std::move(changed);
    keep();
    console_.note(describe_setting(session_.settings, name));
}

void ChatLoop::set_system(const std::string& argument) {
    if (argument.empty()) {
        say(session_.system ? fmt::format("  {}", *session_.system) : "  nothing (/system TEXT)");
        return;
    }
    if (argument == "none") {
        session_.system.reset();
    } else {
        session_.system = argument;
    }
    session_.system_source = SystemSource::User;
    keep();
    console_.note(session_.system ? "the next answer has this system message"
                                  : "the next answer has no system message");
}

void ChatLoop::load(const std::string& argument) {
    if (argument.empty()) throw RequestError("/load takes the name of a file");
    ChatSession loaded = load_chat_session(argument, session_.settings);
    generator_.check(loaded.settings);
    loaded.model = session_.model;
    session_ = std::move(loaded);
    n_loaded_ = session_.messages.size();
    const DType kv_dtype = generator_.model().kv_dtype();
    if (session_.kv_dtype && *session_.kv_dtype != kv_dtype)
        console_.note(fmt::format("{} was held with a KV cache of {}; this chat goes on with {}", argument,
                                  kv_type_option(*session_.kv_dtype), kv_type_option(kv_dtype)));
    session_.kv_dtype = kv_dtype;
    keep();
    console_.note(describe_messages(argument, session_));
    if (const auto note = system_note(argument, session_, form_)) console_.note(*note);
}

void ChatLoop::save_to(const std::string& argument) {
    if (argument.empty() && file_ == nullptr)
        throw RequestError("/save takes the name of a file, for there is no --session");
    std::error_code error;
    if (argument.empty() || (file_ != nullptr && std::filesystem::equivalent(argument, file_->path(), error))) {
        keep();
        console_.note(fmt::format("saved to {}", file_->path().string()));
        return;
    }
    check_output_("/save", argument);
    ChatFile file(argument);
    static_cast<void>(file.load(session_.settings));  // throws if the file is no chat, which must not be replaced
    file.save(session_);
    console_.note(fmt::format("saved to {}", argument));
}

void ChatLoop::show_context() {
    std::int64_t used = 0;
    if (!session_.messages.empty()) {
        std::vector<Message> messages = session_.messages;
        const std::string answer = messages.back().content;
        messages.pop_back();
        used = std::ssize(
            form_.prompt(session_.system, messages, answer, session_.system_source, template_arguments()).tokens);
    }
    say(fmt::format("  {}; {} in {}", context_gauge(used, generator_.context_tokens(), console_),
                    counted(used, "token"), counted(std::ssize(session_.messages) / 2, "exchange")));
}

void ChatLoop::keep() {
    if (file_ != nullptr) file_->save(session_);
}

// Saves the last message before it is answered. If the program is killed before the answer, only the answer is lost.
void ChatLoop::keep_unanswered() {
    session_.messages.push_back({"assistant", ""});
    try {
        keep();
    } catch (const Error&) {
        // The chat is saved again with the answer, and an error is reported then.
    }
    session_.messages.pop_back();
}

}  // namespace slipstream::tools
