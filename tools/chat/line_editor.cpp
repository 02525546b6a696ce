#include "tools/chat/line_editor.h"

#include <histedit.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cwchar>
#include <initializer_list>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/text/utf8.h"
#include "tools/chat/line_history.h"
#include "tools/terminal/signals.h"

namespace slipstream::tools {

namespace {

// Milliseconds between two checks for a signal while the editor waits for a key. A signal that another thread received
// does not interrupt poll().
constexpr int kSignalPollMs = 200;
constexpr std::wstring_view kPasteEnd = L"\x1b[201~";

// Set by the handler of SIGWINCH; a lock-free atomic, which a signal handler may write.
std::atomic<bool> window_changed{false};
void on_resize(int /*signal*/) {
    window_changed.store(true);
}

std::wstring wide(std::string_view text) {
    std::wstring result;
    while (!text.empty()) {
        const Utf8Step step = next_utf8(text);
        const bool complete = step.kind == Utf8Kind::Complete;
        result += static_cast<wchar_t>(complete ? code_point(text) : U'\ufffd');
        text.remove_prefix(step.kind == Utf8Kind::Unfinished ? text.size() : step.length);
    }
    return result;
}

std::string narrow(std::wstring_view text) {
    std::string result;
    for (const wchar_t c : text) append_utf8(static_cast<char32_t>(c), result);
    return result;
}

// Opens a stream to the console for libedit's error messages. They quote TERM and the user's .editrc, so the console
// must escape them. Returns null if there is no memory.
std::FILE* open_reports(Console& console) {
    cookie_io_functions_t functions{};
    functions.write = [](void* cookie, const char* bytes, std::size_t n) {
        static_cast<Console*>(cookie)->draw(std::string_view(bytes, n));
        return static_cast<ssize_t>(n);
    };
    std::FILE* reports = fopencookie(&console, "w", functions);
    if (reports != nullptr) std::setvbuf(reports, nullptr, _IOLBF, BUFSIZ);
    return reports;
}

// Converts a pasted text to newlines, since a terminal sends a carriage return for each, and removes those at its end.
std::string with_newlines(std::string_view text) {
    std::string result(text);
    std::ranges::replace(result, '\r', '\n');
    while (result.ends_with('\n')) result.pop_back();
    return result;
}

}  // namespace

struct LineEditor::State {
    State(const EnvironmentReader& environment, Console& for_messages);
    ~State();
    State(const State&) = delete;
    State& operator=(const State&) = delete;

    static State& of(EditLine* line) {
        void* state = nullptr;
        el_wget(line, EL_CLIENTDATA, &state);
        return *static_cast<State*>(state);
    }
    static wchar_t* on_prompt(EditLine* line) { return of(line).prompt.data(); }
    static int on_read(EditLine* line, wchar_t* character) { return of(line).read_character(*character); }
    static unsigned char on_paste(EditLine* line, int /*key*/) { return of(line).paste(); }

    void bind(const wchar_t* keys, const wchar_t* function) { el_wset(editor, EL_BIND, keys, function, nullptr); }
    void draw(std::initializer_list<DrawnPart> parts) const {
        if (can_bracket) console.draw(parts);
    }
    void begin_reading();
    int read_character(wchar_t& character);
    void draw_anew();
    void take_terminal_back();
    unsigned char paste();
    [[nodiscard]] std::string expanded(std::string line) const;
    void remember(const std::wstring& line);

    Console& console;
    LineHistory kept;
    bool can_bracket;
    std::FILE* reports;
    EditLine* editor = nullptr;
    HistoryW* history = nullptr;
    struct sigaction window_before {};
    termios terminal_before{};
    std::wstring prompt;
    std::string unread;  // bytes of stdin that are read and not yet passed to libedit
    bool after_return = false;
    struct Pasted {
        std::string mark, text;
    };
    std::vector<Pasted> pasted;
    bool history_fails = false;
    bool reads = false;  // begin_reading() was called for this line
};

LineEditor::State::State(const EnvironmentReader& environment, Console& for_messages)
    : console(for_messages),
      kept(history_path(environment)),
      can_bracket(for_messages.draws()),
      reports(open_reports(for_messages)) {
    // Input is UTF-8 whatever the user's locale is, and libedit takes the width of characters from the locale.
    std::setlocale(LC_CTYPE, "C.UTF-8");
    history = history_winit();
    editor = history == nullptr || reports == nullptr ? nullptr : el_init("slipstream", stdin, stderr, reports);
    if (editor == nullptr) {
        if (history != nullptr) history_wend(history);
        if (reports != nullptr) std::fclose(reports);
        throw IoError("the terminal cannot be used for typing; set TERM to what it is, or pipe the messages in");
    }
    HistEventW event;
    history_w(history, &event, H_SETSIZE, static_cast<int>(LineHistory::kMostLines));
    for (const std::string& line : kept.lines()) history_w(history, &event, H_ENTER, wide(line).c_str());
    el_wset(editor, EL_CLIENTDATA, this);
    el_wset(editor, EL_PROMPT, &State::on_prompt);
    el_wset(editor, EL_EDITOR, L"emacs");
    el_wset(editor, EL_HIST, history_w, history);
    el_wset(editor, EL_GETCFN, &State::on_read);
    // By default libedit makes the terminal exchange CR and LF, so that CR LF would arrive as LF CR.
    el_wset(editor, EL_SETTY, L"-d", L"-inlcr", L"-icrnl", nullptr);
    el_wset(editor, EL_ADDFN, L"slipstream-paste", L"Take a pasted text", &State::on_paste);
    bind(L"^W", L"ed-delete-prev-word");
    bind(L"^R", L"em-inc-search-prev");
    bind(L"\\e[3~", L"ed-delete-next-char");
    bind(L"\\e[1;5C", L"em-next-word");
    bind(L"\\e[1;5D", L"ed-prev-word");
    el_source(editor, nullptr);
    bind(L"\\e[200~", L"slipstream-paste");
    struct sigaction action {};
    sigemptyset(&action.sa_mask);
    action.sa_handler = on_resize;
    sigaction(SIGWINCH, &action, &window_before);
}

LineEditor::State::~State() {
    sigaction(SIGWINCH, &window_before, nullptr);
    el_end(editor);
    history_wend(history);
    std::fclose(reports);
}

// Enables bracketed paste. Called at the first read of a line, since libedit has set the terminal's mode by then:
// earlier, the terminal would echo the sequence.
void LineEditor::State::begin_reading() {
    termios now{};
    if (tcgetattr(STDIN_FILENO, &now) == 0)
        restore_terminal_when_leaving(terminal_before, now, can_bracket ? "\x1b[?2004l\r\n" : "\r\n");
    draw({ControlKind::PasteMarks});
}

// Reads one character of stdin, as libedit's EL_GETCFN: returns 1; 0 at the end of input; -1 after a signal.
int LineEditor::State::read_character(wchar_t& character) {
    if (!std::exchange(reads, true)) begin_reading();
    for (;;) {
        if (!unread.empty()) {
            const Utf8Step step = next_utf8(unread);
            if (step.kind != Utf8Kind::Unfinished) {
                const bool complete = step.kind == Utf8Kind::Complete;
                character = static_cast<wchar_t>(complete ? code_point(unread) : U'\ufffd');
                unread.erase(0, step.length);
                // A paste with CR LF line ends arrives with both: the LF is dropped.
                const bool ends_same_line = std::exchange(after_return, character == L'\r') && character == L'\n';
                if (ends_same_line) continue;
                return 1;
            }
        }
        if (signal_exit_code() != 0) {
            errno = EINTR;
            return -1;
        }
        if (was_continued()) take_terminal_back();
        if (window_changed.exchange(false)) draw_anew();
        pollfd input{STDIN_FILENO, POLLIN, 0};
        if (poll(&input, 1, kSignalPollMs) <= 0) continue;
        std::array<char, 4096> piece;
        const ssize_t n = read(STDIN_FILENO, piece.data(), piece.size());
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n <= 0) return static_cast<int>(n);
        unread.append(piece.data(), n);
    }
}

// Redraws the line after the window's width changed. Nearly all terminals wrap a line again for the new width if the
// cursor had run over the edge, as it does with libedit. So the row on which the line begins is computed for the new
// width, and everything from there is erased.
void LineEditor::State::draw_anew() {
    el_resize(editor);
    const LineInfoW* line = el_wline(editor);
    const int width =
        wcswidth(prompt.data(), prompt.size()) + std::max(0, wcswidth(line->buffer, line->cursor - line->buffer));
    const int rows = width / console.columns();
    draw({ControlKind::LineStart});
    if (rows > 0) draw({TerminalControl(ControlKind::Up, rows)});
    draw({ControlKind::EraseBelow});
    el_wset(editor, EL_REFRESH);
}

// After SIGCONT: sets the terminal's mode again, which the shell had changed, and redraws the line.
void LineEditor::State::take_terminal_back() {
    el_wset(editor, EL_PREP_TERM, 0);
    el_wset(editor, EL_PREP_TERM, 1);
    draw({ControlKind::LineStart, ControlKind::PasteMarks});
    el_wset(editor, EL_REFRESH);
}

// Reads a paste up to the terminal's end sequence. Inserts a single line as it is, and a mark for several lines.
unsigned char LineEditor::State::paste() {
    std::wstring raw;
    while (!raw.ends_with(kPasteEnd)) {
        wchar_t character = 0;
        if (read_character(character) != 1) return CC_EOF;
        raw += character;
    }
    raw.resize(raw.size() - kPasteEnd.size());
    const std::string text = with_newlines(narrow(raw));
    const auto n_newlines = std::count(text.begin(), text.end(), '\n');
    std::wstring shown = wide(text);
    if (n_newlines > 0) {
        pasted.push_back({fmt::format("[paste {}: {} lines]", pasted.size() + 1, n_newlines + 1), text});
        shown = wide(pasted.back().mark);
    }
    for (wchar_t& character : shown)
        if (character < L' ' || character == 0x7f) character = L' ';
    if (!shown.empty() && el_winsertstr(editor, shown.c_str()) != 0) return CC_ERROR;
    return CC_REFRESH;
}

std::string LineEditor::State::expanded(std::string line) const {
    for (const Pasted& piece : pasted)
        for (std::size_t at = line.find(piece.mark); at != std::string::npos;
             at = line.find(piece.mark, at + piece.text.size()))
            line.replace(at, piece.mark.size(), piece.text);
    return line;
}

// Adds the line to the history of this run and, unless it contains the mark of a paste, to the file: a later run could
// not expand the mark.
void LineEditor::State::remember(const std::wstring& line) {
    const std::string text = narrow(line);
    if (text.empty()) return;
    HistEventW event;
    history_w(history, &event, H_ENTER, line.c_str());
    const bool has_mark =
        std::ranges::any_of(pasted, [&](const Pasted& piece) { return text.find(piece.mark) != std::string::npos; });
    if (has_mark || history_fails || kept.add(text)) return;
    history_fails = true;
    console.detail("the history of lines cannot be written: it ends with this run");
}

LineEditor::LineEditor(const EnvironmentReader& environment, Console& console)
    : state_(std::make_unique<State>(environment, console)) {}

LineEditor::~LineEditor() = default;

ChatLine LineEditor::next_line(std::string_view prompt) {
    State& state = *state_;
    state.prompt = wide(prompt);
    el_resize(state.editor);  // the window may have changed since the last line
    state.reads = false;
    static_cast<void>(was_continued());  // an earlier SIGCONT needs no action: el_wgets() sets the mode
    static_cast<void>(tcgetattr(STDIN_FILENO, &state.terminal_before));
    int length = 0;
    const wchar_t* typed = el_wgets(state.editor, &length);
    terminal_is_restored();
    state.draw({ControlKind::NoPasteMarks, ControlKind::LineStart});
    if (signal_exit_code() != 0) {
        state.console.draw("\n");
        return {InputKind::Interrupted, {}};
    }
    if (typed == nullptr || length <= 0) {
        state.console.draw("\n");
        return {InputKind::End, {}};
    }
    std::wstring line(typed, length);
    while (line.ends_with(L'\n') || line.ends_with(L'\r')) line.pop_back();
    state.remember(line);
    return {InputKind::Text, state.expanded(narrow(line))};
}

}  // namespace slipstream::tools
