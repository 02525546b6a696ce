// Comparisons of values in JSON files, for program tests as text files (program_texts.h).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace slipstream::tools {

/// Judges lines such as
///
///     stats:passes < 48
///     stats:peak.device_bytes.0 <= 40M
///     plan:resident_bytes + plan:streamed_bytes = plan:bytes
///     stats:seconds * stats:rate = 8 within 1e-9
///     out:plan.regime = "all fits"
///
/// LEFT OPERATOR RIGHT, all words apart by spaces. Operators: = != < > <= >=, `contains` (a string has a part), ~ (a
/// string matches an extended regular expression of POSIX as a whole; its . matches a newline, too). After =:
/// `within 0.1` or `within 5 %` (of RIGHT). A side is one of
///
/// - FILE:KEY.KEY.0: a value of a JSON file; the file `out` is the command's stdout
/// - absent: what a value is that is not in its file. Such a value can be compared only with this word, by = and !=
/// - text(FILE): the bytes of a file, as a string
/// - "text" [..] {..} null true false: JSON, without spaces outside of strings
/// - 12, 0.5, 40M: a number; k, M, G are powers of 1024
/// - size(FILE): the bytes of a file
/// - size(FILE:KEY): how many elements a list or an object has, or bytes a string has
/// - sum(FILE:KEY): the sum of the numbers in a list or an object, at least one; its other values do not count
/// - NUMBER + NUMBER * NUMBER ...: with + - * / of all that are numbers, * and / first
class ValueReader {
public:
    /// Files are looked for in `folder`; `out` is what the file `out` holds.
    ValueReader(std::filesystem::path folder, std::string out);

    /// Returns "" if `line` is true, else what the two sides are. Throws std::runtime_error if a side has no value.
    [[nodiscard]] std::string judge(std::string_view line) const;

    /// Throws std::runtime_error if `line` has no operator, or lacks a side.
    static void check_syntax(std::string_view line);

    /// Whether a side of `line` is the file `out` or in it.
    [[nodiscard]] static bool reads_out(std::string_view line);

private:
    std::filesystem::path folder_;
    std::string out_;
};

/// Whether an extended regular expression of POSIX matches a part of `text`; ^ . $ are of a line. Throws
/// std::runtime_error if it is none.
[[nodiscard]] bool matches_part(const std::string& expression, const std::string& text);

}  // namespace slipstream::tools
