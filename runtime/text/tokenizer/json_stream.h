// Reads JSON (RFC 8259) from front to back, for files whose bulk is a vocabulary of a hundred thousand strings: nothing
// is built, strings without escapes are views into the file. The small parts are cut out as text, raw_value(), for the
// ordinary reader.
//
// Strings must be UTF-8, nesting is bounded, every error is a FormatError that names file and byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace slipstream {

class JsonStream {
public:
    enum class Kind : std::uint8_t { Object, Array, String, Number, Boolean, Null };

    /// `text` stays alive while views are used; `name` is the file's, for messages.
    JsonStream(std::string_view text, std::string_view name) : text_(text), name_(name) {}

    /// What stands next.
    [[nodiscard]] Kind peek();

    // An object: enter, then keys and values in turn until there is no key. The key is valid until the next call.
    void enter_object() { enter('{'); }
    [[nodiscard]] std::optional<std::string_view> next_key();
    // An array: enter, then values while there is one.
    void enter_array() { enter('['); }
    [[nodiscard]] bool next_element();

    /// The string, unescaped; valid until the next string is read.
    [[nodiscard]] std::string_view string() { return string_into(scratch_); }
    [[nodiscard]] std::int64_t integer();
    [[nodiscard]] double number();
    /// Passes a value over; its text.
    std::string_view raw_value();
    /// Throws where anything but white space is left.
    void end();

    [[noreturn]] void fail(std::string_view what) const;

private:
    void skip_space();
    void enter(char bracket);
    void expect(char c);
    [[nodiscard]] bool next_item(char closing);
    [[nodiscard]] std::string_view string_into(std::string& scratch);
    void escape(std::string& scratch);
    [[nodiscard]] char32_t hex4();
    [[nodiscard]] std::string_view number_text();
    void literal();

    std::string_view text_;
    std::string_view name_;
    std::size_t at_ = 0;
    bool is_first_ = false;  // just inside of a bracket
    std::string scratch_, key_scratch_;
};

}  // namespace slipstream
