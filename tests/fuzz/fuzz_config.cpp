// Fuzz target: any bytes as config.json and as generation_config.json, and rope frequencies from what was accepted.
// Errors of ours are the expected outcome. The seeds in corpus/config name each architecture, rope scaling and kind of
// window.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/base/error.h"
#include "runtime/formats/hf_config.h"
#include "runtime/model/rope.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace slipstream;
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    try {
        static_cast<void>(parse_generation_config(text, "fuzz"));
    } catch (const Error&) {
        // The same bytes may still be a config.json.
    }
    try {
        const HfConfig config = parse_hf_config(text, "fuzz");
        static_cast<void>(rope_frequencies(config.model, config.model.context_tokens));
    } catch (const Error&) {
        return 0;
    }
    return 0;
}
