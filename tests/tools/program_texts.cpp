#include "tests/tools/program_texts.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
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

enum class Has { Never, Maybe, Always };

// A word that begins a line, and what belongs to it.
struct Form {
    std::string_view word;
    Has text;
    Has block;
    bool is_expectation;
};

// A word of two parts stands before a word that is its first part.
constexpr std::array kForms{
    Form{"shell", Has::Never, Has::Always, false},       Form{"case", Has::Always, Has::Never, false},
    Form{"needs model", Has::Always, Has::Never, false}, Form{"needs", Has::Always, Has::Never, false},
    Form{"file", Has::Always, Has::Always, false},       Form{"for", Has::Always, Has::Maybe, false},
    Form{"end", Has::Never, Has::Never, false},          Form{"$", Has::Always, Has::Maybe, false},
    Form{"exit", Has::Always, Has::Never, true},         Form{"several lines", Has::Never, Has::Never, true},
    Form{"json", Has::Always, Has::Never, true},
};

// What is expected of stdout or of stderr, after "out" or "err".
constexpr std::array kOutputForms{
    Form{"is", Has::Never, Has::Always, true},     Form{"same", Has::Always, Has::Never, true},
    Form{"begins", Has::Always, Has::Never, true}, Form{"~", Has::Maybe, Has::Maybe, true},
    Form{"", Has::Always, Has::Never, true},
};

std::runtime_error error_at(int number, std::string_view what) {
    return std::runtime_error(fmt::format("{}: {}", number, what));
}

bool fits(Has has, bool present) {
    return has == Has::Maybe || present == (has == Has::Always);
}

// If `content` begins with `word`, moves what follows it into line.text.
bool takes(std::string_view content, std::string_view word, ProgramLine& line) {
    if (content != word && !content.starts_with(fmt::format("{} ", word))) return false;
    line.word = word;
    line.text = content.substr(std::min(content.size(), word.size() + 1));
    return true;
}

// Whether `content` is a form of "out" or "err".
bool takes_output(std::string_view content, ProgramLine& line) {
    for (const std::string_view word : {"no out", "no err"})
        if (takes(content, word, line)) return line.text.empty() && line.block.empty();
    for (const std::string_view word : {"out", "err", "not out", "not err"}) {
        for (const Form& form : kOutputForms) {
            if (!takes(content, fmt::format("{}{}{}", word, form.word.empty() ? "" : " ", form.word), line)) continue;
            if (form.text == Has::Never && !line.text.empty()) continue;  // TEXT may begin with this word
            return fits(form.text, !line.text.empty()) && fits(form.block, !line.block.empty()) &&
                   line.text.empty() != line.block.empty();
        }
    }
    return false;
}

bool is_expectation(const ProgramLine& line) {
    const auto form = std::ranges::find(kForms, std::string_view(line.word), &Form::word);
    return form == kForms.end() || form->is_expectation;
}

std::string joined(const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    return text;
}

// The expression of a line, which may be several.
std::string expression_of(const ProgramLine& line) {
    std::string all = line.text + joined(line.block);
    if (!line.block.empty()) all.pop_back();
    return all;
}

int exit_code_of(const std::string& text) {
    int code = -1;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, code);
    if (error != std::errc() || rest != end || code < 0 || code > 255)
        throw std::runtime_error(fmt::format("an exit code expected, found '{}'", text));
    return code;
}

struct Loop {
    std::string variable;
    std::vector<std::string> values;
};

// The values of a `for`, which are words after the variable, or the lines below.
Loop loop_of(const ProgramLine& line) {
    Loop loop{"", line.block};
    std::istringstream words(line.text);
    words >> loop.variable;
    for (std::string value; words >> value;) loop.values.push_back(value);
    if (loop.values.empty() || (!line.block.empty() && loop.values.size() != line.block.size()))
        throw std::runtime_error("values of 'for' expected: words after the variable, or indented lines");
    return loop;
}

// Gives the line `content` its word and text, and checks them.
void understand(const std::string& content, ProgramLine& line) {
    bool is_known = false;
    for (const Form& form : kForms) {
        if (!takes(content, form.word, line)) continue;
        is_known = true;
        if (!fits(form.text, !line.text.empty()))
            throw error_at(line.number, fmt::format("'{}' {} text", form.word, line.text.empty() ? "lacks" : "has no"));
        if (!fits(form.block, !line.block.empty()))
            throw error_at(line.number,
                           fmt::format("'{}' {} indented lines", form.word, line.block.empty() ? "lacks" : "has no"));
        break;
    }
    if (!is_known && !takes_output(content, line)) throw error_at(line.number, fmt::format("unknown: {}", content));
    try {
        if (line.word == "exit") static_cast<void>(exit_code_of(line.text));
        if (line.word == "for") static_cast<void>(loop_of(line));
        if (line.word == "json") ValueReader::check_syntax(line.text);
        if (line.word.ends_with('~')) static_cast<void>(matches_part(expression_of(line), ""));
    } catch (const std::runtime_error& error) {
        throw error_at(line.number, error.what());
    }
}

// Commands come before expectations, and something is expected.
void check_order(const ProgramCase& one) {
    bool has_command = false;
    bool expects = false;
    int depth = 0;
    for (const ProgramLine& line : one.lines) {
        if (line.word == "for") ++depth;
        if (line.word == "end" && --depth < 0) throw error_at(line.number, "'end' without 'for'");
        if (line.word == "$") has_command = true;
        if (!is_expectation(line)) continue;
        if (!has_command) throw error_at(line.number, "an expectation before any command");
        expects = true;
    }
    if (!expects) throw error_at(one.number, fmt::format("the case {} expects nothing", one.name));
}

std::vector<ProgramLine> lines_of(std::string_view text) {
    std::vector<ProgramLine> lines;
    std::vector<std::string> contents;
    int number = 0;
    while (!text.empty()) {
        ++number;
        const std::size_t end = std::min(text.find('\n'), text.size());
        const std::string_view content = text.substr(0, end);
        text.remove_prefix(std::min(text.size(), end + 1));
        if (content.empty() || content.starts_with('#')) continue;
        if (content.ends_with(' ')) throw error_at(number, "a space at the end");
        if (content.starts_with("    ")) {
            if (lines.empty()) throw error_at(number, "an indented line below nothing");
            lines.back().block.emplace_back(content.substr(4));
        } else {
            contents.emplace_back(content);
            lines.emplace_back().number = number;
        }
    }
    for (std::size_t i = 0; i < lines.size(); ++i) understand(contents[i], lines[i]);
    return lines;
}

std::string beginning_of(const std::string& text) {
    return text.size() <= kShownBytes ? text : text.substr(0, kShownBytes) + "...";
}

// The variables of the `for`s around a line.
using Variables = std::map<std::string, std::string>;

// "stdout contains TEXT" and so on, or "" where that is so.
std::string judge_output(const ProgramLine& line, const std::string& text, const std::string& said,
                         const fs::path& folder) {
    const bool is_denied = line.word.starts_with("not ");
    const std::string stream = line.word.find("out") != std::string::npos ? "stdout" : "stderr";
    const std::string_view kind = std::string_view(line.word).substr(is_denied ? 4 : 0);
    const auto expected = [&](bool is_true, std::string_view what, const std::string& value) {
        if (is_true != is_denied) return std::string();
        return fmt::format("{} that {} {}", stream, is_denied ? fmt::format("not {}", what) : what, value);
    };
    if (kind.starts_with("no ")) return expected(said.empty(), "is empty", "");
    if (kind.ends_with(" is")) return expected(said == joined(line.block), "is", "\n" + joined(line.block));
    if (kind.ends_with(" begins")) return expected(said.starts_with(text), "begins with", text);
    if (kind.ends_with(" ~")) {
        const std::string expression = line.block.empty() ? text : expression_of(line);
        return expected(matches_part(expression, said), "matches", expression);
    }
    if (kind.ends_with(" same")) {
        const std::string other = file_text((folder / text).string());
        if (other.empty()) return fmt::format("bytes in the file {}, which is empty or not there", text);
        return expected(said == other, "is", fmt::format("the file {}:\n{}", text, beginning_of(other)));
    }
    return expected(said.find(text) != std::string::npos, "contains", text);
}

// One case that runs.
class CaseRun {
public:
    CaseRun(const ProgramCase& one, const std::string& shell) : lines_(one.lines), shell_(shell) {
        fs::create_directory(here());
        fs::create_directory(folder_.path() / "home");
    }
    ProgramOutcome run() {
        run_lines(0, lines_.size());
        return std::move(outcome_);
    }

private:
    [[nodiscard]] fs::path here() const { return folder_.path() / "case"; }

    void run_lines(std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end && outcome_.skipped.empty(); ++i) {
            const ProgramLine& line = lines_[i];
            if (line.word == "shell") shell_ += joined(line.block);
            if (line.word == "file") folder_.write(here() / line.text, joined(line.block));
            if (line.word.starts_with("needs")) need(line);
            if (line.word == "for") {
                const std::size_t last = end_of_loop(i + 1, end);
                const Loop loop = loop_of(line);
                for (const std::string& value : loop.values) {
                    variables_[loop.variable] = value;
                    run_lines(i + 1, last);
                }
                variables_.erase(loop.variable);
                i = last;
            }
            if (line.word == "$") {
                std::size_t next = i + 1;
                while (next < end && is_expectation(lines_[next])) ++next;
                run_command(line, lines_.subspan(i + 1, next - i - 1));
            }
        }
    }
    // The index of the `end` of a loop whose first line is at `begin`, or `end`.
    [[nodiscard]] std::size_t end_of_loop(std::size_t begin, std::size_t end) const {
        int depth = 1;
        for (std::size_t i = begin; i < end; ++i) {
            if (lines_[i].word == "for") ++depth;
            if (lines_[i].word == "end" && --depth == 0) return i;
        }
        return end;
    }

    void need(const ProgramLine& line) {
        const std::string path = line.word == "needs" ? data_path(line.text) : cached_model(line.text);
        if (path.empty() || !fs::exists(path)) outcome_.skipped = fmt::format("{} is not there", line.text);
        if (line.word == "needs model") model_ = path;
    }

    [[nodiscard]] ProgramResult result_of(const ProgramLine& command) const {
        ProgramRun run;
        run.shell =
            fmt::format("cd '{}'\nset -e\n{}{}\n{}", here().string(), shell_, command.text, joined(command.block));
        run.ends_with_children = true;
        run.environment = variables_;
        run.environment["PATH"] = fs::path(SLIPSTREAM_PROGRAM).parent_path().string() + ":/usr/bin:/bin";
        run.environment["HOME"] = (folder_.path() / "home").string();
        run.environment["SOURCE"] = source_path("");
        run.environment["DATA"] = data_path("");
        if (!model_.empty()) run.environment["MODEL"] = model_;
        return run_program(run);
    }

    void run_command(const ProgramLine& command, std::span<const ProgramLine> expectations) {
        const ProgramResult result = result_of(command);
        int code = 0;
        bool several_lines = false;
        bool expects_output = false;
        for (const ProgramLine& line : expectations) {
            if (line.word == "exit") code = exit_code_of(with_variables(line.text));
            several_lines |= line.word == "several lines";
            expects_output |= line.word.find("out") != std::string::npos || line.text.find("out:") != std::string::npos;
        }
        const auto fail = [&](int number, const std::string& expected) {
            add_failure(command, number, expected, result);
        };
        if (result.code != code) fail(command.number, fmt::format("exit code {}, not {}", code, result.code));
        if (code == 1 || code == 2) {
            if (!several_lines &&
                (!result.err.starts_with("slipstream: ") || std::ranges::count(result.err, '\n') != 1))
                fail(command.number, "one line of stderr that begins with slipstream:");
            if (!expects_output && !result.out.empty()) fail(command.number, "nothing in stdout");
        }
        const ValueReader values(here(), result.out);
        for (const ProgramLine& line : expectations) {
            const std::string text = with_variables(line.text);
            if (line.word == "exit" || line.word == "several lines") continue;
            if (line.word == "json") {
                judge_values(values, text, [&](const std::string& what) { fail(line.number, what); });
                continue;
            }
            const bool is_out = line.word.find("out") != std::string::npos;
            const std::string missing = judge_output(line, text, is_out ? result.out : result.err, here());
            if (!missing.empty()) fail(line.number, missing);
        }
    }
    template <typename Fail>
    static void judge_values(const ValueReader& values, const std::string& text, const Fail& fail) {
        try {
            const std::string found = values.judge(text);
            if (!found.empty()) fail(fmt::format("{}, not {}", text, found));
        } catch (const std::exception& error) {
            fail(fmt::format("{}: {}", text, error.what()));
        }
    }

    [[nodiscard]] std::string with_variables(std::string text) const {
        for (const auto& [name, value] : variables_) {
            const std::string spelling = "$" + name;
            for (std::size_t at = 0; (at = text.find(spelling, at)) != std::string::npos; at += value.size())
                text.replace(at, spelling.size(), value);
        }
        return text;
    }

    void add_failure(const ProgramLine& command, int number, const std::string& expected, const ProgramResult& result) {
        std::string text = fmt::format("$ {}\n{}", command.text, joined(command.block));
        for (const auto& [name, value] : variables_) text += fmt::format("with {}={}\n", name, value);
        text += fmt::format("expected {}\nexit code {}\nstdout: {}\nstderr: {}", expected, result.code,
                            beginning_of(result.out), beginning_of(result.err));
        outcome_.failures.push_back({number, std::move(text)});
    }

    const TemporaryFolder folder_;
    const std::span<const ProgramLine> lines_;
    std::string shell_;
    std::string model_;
    Variables variables_;
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
    for (const ProgramCase& one : result.cases) check_order(one);
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
