// Finds the end of a JSON object that arrives byte by byte, and the texts of its members, without building it: the
// arguments of a call are passed on as the model spelt them. Newlines and tabs inside strings, which JSON forbids and
// models write, are escaped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace slipstream {

class JsonObjectScanner {
public:
    enum class Step : std::uint8_t { More, Done, Failed };

    /// Reads a byte; the first one must be "{". Failed means that the text read so far cannot become a valid object;
    /// after Done and Failed, push() must not be called again.
    [[nodiscard]] Step push(char c);

    /// After Done: returns the text of the object.
    [[nodiscard]] const std::string& text() const { return text_; }
    /// After Done: returns the JSON text of the value of the member called `key`, or nullopt. If the key occurs several
    /// times, the last one counts. The text belongs to the scanner.
    [[nodiscard]] std::optional<std::string_view> member(std::string_view key) const;

private:
    enum class Expect : std::uint8_t { Value, ValueOrEnd, Key, KeyOrEnd, Colon, CommaOrEnd, InString, InScalar };
    // Limits how deeply objects and lists may be nested, in levels. A deeper object counts as invalid, so that parsing
    // the arguments of a call cannot exhaust the stack.
    static constexpr std::size_t kMaxDepth = 64;

    struct Member {
        std::string key;
        std::size_t begin = 0, end = 0;  // byte positions of the value in text_
    };

    [[nodiscard]] Step step(char c);
    [[nodiscard]] Step push_in_string(char c);
    [[nodiscard]] Step begin_value(char c);
    [[nodiscard]] Step close(char c);
    void end_value();
    [[nodiscard]] bool is_valid() const;

    std::string text_;
    std::vector<char> open_;  // '{' or '[' of each open container
    Expect expect_ = Expect::Value;
    bool string_is_key_ = false;
    bool is_escaped_ = false;
    std::size_t string_begin_ = 0;
    std::vector<Member> members_;  // of the outermost object; the last one may lack its end
};

/// Returns the text that the JSON string `json` spells, or nullopt if it is no string or is invalid.
[[nodiscard]] std::optional<std::string> json_string_text(std::string_view json);
/// Returns whether `json` is a valid JSON object that is nested at most 64 levels deep.
[[nodiscard]] bool is_json_object(std::string_view json);
/// Returns `text` as a JSON string. Bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string to_json_string(std::string_view text);

}  // namespace slipstream
