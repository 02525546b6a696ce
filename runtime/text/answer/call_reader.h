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
    /// Whether a call is complete and all bytes after it are white space or the beginning of a mark that may follow.
    [[nodiscard]] virtual bool is_between_calls() const { return false; }
    /// Returns the call that push() completed; valid until the next call of push().
    [[nodiscard]] const ReadCall& call() const { return call_; }

protected:
    ReadCall call_;
};

/// Returns a reader of one call, written as a JSON object, or of a JSON list of calls.
[[nodiscard]] std::unique_ptr<CallReader> make_json_call_reader();
/// Returns a reader of a JSON list of calls, or of NAME[ARGS]{...}, with [CALL_ID]ID before [ARGS] or without [ARGS].
[[nodiscard]] std::unique_ptr<CallReader> make_mistral_call_reader();
/// Returns a reader of call:NAME{KEY:VALUE,...} with strings between two <|"|>; it converts the arguments to JSON.
[[nodiscard]] std::unique_ptr<CallReader> make_gemma_call_reader();
/// Returns a reader of <function=NAME><parameter=KEY>VALUE</parameter></function>. It converts a value to the type that
/// the schema of the tool in `tools` names for the parameter, or to a string if the schema names none or the value does
/// not fit. `tools` must outlive the reader.
[[nodiscard]] std::unique_ptr<CallReader> make_xml_call_reader(const OfferedTools& tools);
/// Returns a reader of <atem:invoke name="NAME"><atem:parameter name="KEY">VALUE</atem:parameter></atem:invoke>, also
/// of several such calls between <atem:function_calls> and </atem:function_calls>. It converts values as
/// make_xml_call_reader() does. `tools` must outlive the reader.
[[nodiscard]] std::unique_ptr<CallReader> make_atem_call_reader(const OfferedTools& tools);

}  // namespace slipstream
