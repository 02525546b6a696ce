// Reads the calls after an opening mark, byte by byte, until they end or turn out to be none. One implementation per
// notation; AnswerReader finds the marks and decides what happens to text that is no call.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/text/answer/answer_form.h"
#include "runtime/text/answer/offered_tool.h"

namespace slipstream {

struct ReadCall {
    std::string name;
    std::string arguments;      // a JSON object as text
    bool has_arguments = true;  // false: the call did not mention them, and `arguments` is {}
};

class CallReader {
public:
    enum class Step : std::uint8_t {
        More,      // nothing is complete yet
        Call,      // call() is complete, and others may follow
        LastCall,  // call() is complete, and nothing follows
        End,       // the calls end here, after at least one
        Failed,    // this byte cannot belong to a call; the reader must not be used again
    };
    virtual ~CallReader() = default;
    [[nodiscard]] virtual Step push(char c) = 0;
    /// The call that push() completed; valid until the next call of push().
    [[nodiscard]] const ReadCall& call() const { return call_; }

protected:
    ReadCall call_;
};

/// Reads one call as a JSON object, or a list of them.
[[nodiscard]] std::unique_ptr<CallReader> make_json_call_reader();
/// Reads a JSON list of calls, or NAME[ARGS]{...}, with [CALL_ID]ID before [ARGS] or without [ARGS].
[[nodiscard]] std::unique_ptr<CallReader> make_mistral_call_reader();
/// Reads call:NAME{KEY:VALUE,...} with strings between two <|"|>, and converts the arguments to JSON.
[[nodiscard]] std::unique_ptr<CallReader> make_gemma_call_reader();
/// Reads <function=NAME><parameter=KEY>VALUE</parameter></function>. A value is converted to the type that the schema
/// of the tool in `tools` names for it; it is a string if the schema names none or the value does not fit. `tools` must
/// outlive the reader.
[[nodiscard]] std::unique_ptr<CallReader> make_xml_call_reader(const OfferedTools& tools);

}  // namespace slipstream
