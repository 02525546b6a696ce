#include "tests/tools/program_texts.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <sstream>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/tools/program_values.h"
#include "tests/tools/run_program.h"
#include "tests/tools/temporary_folder.h"

namespace slipstream::tools {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kShownBytes = 3000;  // of an output, in the text of a failure

constexpr std::string_view kNameLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789abcdefghijklmnopqrstuvwxyz";
constexpr std::string_view kCapitals = kNameLetters.substr(0, 37);  // and digits
// Variables of commands that no `for` may have.
constexpr std::array<std::string_view, 6> kOtherVariables{"CASE", "DATA", "HOME", "MODEL", "PATH", "SOURCE"};

enum class Presence { Never, Maybe, Always };

using Lines = std::span<const ProgramLine>;

// A word that begins a line, and what belongs to it.
struct Form {
    std::string_view word;
    Presence text;
    Presence block;
    bool is_expectation;
};

// A form of two words is before the form of its first word.
constexpr std::array kForms{
    Form{"shell", Presence::Never, Presence::Always, false},
    Form{"case", Presence::Always, Presence::Never, false},
    Form{"needs model", Presence::Always, Presence::Never, false},
    Form{"needs", Presence::Always, Presence::Never, false},
    Form{"file", Presence::Always, Presence::Always, false},
    Form{"for", Presence::Always, Presence::Maybe, false},
    Form{"end", Presence::Never, Presence::Never, false},
    Form{"$", Presence::Always, Presence::Maybe, false},
    Form{"exit", Presence::Always, Presence::Never, true},
    Form{"several lines", Presence::Never, Presence::Never, true},
    Form{"json", Presence::Always, Presence::Never, true},
};

// Forms of an expectation of stdout or stderr: what stands after "out" or "err".
constexpr std::array kOutputForms{
    Form{"is", Presence::Never, Presence::Always, true},     Form{"same", Presence::Always, Presence::Never, true},
    Form{"begins", Presence::Always, Presence::Never, true}, Form{"~", Presence::Maybe, Presence::Maybe, true},
    Form{"", Presence::Always, Presence::Never, true},
};

// Whether a TEXT begins with what is probably meant as a form.
bool is_misspelt_form(std::string_view text) {
    const std::string_view word = text.substr(0, text.find(' '));
    if (word.size() == text.size()) return false;
    constexpr std::array<std::string_view, 7> kMisspelt{"begin", "contains", "equal", "equals",
                                                        "match", "matches",  "starts"};
    return std::ranges::find(kMisspelt, word) != kMisspelt.end();
}

std::runtime_error error_at(int number, std::string_view what) {
    return std::runtime_error(fmt::format("{}: {}", number, what));
}

bool is_allowed(Presence presence, bool is_present) {
    return presence == Presence::Maybe || is_present == (presence == Presence::Always);
}

// If `content` begins with `word`, sets the word and the text of the line.
bool split_at_word(std::string_view content, std::string_view word, ProgramLine& line) {
    if (content != word && !content.starts_with(fmt::format("{} ", word))) return false;
    line.word = word;
    line.text = content.substr(std::min(content.size(), word.size() + 1));
    return true;
}

// Parses an expectation of stdout or stderr. Returns false if `content` is none.
bool parse_output(std::string_view content, ProgramLine& line) {
    for (const std::string_view word : {"no out", "no err"})
        if (split_at_word(content, word, line)) return line.text.empty() && line.block.empty();
    for (const std::string_view word : {"out", "err", "not out", "not err"}) {
        for (const Form& form : kOutputForms) {
            if (!split_at_word(content, fmt::format("{}{}{}", word, form.word.empty() ? "" : " ", form.word), line))
                continue;
            if (form.word.empty() && (line.text.starts_with('~') || is_misspelt_form(line.text))) return false;
            return is_allowed(form.text, !line.text.empty()) && is_allowed(form.block, !line.block.empty()) &&
                   line.text.empty() != line.block.empty();
        }
    }
    return false;
}

// A `for` of expectations alone is an expectation, too.
bool is_expectation(const ProgramLine& line) {
    if (line.word == "for") return std::ranges::all_of(line.lines, is_expectation);
    const auto form = std::ranges::find(kForms, std::string_view(line.word), &Form::word);
    return form == kForms.end() || form->is_expectation;
}

// Whether an expectation is one of stdout.
bool is_of_stdout(const ProgramLine& line) {
    if (line.word == "for") return std::ranges::any_of(line.lines, is_of_stdout);
    return line.word == "json" ? ValueReader::reads_out(line.text) : line.word.find("out") != std::string::npos;
}

std::string joined(const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    return text;
}

// Returns the regular expression of a line: its text, or its block, in which it may have several lines.
std::string expression_of(const ProgramLine& line) {
    std::string all = line.text + joined(line.block);
    if (!line.block.empty()) all.pop_back();
    return all;
}

// The name of the variable at the beginning of `text`, which begins with "$" or "${".
std::string_view name_of_variable(std::string_view text) {
    text.remove_prefix(text.starts_with("${") ? 2 : 1);
    return text.substr(0, std::min(text.size(), text.find_first_not_of(kNameLetters)));
}

// Whether `text` holds $NAME or ${NAME.
bool has_variable(std::string_view text) {
    for (std::size_t at = 0; (at = text.find('$', at)) != std::string_view::npos; ++at)
        if (!name_of_variable(text.substr(at)).empty()) return true;
    return false;
}

int exit_code_of(const std::string& text) {
    int code = -1;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, code);
    if (error != std::errc() || rest != end || code < 0 || code > 255)
        throw std::runtime_error(fmt::format("an exit code expected, found '{}'", text));
    return code;
}

bool uses_variable(std::string_view text, std::string_view name) {
    for (std::size_t at = 0; (at = text.find('$', at)) != std::string_view::npos; ++at)
        if (name_of_variable(text.substr(at)) == name) return true;
    return false;
}

bool uses_variable(const ProgramLine& line, std::string_view name) {
    return uses_variable(line.text, name) || uses_variable(joined(line.block), name) ||
           std::ranges::any_of(line.lines, [&](const ProgramLine& inner) { return uses_variable(inner, name); });
}

// Values of variables by their names.
using Variables = std::map<std::string, std::string, std::less<>>;

// `text` with the values of $NAME and ${NAME}.
std::string with_values(std::string_view text, const Variables& variables) {
    std::string result;
    for (std::size_t dollar = 0; (dollar = text.find('$')) != std::string_view::npos;) {
        result += text.substr(0, dollar);
        text.remove_prefix(dollar);
        const std::string_view name = name_of_variable(text);
        const bool has_braces = text.starts_with("${");
        const std::size_t size = name.size() + (has_braces ? 3 : 1);
        const auto found = variables.find(name);
        const bool is_known = found != variables.end() && (!has_braces || text.substr(0, size).ends_with('}'));
        result += is_known ? std::string_view(found->second) : text.substr(0, 1);
        text.remove_prefix(is_known ? size : 1);
    }
    return result.append(text);
}

struct Loop {
    std::string variable;
    std::vector<std::string> values;
};

// The variable of a `for` and its values, which are words after the variable, or the lines below.
Loop loop_of(const ProgramLine& line) {
    Loop loop{"", line.block};
    std::istringstream words(line.text);
    words >> loop.variable;
    if (loop.variable.find_first_not_of(kCapitals) != std::string::npos || std::isdigit(loop.variable[0]) != 0)
        throw std::runtime_error(fmt::format("the variable '{}' needs a name of A to Z, _ and digits", loop.variable));
    if (std::ranges::find(kOtherVariables, loop.variable) != kOtherVariables.end())
        throw std::runtime_error(fmt::format("the variable {} has another meaning", loop.variable));
    for (std::string value; words >> value;) loop.values.push_back(value);
    if (loop.values.empty() || (!line.block.empty() && loop.values.size() != line.block.size()))
        throw std::runtime_error("values of 'for' expected: words after the variable, or indented lines");
    return loop;
}

// Sets the word and the text of the line whose first line is `content`, and checks them.
void parse_line(const std::string& content, ProgramLine& line) {
    bool is_known = false;
    for (const Form& form : kForms) {
        if (!split_at_word(content, form.word, line)) continue;
        is_known = true;
        if (!is_allowed(form.text, !line.text.empty()))
            throw error_at(line.number, fmt::format("'{}' {} text", form.word, line.text.empty() ? "lacks" : "has no"));
        if (!is_allowed(form.block, !line.block.empty()))
            throw error_at(line.number,
                           fmt::format("'{}' {} indented lines", form.word, line.block.empty() ? "lacks" : "has no"));
        break;
    }
    if (!is_known && !parse_output(content, line)) throw error_at(line.number, fmt::format("unknown: {}", content));
    try {
        if (line.word == "exit") static_cast<void>(exit_code_of(line.text));
        if (line.word == "for") static_cast<void>(loop_of(line));
        if (line.word == "json") ValueReader::check_syntax(line.text);
        // The values of variables may be parts of an expression.
        if (line.word.ends_with('~') && !has_variable(expression_of(line)))
            static_cast<void>(matches_part(expression_of(line), ""));
    } catch (const std::runtime_error& error) {
        throw error_at(line.number, error.what());
    }
}

bool is_of_exit(const ProgramLine& line) {
    return line.word == "exit" || line.word == "several lines";
}

// Checks the lines `exit` and `several lines` of a command.
void check_exit(Lines expectations) {
    const ProgramLine* exit = nullptr;
    const ProgramLine* several_lines = nullptr;
    for (const ProgramLine& line : expectations) {
        if (!is_of_exit(line)) continue;
        const ProgramLine*& known = line.word == "exit" ? exit : several_lines;
        if (known != nullptr) throw error_at(line.number, fmt::format("'{}' is there already", line.word));
        known = &line;
    }
    const int code = exit == nullptr ? 0 : exit_code_of(exit->text);
    if (several_lines != nullptr && code != 1 && code != 2)
        throw error_at(several_lines->number, "'several lines' requires 'exit 1' or 'exit 2'");
}

// The expectations that follow the line at `index`.
Lines expectations_after(Lines lines, std::size_t index) {
    std::size_t end = index + 1;
    while (end < lines.size() && is_expectation(lines[end])) ++end;
    return lines.subspan(index + 1, end - index - 1);
}

// Checks that each expectation follows a command, or other expectations of one, and that variables are used. `shell`
// holds what runs before each command; `is_judgement` is true in a `for` of expectations. Returns whether anything is
// expected.
bool check_order(Lines lines, std::string& shell, bool is_judgement) {
    bool follows_command = is_judgement;
    bool expects = false;
    for (std::size_t i = 0; i < lines.size(); ++i) {
        const ProgramLine& line = lines[i];
        if (line.word == "shell") shell += joined(line.block);
        if (line.word == "for") {
            const std::string name = loop_of(line).variable;
            const auto uses = [&](const ProgramLine& inner) { return uses_variable(inner, name); };
            if (std::ranges::none_of(line.lines, uses) && !uses_variable(shell, name))
                throw error_at(line.number, fmt::format("the loop does not use ${}", name));
        }
        if (is_expectation(line)) {
            if (!follows_command) throw error_at(line.number, "an expectation that follows no command");
            if (is_judgement && is_of_exit(line))
                throw error_at(line.number, fmt::format("'{}' in a loop of expectations", line.word));
            expects = true;
            if (line.word == "for") static_cast<void>(check_order(line.lines, shell, true));
            continue;
        }
        follows_command = line.word == "$";
        if (line.word == "$") check_exit(expectations_after(lines, i));
        if (line.word == "for" && check_order(line.lines, shell, false)) expects = true;
    }
    return expects;
}

// Moves the lines of a case out of `rest`, and those of each `for` into its line. If `is_loop` is true the lines are
// those of a `for`: they end at its `end`.
std::vector<ProgramLine> parse_loops(std::span<ProgramLine>& rest, bool is_loop) {
    std::vector<ProgramLine> lines;
    while (!rest.empty()) {
        ProgramLine line = std::move(rest.front());
        rest = rest.subspan(1);
        if (line.word == "end") {
            if (is_loop) return lines;
            throw error_at(line.number, "'end' without 'for'");
        }
        if (line.word == "for") line.lines = parse_loops(rest, true);
        lines.push_back(std::move(line));
    }
    return lines;
}

// Empty lines are part of a block if an indented line follows them.
std::vector<ProgramLine> lines_of(std::string_view text) {
    std::vector<ProgramLine> lines;
    std::vector<std::string> contents;
    bool may_have_block = false;
    std::size_t n_empty = 0;
    int number = 0;
    while (!text.empty()) {
        ++number;
        const std::size_t end = std::min(text.find('\n'), text.size());
        const std::string_view content = text.substr(0, end);
        text.remove_prefix(std::min(text.size(), end + 1));
        if (content.empty()) {
            ++n_empty;
            continue;
        }
        if (content.starts_with('#')) {
            may_have_block = false;
        } else if (content.ends_with(' ')) {
            throw error_at(number, "a space at the end");
        } else if (content.starts_with("    ")) {
            if (!may_have_block) throw error_at(number, "an indented line below nothing");
            std::vector<std::string>& block = lines.back().block;
            block.insert(block.end(), n_empty, "");
            block.emplace_back(content.substr(4));
        } else {
            may_have_block = true;
            contents.emplace_back(content);
            lines.emplace_back().number = number;
        }
        n_empty = 0;
    }
    for (std::size_t i = 0; i < lines.size(); ++i) parse_line(contents[i], lines[i]);
    return lines;
}

std::string beginning_of(const std::string& text) {
    return text.size() <= kShownBytes ? text : text.substr(0, kShownBytes) + "...";
}

// Returns "stdout that contains TEXT" and so on if that is not so, else "".
std::string judge_output(const ProgramLine& line, const std::string& output, const fs::path& folder) {
    const bool is_denied = line.word.starts_with("not ");
    const std::string_view kind = std::string_view(line.word).substr(is_denied ? 4 : 0);
    const auto expected = [&](bool is_true, std::string_view positive, std::string_view negative,
                              const std::string& value) {
        if (is_true != is_denied) return std::string();
        return fmt::format("{} that {}{}", is_of_stdout(line) ? "stdout" : "stderr", is_denied ? negative : positive,
                           value);
    };
    if (kind.starts_with("no ")) return expected(output.empty(), "is empty", "", "");
    if (kind.ends_with(" is")) {
        const std::string whole = joined(line.block);
        return expected(output == whole, "is\n", "is not\n", whole);
    }
    if (kind.ends_with(" begins"))
        return expected(output.starts_with(line.text), "begins with ", "does not begin with ", line.text);
    if (kind.ends_with(" ~")) {
        const std::string expression = expression_of(line);
        return expected(matches_part(expression, output), "matches ", "does not match ", expression);
    }
    if (kind.ends_with(" same")) {
        const std::string other = file_text((folder / line.text).string());
        if (other.empty()) return fmt::format("bytes in the file {}, which is empty or not there", line.text);
        return expected(output == other, "is the file ", "is not the file ",
                        fmt::format("{}:\n{}", line.text, beginning_of(other)));
    }
    return expected(output.find(line.text) != std::string::npos, "contains ", "does not contain ", line.text);
}

// One case that runs.
class CaseRun {
public:
    CaseRun(const ProgramCase& one, const std::string& shell)
        : lines_(one.lines), shell_(shell), here_(fs::canonical(folder_.path()) / "case") {
        fs::create_directory(here_);
        fs::create_directory(folder_.path() / "home");
    }
    ProgramOutcome run() {
        run_lines(lines_);
        return std::move(outcome_);
    }

private:
    void run_lines(Lines lines) {
        for (std::size_t i = 0; i < lines.size() && outcome_.skipped.empty(); ++i) {
            const ProgramLine& line = lines[i];
            if (line.word == "shell") shell_ += joined(line.block);
            if (line.word == "file") folder_.write(here_ / line.text, joined(resolved(line).block));
            if (line.word.starts_with("needs")) need(line);
            // A loop of expectations is judged with its command.
            if (line.word == "for" && !is_expectation(line)) for_each_value(line, [&] { run_lines(line.lines); });
            if (line.word == "$") run_command(line, expectations_after(lines, i));
        }
    }
    template <typename Run>
    void for_each_value(const ProgramLine& line, const Run& run) {
        const Loop loop = loop_of(line);
        const Variables outer = variables_;
        for (const std::string& value : loop.values) {
            variables_[loop.variable] = value;
            run();
        }
        variables_ = outer;
    }

    void need(const ProgramLine& line) {
        const std::string path = line.word == "needs" ? data_path(line.text) : cached_model(line.text);
        if (path.empty() || !fs::exists(path)) outcome_.skipped = fmt::format("{} is not there", line.text);
        if (line.word == "needs model") model_ = path;
    }

    [[nodiscard]] ProgramResult result_of(const ProgramLine& command) const {
        ProgramRun run;
        run.shell =
            fmt::format("cd '{}'\nset -eu\n{}{}\n{}", here_.string(), shell_, command.text, joined(command.block));
        // So it has its own process group, which a Ctrl-C in the terminal of the tests does not reach: a program that
        // runs then goes on to its end.
        run.ends_with_children = true;
        run.environment = {variables_.begin(), variables_.end()};
        run.environment["CASE"] = here_.string();
        run.environment["PATH"] = fs::path(SLIPSTREAM_PROGRAM).parent_path().string() + ":/usr/bin:/bin";
        run.environment["HOME"] = (folder_.path() / "home").string();
        run.environment["SOURCE"] = source_path("");
        run.environment["DATA"] = data_path("");
        if (!model_.empty()) run.environment["MODEL"] = model_;
        return run_program(run);
    }

    void run_command(const ProgramLine& command, Lines expectations) {
        const ProgramResult result = result_of(command);
        const auto exit = std::ranges::find(expectations, "exit", &ProgramLine::word);
        const int code = exit == expectations.end() ? 0 : exit_code_of(exit->text);
        const auto fail = [&](const std::string& expected) { add_failure(command, command.number, expected, result); };
        if (result.code != code) fail(fmt::format("exit code {}, not {}", code, result.code));
        if (code == 1 || code == 2) {
            const bool is_one_line =
                result.err.starts_with("slipstream: ") && std::ranges::count(result.err, '\n') == 1;
            const auto several_lines = std::ranges::find(expectations, "several lines", &ProgramLine::word);
            if (several_lines == expectations.end() && !is_one_line)
                fail("one line of stderr that begins with slipstream:");
            if (std::ranges::none_of(expectations, is_of_stdout) && !result.out.empty()) fail("nothing in stdout");
        }
        judge(command, result, ValueReader(here_, result.out), expectations);
    }
    void judge(const ProgramLine& command, const ProgramResult& result, const ValueReader& values, Lines expectations) {
        for (const ProgramLine& line : expectations) {
            if (line.word == "exit" || line.word == "several lines") continue;
            if (line.word == "for") {
                for_each_value(line, [&] { judge(command, result, values, line.lines); });
                continue;
            }
            const std::string expected = judge_line(resolved(line), result, values);
            if (!expected.empty()) add_failure(command, line.number, expected, result);
        }
    }
    // Returns "" if the output is as expected, else what is expected.
    [[nodiscard]] std::string judge_line(const ProgramLine& line, const ProgramResult& result,
                                         const ValueReader& values) const {
        try {
            if (line.word != "json") return judge_output(line, is_of_stdout(line) ? result.out : result.err, here_);
            const std::string found = values.judge(line.text);
            return found.empty() ? "" : fmt::format("{}, not {}", line.text, found);
        } catch (const std::exception& error) {
            return fmt::format("{} {}: {}", line.word, expression_of(line), error.what());
        }
    }

    [[nodiscard]] ProgramLine resolved(ProgramLine line) const {
        Variables variables = variables_;
        variables["CASE"] = here_.string();
        line.text = with_values(line.text, variables);
        for (std::string& one : line.block) one = with_values(one, variables);
        return line;
    }

    void add_failure(const ProgramLine& command, int number, const std::string& expected, const ProgramResult& result) {
        std::string text = fmt::format("$ {}\n{}", command.text, joined(command.block));
        for (const auto& [name, value] : variables_) text += fmt::format("with {}={}\n", name, value);
        text += fmt::format("expected {}\nexit code {}\nstdout: {}\nstderr: {}", expected, result.code,
                            beginning_of(result.out), beginning_of(result.err));
        outcome_.failures.push_back({number, std::move(text)});
    }

    const TemporaryFolder folder_;
    const Lines lines_;
    std::string shell_;
    const fs::path here_;
    std::string model_;
    Variables variables_;  // of the `for`s around the current line
    ProgramOutcome outcome_;
};

class ProgramTextTest : public testing::Test {
public:
    ProgramTextTest(std::string file, std::shared_ptr<const ProgramText> text, std::size_t index)
        : file_(std::move(file)), text_(std::move(text)), index_(index) {}
    void TestBody() override {
        const ProgramOutcome outcome = run_program_case(text_->cases[index_], text_->shell);
        for (const ProgramFailure& failure : outcome.failures)
            ADD_FAILURE_AT(file_.c_str(), failure.number) << failure.text;
        if (!outcome.skipped.empty()) GTEST_SKIP() << outcome.skipped;
    }

private:
    const std::string file_;
    const std::shared_ptr<const ProgramText> text_;
    const std::size_t index_;
};

// A file that cannot be read.
class WrongProgramText : public testing::Test {
public:
    explicit WrongProgramText(std::string what) : what_(std::move(what)) {}
    void TestBody() override { FAIL() << what_; }

private:
    const std::string what_;
};

std::string suite_of(const fs::path& file) {
    std::string name;
    bool begins = true;
    for (const char letter : file.stem().string()) {
        if (letter != '_') name += begins ? static_cast<char>(std::toupper(letter)) : letter;
        begins = letter == '_';
    }
    return name;
}

}  // namespace

ProgramText parse_program_text(std::string_view text) {
    ProgramText result;
    std::set<std::string> names;
    for (ProgramLine& line : lines_of(text)) {
        if (line.word == "case") {
            if (line.text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") !=
                std::string::npos)
                throw error_at(line.number, "the name of a case has letters and digits only");
            if (!names.insert(line.text).second) throw error_at(line.number, "there is a case of this name already");
            result.cases.push_back({line.text, line.number, {}});
        } else if (!result.cases.empty()) {
            result.cases.back().lines.push_back(std::move(line));
        } else if (line.word == "shell") {
            result.shell += joined(line.block);
        } else {
            throw error_at(line.number, "before the first case only 'shell'");
        }
    }
    if (result.cases.empty()) throw error_at(1, "no case");
    for (ProgramCase& one : result.cases) {
        std::span<ProgramLine> rest = one.lines;
        std::vector<ProgramLine> lines = parse_loops(rest, false);
        one.lines = std::move(lines);
        std::string shell = result.shell;
        if (!check_order(one.lines, shell, false))
            throw error_at(one.number, fmt::format("the case {} expects nothing", one.name));
    }
    return result;
}

ProgramOutcome run_program_case(const ProgramCase& one, const std::string& shell) {
    return CaseRun(one, shell).run();
}

void register_program_text(const fs::path& file) {
    const std::string suite = suite_of(file);
    const std::string path = file.string();
    try {
        const auto text = std::make_shared<const ProgramText>(parse_program_text(file_text(path)));
        for (std::size_t i = 0; i < text->cases.size(); ++i) {
            const ProgramCase& one = text->cases[i];
            // A pointer to testing::Test: cases in C++ may have the same suite.
            testing::RegisterTest(suite.c_str(), one.name.c_str(), nullptr, nullptr, path.c_str(), one.number,
                                  [=]() -> testing::Test* { return new ProgramTextTest(path, text, i); });
        }
    } catch (const std::runtime_error& error) {
        const std::string what = fmt::format("{}:{}", path, error.what());
        testing::RegisterTest(suite.c_str(), "CanBeRead", nullptr, nullptr, path.c_str(), 1,
                              [=]() -> testing::Test* { return new WrongProgramText(what); });
    }
}

}  // namespace slipstream::tools
