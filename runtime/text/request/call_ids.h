// The ids by which results refer to calls. Templates of Mistral accept only nine letters or digits; clients bring ids
// of any form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace slipstream {

class CallIds {
public:
    enum class Rule : std::uint8_t { AsGiven, NineCharacters };
    explicit CallIds(Rule rule) : rule_(rule) {}

    /// Must be called where a message with calls begins: results that follow belong to the calls of that message.
    void begin_calls();
    /// Returns the id for a call that has the id `given`, or none. With NineCharacters, it is `given` if that has the
    /// form, else a hash of it; a call without an id gets one made of its position.
    [[nodiscard]] std::optional<std::string> of_call(std::optional<std::string_view> given);
    /// Returns the id for a result that names the call `given`, or none: then, with NineCharacters, it is the next call
    /// that has no result yet.
    [[nodiscard]] std::optional<std::string> of_result(std::optional<std::string_view> given);

private:
    Rule rule_;
    std::vector<std::string> calls_;  // ids of the calls of the last message that has calls
    std::size_t n_results_ = 0;       // results since begin_calls()
    std::size_t n_calls_ = 0;         // calls of the conversation so far
};

/// Returns nine characters of [a-z0-9] that depend on `text` alone.
[[nodiscard]] std::string nine_character_id(std::string_view text);

}  // namespace slipstream
