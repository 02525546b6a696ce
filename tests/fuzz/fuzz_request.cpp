// Fuzz target: any bytes as the body of a request of each dialect. It is parsed, or refused with an error that is JSON.
// A conversation of a dialect other than chat completions was checked by its parser: the rules of conversations refuse
// nothing in its messages but calls and results, for which there is no template here.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <variant>

#include "runtime/text/request/conversation.h"
#include "runtime/text/request/request_error.h"
#include "tools/serve/api_error.h"
#include "tools/serve/request_fields.h"
#include "tools/serve/text_request.h"

namespace {

void check_conversation(const slipstream::tools::TextRequest& request) {
    try {
        static_cast<void>(
            slipstream::make_conversation(std::get<slipstream::RequestedConversation>(request.prompt), nullptr));
    } catch (const slipstream::FieldError& error) {
        const std::string_view field = error.field();
        const bool is_message = field.starts_with("messages");
        if (is_message && !field.ends_with(".tool_calls") && !field.ends_with(".role")) std::abort();
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace slipstream::tools;
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    std::size_t n_ignored = 0;
    const RequestContext context{.vocab = 1000, .on_ignored = [&](std::string_view) { ++n_ignored; }};
    for (const Dialect dialect :
         {Dialect::Chat, Dialect::Completions, Dialect::Messages, Dialect::Responses, Dialect::Llama}) {
        try {
            const TextRequest request = parse_text_request(dialect, parse_request_body(text), context);
            if (request.text.stops.size() > 16 || request.n_logprobs.value_or(0) > 20) std::abort();
            if (dialect == Dialect::Messages || dialect == Dialect::Responses) check_conversation(request);
        } catch (const ApiError& error) {
            if (error.status() != 400 || error.body().front() != '{') std::abort();
        }
    }
    return 0;
}
