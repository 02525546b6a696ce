// Fuzz target: any bytes as the body of a request of each dialect. It is parsed, or refused with an error that is JSON.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tools/serve/api_error.h"
#include "tools/serve/request_fields.h"
#include "tools/serve/text_request.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace slipstream::tools;
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    std::size_t n_ignored = 0;
    const RequestContext context{.vocab = 1000, .on_ignored = [&](std::string_view) { ++n_ignored; }};
    for (const Dialect dialect : {Dialect::Chat, Dialect::Completions}) {
        try {
            const TextRequest request = parse_text_request(dialect, parse_request_body(text), context);
            if (request.text.stops.size() > 16 || request.n_logprobs.value_or(0) > 20) std::abort();
        } catch (const ApiError& error) {
            if (error.status() != 400 || error.body().front() != '{') std::abort();
        }
    }
    return 0;
}
