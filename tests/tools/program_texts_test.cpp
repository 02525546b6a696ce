// Registers the program tests that are text files, and proves that they can fail.
#include "tests/tools/program_texts.h"

#include <filesystem>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/run_program.h"

namespace slipstream::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

[[maybe_unused]] const bool kRegistered = [] {
    std::set<std::filesystem::path> files;  // in the order of their names
    for (const auto& entry : std::filesystem::directory_iterator(source_path("tests/tools/program")))
        if (entry.path().extension() == ".txt") files.insert(entry.path());
    for (const auto& file : files) register_program_text(file);
    return true;
}();

// The failures of a case of these lines, which begin in line 2: "LINE: what was expected".
std::vector<std::string> failures_of(const std::string& lines) {
    const ProgramText text = parse_program_text("case Self\n" + lines);
    std::vector<std::string> failures;
    for (const ProgramFailure& failure : run_program_case(text.cases.at(0), text.shell).failures) {
        const std::size_t begin = failure.text.find("expected ");
        failures.push_back(std::to_string(failure.number) + ": " +
                           failure.text.substr(begin + 9, failure.text.find('\n', begin) - begin - 9));
    }
    return failures;
}

TEST(ProgramTexts, WhatIsSoPasses) {
    EXPECT_THAT(
        failures_of("shell\n    say() { echo \"$@\"; }\n"
                    "file stats\n    {\"passes\": 47, \"texts\": [\"a b\", \"c\"], \"rate\": 0.5, \"none\": null}\n"
                    "$ slipstream version\n"
                    "out begins slipstream\nout ~ ^slipstream [0-9]+[.]\nno err\nnot out nonsense\n"
                    "$ say one >text; echo two >>text; cat text\n"
                    "out is\n    one\n    two\nout same text\nout ~\n    o.e\n    two\n"
                    "$ say stderr >&2\nerr stderr\nno out\nnot out same text\n"
                    "$ slipstream sing\nexit 2\nerr 'sing'\n"
                    "$ slipstream inspect missing; echo never\nexit 1\n"
                    "$ printf 'x\\ny'; echo 'slipstream: a' >&2; echo b >&2; exit 1\nexit 1\nout x\nseveral lines\n"
                    "$ cat stats\n"
                    "json stats:passes = 47\njson stats:passes < 48\njson out:passes >= 47\n"
                    "json stats:passes * 2 + 6 / 3 - 1 = 95\njson stats:rate = 0.4 within 0.11\n"
                    "json stats:rate = 0.4 within 26 %\njson stats:texts.0 = \"a b\"\n"
                    "json stats:texts = [\"a b\",\"c\"]\njson stats:texts.0 contains \" b\"\n"
                    "json stats:texts.1 ~ \"[a-c]\"\njson size(stats:texts) = 2\njson size(text) = 8\n"
                    "json stats:none = null\njson stats:nothing = absent\njson stats:none != absent\n"
                    "json 2k = 2048\njson 3M = 3072k\njson 2G = 2048M\njson text(text) = \"one\\ntwo\\n\"\n"
                    "json text(text) ~ \"one.*\"\n"
                    "for WORD\n    one\n    two\n$ grep $WORD text\nout $WORD\nend\n"
                    "$ ls $HOME\nno out\n"),
        IsEmpty());
    // A shell of a case, a command of several lines, and blocks with empty lines.
    EXPECT_THAT(failures_of("shell\n    say() { echo \"$@\"; }\n\n    said=$(say a)\n"
                            "$ if [ $said = a ]; then\n        say a\n\n        echo; say b\n    fi\n"
                            "out is\n    a\n\n    b\n\n\n# a comment\n"
                            "out ~\n    a\n\n    b\n"),
                IsEmpty());
    EXPECT_THAT(failures_of("$ printf 'a\\0b'\nout ~ b\nnot out ~ c\njson text(out) ~ \"a.*b\"\n"),
                ElementsAre(HasSubstr("5: ")));
}

TEST(ProgramTexts, LoopsAndVariables) {
    EXPECT_THAT(failures_of("for PASS a b\nfor PASSES\n    1\n    2 3\n"
                            "file f\n    $PASS$PASSES ${PASS}x $PASSx $ $1\n"
                            "$ cat f; echo $PASS:$PASSES\n"
                            "out is\n    $PASS$PASSES ${PASS}x $PASSx $ $1\n    $PASS:$PASSES\n"
                            "out begins $PASS\nout ~ ^$PASS:$PASSES$\nend\nend\n"
                            "$ grep -F '3 bx $PASSx $ $1' f\nout 3\n"
                            "$ pwd\nout is\n    $CASE\n"),
                IsEmpty());
    // A loop of expectations judges the output of the command before it.
    EXPECT_THAT(failures_of("$ echo a b; echo x >>runs\nout a\nfor ONE a b\nout $ONE\nfor TWO a c\nout $TWO\n"
                            "end\nend\nout b\n$ wc -l <runs\nout is\n    1\n"),
                ElementsAre("7: stdout that contains c", "7: stdout that contains c"));
    EXPECT_THAT(failures_of("for ONE ( )\n$ echo a\nout ~ $ONE\n"),
                ElementsAre(HasSubstr("4: out ~ (: '(' is no regular"), HasSubstr("4: ")));
}

TEST(ProgramTexts, WhatIsNotSoFails) {
    EXPECT_THAT(failures_of("$ slipstream version\nexit 2\n"),
                ElementsAre("2: exit code 2, not 0",
                            "2: one line of stderr that begins with slipstream:", "2: nothing in stdout"));
    EXPECT_THAT(failures_of("$ slipstream sing\nno out\n"), ElementsAre("2: exit code 0, not 2"));
    EXPECT_THAT(failures_of("$ false; true\nno out\n"), ElementsAre("2: exit code 0, not 1"));
    EXPECT_THAT(failures_of("$ echo a\nout b\nnot out a\nno out\nerr a\n"),
                ElementsAre("3: stdout that contains b", "4: stdout that does not contain a", "5: stdout that is empty",
                            "6: stderr that contains a"));
    EXPECT_THAT(failures_of("$ echo ab\nout begins b\nnot out begins a\nout ~ ^b\nnot out ~ b$\nout is\n    a\n"),
                ElementsAre("3: stdout that begins with b", "4: stdout that does not begin with a",
                            "5: stdout that matches ^b", "6: stdout that does not match b$", "7: stdout that is"));
    EXPECT_THAT(failures_of("file a\n    1\nfile b\n    2\n$ touch empty; cat a\nout same b\nnot out same a\n"
                            "out same none\nnot out same empty\n"),
                ElementsAre("7: stdout that is the file b:", "8: stdout that is not the file a:",
                            "9: bytes in the file none, which is empty or not there",
                            "10: bytes in the file empty, which is empty or not there"));
    EXPECT_THAT(failures_of("$ echo 'slipstream: a' >&2; echo b >&2; exit 1\nexit 1\n"),
                ElementsAre("2: one line of stderr that begins with slipstream:"));
    EXPECT_THAT(failures_of("$ echo 'slipstrea: a' >&2; exit 2\nexit 2\n"),
                ElementsAre("2: one line of stderr that begins with slipstream:"));
    EXPECT_THAT(failures_of("$ exit 1\nexit 1\n"), ElementsAre("2: one line of stderr that begins with slipstream:"));
    EXPECT_THAT(failures_of("$ echo x; exit 1\nexit 1\nseveral lines\n"), ElementsAre("2: nothing in stdout"));
    EXPECT_THAT(failures_of("$ echo x; exit 1\nexit 1\nseveral lines\njson size(s) = 1\nerr out:\n"),
                ElementsAre("2: nothing in stdout", HasSubstr("5: "), "6: stderr that contains out:"));
    EXPECT_THAT(failures_of("$ echo 1; exit 1\nexit 1\nseveral lines\njson text(out) = \"1\\n\"\njson out: = absent\n"),
                IsEmpty());
    EXPECT_THAT(failures_of("$ echo $DRAFTS\nno err\n"), ElementsAre("2: exit code 0, not 2", HasSubstr("3: ")));
    EXPECT_THAT(failures_of("for WORD a b c\n$ echo b\nout $WORD\n"),
                ElementsAre("4: stdout that contains a", "4: stdout that contains c"));
}

TEST(ProgramTexts, WrongNumbersFail) {
    const std::string file = "file s\n    {\"n\": 3, \"t\": \"ab\", \"l\": [1, 2], \"z\": null}\n$ true\n";
    EXPECT_THAT(
        failures_of(file + "json s:n = 4\njson s:n < 3\njson s:n > 3\njson s:n != 3\njson s:n = 3.2 within 0.1\n"
                           "json s:n = 3.2 within 5 %\njson s:l = [1]\njson sum(s:l) = 2\njson size(s) = 1\n"),
        ElementsAre("5: s:n = 4, not 3 = 4.0", "6: s:n < 3, not 3 < 3.0", "7: s:n > 3, not 3 > 3.0",
                    "8: s:n != 3, not 3 != 3.0", "9: s:n = 3.2 within 0.1, not 3 = 3.2",
                    "10: s:n = 3.2 within 5 %, not 3 = 3.2", "11: s:l = [1], not [1,2] = [1]",
                    "12: sum(s:l) = 2, not 3.0 = 2.0", "13: size(s) = 1, not 44 = 1.0"));
    EXPECT_THAT(failures_of(file + "json s:t contains \"c\"\njson s:t ~ \"a\"\njson s:z = absent\njson s:m != absent\n"
                                   "json \"ab\\nc\" ~ \"ab\"\njson text(s) = \"a\"\n"),
                ElementsAre("5: s:t contains \"c\", not \"ab\" contains \"c\"", "6: s:t ~ \"a\", not \"ab\" ~ \"a\"",
                            "7: s:z = absent, not null = absent", "8: s:m != absent, not absent != absent",
                            HasSubstr("9: "), HasSubstr("10: text(s) = \"a\", not ")));
    // What has no value is no reason to pass.
    EXPECT_THAT(failures_of(file + "json s:m < 3\njson none:n = 3\njson s:m + 1 = 1\njson out:n = 3\njson s:n = x\n"),
                ElementsAre(HasSubstr("left side is absent"), HasSubstr("there is no none"), HasSubstr("no number"),
                            HasSubstr("not JSON"), HasSubstr("'x' is no number")));
    EXPECT_THAT(failures_of(file + "json s:m = s:o\njson s:m != \"x\"\njson null = s:m\njson sum(s:m) = 0\n"
                                   "json sum(s:z) = 0\njson 1 < inf\njson s:n != nan\n"),
                ElementsAre(HasSubstr("left side is absent"), HasSubstr("left side is absent"),
                            HasSubstr("right side is absent"), HasSubstr("s:m is absent"), HasSubstr("s:z is null"),
                            HasSubstr("'inf' is no number"), HasSubstr("'nan' is no number")));
    EXPECT_THAT(failures_of("file s\n    {\"e\": [], \"t\": [\"1\"], \"n\": {\"a\": 1, \"b\": null}}\n$ true\n"
                            "json sum(s:e) = 0\njson sum(s:t) = 0\njson sum(s:n) = 1\n"),
                ElementsAre(HasSubstr("5: json sum(s:e) = 0: s:e has no numbers"), HasSubstr("s:t has no numbers")));
}

// What parse_program_text() throws.
std::string refusal(const std::string& text) {
    try {
        static_cast<void>(parse_program_text(text));
    } catch (const std::runtime_error& error) {
        return error.what();
    }
    return "";
}

TEST(ProgramTexts, LinesWithoutAMeaningAreErrors) {
    EXPECT_EQ(refusal("case A\n$ true\nno out\n"), "");
    EXPECT_THAT(refusal(""), HasSubstr("no case"));
    EXPECT_THAT(refusal("case A\n$ true\n"), HasSubstr("1: the case A expects nothing"));
    EXPECT_THAT(refusal("case A\n$ true\nout a\ncase B\nfile x\n    y\n"), HasSubstr("4: the case B expects nothing"));
    EXPECT_THAT(refusal("case A\n$ true\nsays a\n"), HasSubstr("3: unknown: says a"));
    EXPECT_THAT(refusal("case A\n$ true\nno out of it\n"), HasSubstr("3: unknown"));
    EXPECT_THAT(refusal("case A\n$ true\nout\n"), HasSubstr("3: unknown"));
    EXPECT_THAT(refusal("case A\n$ true\nout is\n"), HasSubstr("3: unknown"));
    EXPECT_THAT(refusal("case A\n$ true\nout is a\n"), HasSubstr("3: unknown"));
    EXPECT_THAT(refusal("case A\n$ true\nnot out begin a\n"), HasSubstr("3: unknown"));
    EXPECT_THAT(refusal("case A\n$ true\nout matches a\n"), HasSubstr("3: unknown"));
    EXPECT_THAT(refusal("case A\n$ true\nerr ~a\n"), HasSubstr("3: unknown"));
    EXPECT_EQ(refusal("case A\n$ true\nout matches\n"), "");
    EXPECT_THAT(refusal("case A\n$ true\nout ~\n"), HasSubstr("3: unknown"));
    EXPECT_THAT(refusal("case A\n$ true\nnot no out\n"), HasSubstr("3: unknown"));
    EXPECT_THAT(refusal("case A\n$ true\nout a\n    b\n"), HasSubstr("3: unknown"));
    EXPECT_THAT(refusal("case A\nout a\n$ true\n"), HasSubstr("2: an expectation that follows no command"));
    for (const char* between : {"file f\n    x\n", "shell\n    x=1\n", "needs x\n"})
        EXPECT_THAT(refusal(std::string("case A\n$ true\n") + between + "out a\n"),
                    HasSubstr("an expectation that follows no command"));
    EXPECT_THAT(refusal("case A\nfor B c d\nout $B\n"), HasSubstr("2: an expectation that follows no command"));
    EXPECT_THAT(refusal("case A\nfor B c d\n$ echo $B\nend\nout a\n"),
                HasSubstr("5: an expectation that follows no command"));
    EXPECT_THAT(refusal("case A\n$ true\nfor B c d\nout $B\n$ true\n"),
                HasSubstr("4: an expectation that follows no command"));
    EXPECT_EQ(refusal("case A\n$ true\n\n# a comment\nno out\n\nno err\n"), "");
    EXPECT_THAT(refusal("case A\n$ true\n# a comment\n    more\nno out\n"), HasSubstr("4: an indented line below"));
    EXPECT_THAT(refusal("case A\n$ true\nexit $B\n"), HasSubstr("3: an exit code expected"));
    EXPECT_THAT(refusal("case A\n$ true\nexit 1\nexit 1\n"), HasSubstr("4: 'exit' is there already"));
    EXPECT_THAT(refusal("case A\n$ true\nseveral lines\n"), HasSubstr("3: 'several lines' requires"));
    EXPECT_THAT(refusal("case A\n$ true\nexit 3\nseveral lines\n"), HasSubstr("4: 'several lines' requires"));
    EXPECT_THAT(refusal("case A\n$ true\nfor B c\nout $B\nexit 1\n"), HasSubstr("5: 'exit' in a loop of expectations"));
    EXPECT_THAT(refusal("case A\n$ true\nexit many\n"), HasSubstr("3: an exit code expected"));
    EXPECT_THAT(refusal("case A\n$ true\nexit 1 2\n"), HasSubstr("3: an exit code expected"));
    EXPECT_THAT(refusal("case A\n$ true\nexit\n"), HasSubstr("3: 'exit' lacks text"));
    EXPECT_THAT(refusal("case A\n$\nno out\n"), HasSubstr("2: '$' lacks text"));
    EXPECT_THAT(refusal("case A\nfile a\n$ true\nno out\n"), HasSubstr("2: 'file' lacks indented lines"));
    EXPECT_THAT(refusal("case A\nfor B\n$ true\nno out\n"), HasSubstr("2: values of 'for' expected"));
    EXPECT_THAT(refusal("case A\nfor B c\n    d\n$ true\nno out\n"), HasSubstr("2: values of 'for' expected"));
    EXPECT_THAT(refusal("case A\nfor b c\n$ echo $b\nno out\n"), HasSubstr("2: the variable 'b' needs a name"));
    EXPECT_THAT(refusal("case A\nfor 1B c\n$ echo $1B\nno out\n"), HasSubstr("2: the variable '1B' needs a name"));
    EXPECT_THAT(refusal("case A\nfor PATH c\n$ echo $PATH\nno out\n"), HasSubstr("2: the variable PATH has another"));
    EXPECT_THAT(refusal("case A\nfor B c\n$ echo $BC\nno out\n"), HasSubstr("2: the loop does not use $B"));
    EXPECT_THAT(refusal("case A\n$ true\nfor B c\nfor D e\nout $B\n"), HasSubstr("4: the loop does not use $D"));
    EXPECT_EQ(refusal("shell\n    x=${B%c}\ncase A\nfor B c\n$ true\nno out\n"), "");
    EXPECT_THAT(refusal("case A\n$ true\nno out\nend\n"), HasSubstr("4: 'end' without 'for'"));
    EXPECT_THAT(refusal("case A\n$ true\nout ~ (\n"), HasSubstr("3: '(' is no regular expression"));
    EXPECT_THAT(refusal("case A\n$ true\njson a:b c\n"), HasSubstr("3: no operator"));
    EXPECT_THAT(refusal("case A\n$ true\njson a:b = 1 2\n"), HasSubstr("3: a side of"));
    EXPECT_THAT(refusal("case A\n$ true\njson a:b < 1 within 2\n"), HasSubstr("3: = ... within"));
    EXPECT_THAT(refusal("case A\n$ true\nout a \n"), HasSubstr("3: a space at the end"));
    EXPECT_THAT(refusal("case A b\n$ true\nno out\n"), HasSubstr("1: the name of a case"));
    EXPECT_THAT(refusal("case A\n$ true\nno out\ncase A\n$ true\nno out\n"), HasSubstr("4: there is a case"));
    EXPECT_THAT(refusal("$ true\ncase A\n$ true\nno out\n"), HasSubstr("1: before the first case"));
}

TEST(ProgramTexts, WhatIsAbsentIsSkipped) {
    const ProgramText text = parse_program_text("case A\n$ true\nno out\nneeds no/such/file\n$ false\nno out\n");
    const ProgramOutcome outcome = run_program_case(text.cases.at(0), "");
    EXPECT_THAT(outcome.failures, IsEmpty());
    EXPECT_EQ(outcome.skipped, "no/such/file is not there");
}

}  // namespace
}  // namespace slipstream::tools
