// Any bytes as a tokenizer.model: refused by one of our errors, or a tokenizer that encodes and decodes without a
// fault. What it may not do besides: give an id outside of its vocabulary, more ids than its rules may make of the
// text, or a control token of what was said.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "kernels/base/check.h"
#include "kernels/base/error.h"
#include "runtime/text/tokenizer/sentencepiece_model.h"
#include "runtime/text/tokenizer/sentencepiece_tokenizer.h"
#include "tests/fuzz/said_text.h"

namespace {

using namespace slipstream;

void exercise(const Tokenizer& tokenizer, std::string_view text, SpecialTokens special) {
    const std::vector<TokenId> ids = tokenizer.encode(text, special);
    // Special tokens cut the text into parts; rules may lengthen each, within their bound.
    CHECK(ids.size() <= (text.size() + 1) * (64 + 4096), "{} ids for {} bytes", ids.size(), text.size());
    StreamingDetokenizer detokenizer(tokenizer, StreamingDetokenizer::Start::OfText);
    std::size_t shown = 0;
    for (const TokenId id : ids) {
        CHECK(id >= 0 && id < tokenizer.vocab_size(), "id {}", id);
        shown += detokenizer.push(id).size();
    }
    shown += detokenizer.finish().size();
    CHECK(shown <= 3 * tokenizer.decode(ids).size(), "{} bytes shown", shown);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    constexpr std::string_view texts[] = {"", "ab abc  \xc3\xa9 </s> a",
                                          "\xff\xe2\x96\x81 abababababab\n<s>\xf0\x9f\xa6\x99"};
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    try {
        const SentencePieceTokenizer tokenizer(parse_sentencepiece_model(bytes, "fuzz.model"));
        for (const std::string_view text : texts) {
            exercise(tokenizer, text, SpecialTokens::AsText);
            exercise(tokenizer, text, SpecialTokens::Parse);
            check_said_text(tokenizer, text);
        }
        // The first bytes of the file as a text: they know the pieces that the fuzzer invented.
        exercise(tokenizer, bytes.substr(0, 256), SpecialTokens::Parse);
        check_said_text(tokenizer, bytes.substr(0, 256));
    } catch (const Error&) {  // refused: an answer, not a fault
        return 0;
    }
    return 0;
}
