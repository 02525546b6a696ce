// Program tests as text files, tests/tools/program/*.txt: commands of a shell, and what each must give. A file is a
// test suite, named like the file (bench_template.txt: BenchTemplate).
//
//   # a comment; empty lines are ignored
//   shell                       sh, run before each command of the file, or of the case that it is in
//       generate() { slipstream generate --no-config "$@"; }
//   case StopsBeforeAStopText   a test case, up to the next one, in a fresh folder
//   needs model NAME.gguf       skips the rest of the case unless tools/get_model has got this model ($MODEL)
//   needs PATH                  ... unless PATH exists in the data folder beside the checkout ($DATA)
//   file NAME                   writes a file of these lines
//       text
//   for DRAFT                   the lines from here to `end`, or to the end of the case, run once with each value of
//       --draft none            $DRAFT. Values that are words may be on one line: for DRAFT none context
//       --draft context         If all of them are expectations, the command before is not run again
//   $ generate $DRAFT >text     a command (sh -eu); more lines of it are indented. Of a pipe the last command decides
//                               the exit code: where that of slipstream matters, write to a file first
//   exit 2                      its exit code; else 0
//   out TEXT                    stdout contains TEXT
//   out begins TEXT             ... begins with TEXT
//   out ~ REGEX                 ... has a part that matches an extended regular expression of POSIX; ^ . $ are of a
//                               line. An expression of several lines is indented below
//   out same FILE               ... has the bytes of FILE, which is not empty
//   out is                      ... consists of these lines
//       text
//   no out                      ... is empty
//   not out TEXT                ... does not contain TEXT. `not` may be before each line that begins with `out`
//   err TEXT                    stderr contains TEXT; all that there is for `out` there is for `err`
//   several lines               of a command with exit code 1 or 2: see below
//   json stats:passes < 48      numbers and JSON, see ValueReader in program_values.h
//
// A command that must end with exit code 1 or 2 must write a single line to stderr that begins with "slipstream: ", and
// nothing to stdout. `several lines` allows any stderr, an expectation of stdout any stdout.
//
// Expectations directly follow their command. A TEXT that begins with the word of a form ("is a") or nearly so
// ("matches a") is an error. An indented block ends at the first line that is not indented; empty lines at its end are
// not part of it.
//
// The shell finds `slipstream` in PATH. It has $CASE (the folder of the case), $SOURCE (the source tree), $DATA, $MODEL
// after `needs model`, an empty HOME and the variables of `for`, and no others; its stdin is empty. $CASE and the
// variables of `for` are also replaced in expectations and in the lines of `file`, written $NAME or ${NAME}.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace slipstream::tools {

struct ProgramLine {
    int number = 0;                  // in the file, from 1
    std::string word;                // "case", "$", "out", "json", ...
    std::string text;                // what follows the word
    std::vector<std::string> block;  // the indented lines below, without their indentation
    std::vector<ProgramLine> lines;  // of a `for`: up to its `end`
};

struct ProgramCase {
    std::string name;
    int number = 0;  // of the line `case`
    std::vector<ProgramLine> lines;
};

struct ProgramText {
    std::string shell;  // of the whole file
    std::vector<ProgramCase> cases;
};

/// Reads the text of a file. Throws std::runtime_error, with the number of the line ("12: unknown: ..."), if a line has
/// no meaning or a case has no expectation.
[[nodiscard]] ProgramText parse_program_text(std::string_view text);

struct ProgramFailure {
    int number = 0;    // the line of the command or expectation that failed
    std::string text;  // the command, what was expected, and what came
};

struct ProgramOutcome {
    std::vector<ProgramFailure> failures;
    std::string skipped;  // what is absent, if the case was not run to its end
};

/// Runs a case. `shell` is that of its file.
[[nodiscard]] ProgramOutcome run_program_case(const ProgramCase& one, const std::string& shell);

/// Registers the cases of a file with GoogleTest. A file that cannot be read becomes a case that fails.
void register_program_text(const std::filesystem::path& file);

}  // namespace slipstream::tools
