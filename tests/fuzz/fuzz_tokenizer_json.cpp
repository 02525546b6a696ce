// Any bytes as a tokenizer.json and as a tekken.json: refused by one of our errors, or a tokenizer that encodes and
// decodes without a fault, in bounded time and memory. What it may not do besides: give an id outside of its
// vocabulary, or a control token of what was said. And as a vocab.json: each token is found under the id that it has.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "kernels/base/check.h"
#include "kernels/base/error.h"
#include "runtime/text/tokenizer/tekken_file.h"
#include "runtime/text/tokenizer/tokenizer_json.h"
#include "tests/fuzz/said_text.h"

namespace {

using namespace slipstream;

void exercise(const Tokenizer& tokenizer, std::string_view text, SpecialTokens special) {
    std::vector<TokenId> ids;
    try {
        ids = tokenizer.encode(text, special);
    } catch (const RequestError&) {  // a pattern or a rule without end, of this text
        return;
    }
    // Special tokens cut the text into parts; a normaliser may lengthen each, within its bound.
    CHECK(ids.size() <= (text.size() + 1) * 2 * (64 + 4096), "{} ids for {} bytes", ids.size(), text.size());
    StreamingDetokenizer detokenizer(tokenizer, StreamingDetokenizer::Start::OfText);
    std::size_t shown = 0;
    for (const TokenId id : ids) {
        CHECK(id >= 0 && id < tokenizer.vocab_size(), "id {}", id);
        shown += detokenizer.push(id).size();
    }
    shown += detokenizer.finish().size();
    CHECK(shown <= 3 * tokenizer.decode(ids).size(), "{} bytes shown", shown);
}

void read_as_vocabulary(std::string_view bytes) {
    try {
        const IndexedVocabulary vocabulary = read_vocabulary_object(bytes, "fuzz.json");
        for (TokenId id = 0; id < vocabulary.tokens->size(); ++id)
            CHECK(vocabulary.tokens->kind(id) == TokenKind::Unused ||
                      vocabulary.find(vocabulary.tokens->spelling(id)) == id,
                  "token {} is another one", id);
    } catch (const Error&) {
        return;
    }
}

using Parser = decltype(parse_tokenizer_json);

void read_as_tokenizer(std::string_view bytes, const Parser& parse) {
    constexpr std::string_view texts[] = {"", "ab abc  12 \xc3\xa9\xcc\x81 <s> a's\n\n",
                                          "\xff\xe2\x96\x81 ababab \xf0\x9f\xa6\x99"};
    try {
        const auto tokenizer = parse(bytes, "fuzz.json", {}, {});
        for (const std::string_view text : texts) {
            exercise(*tokenizer, text, SpecialTokens::AsText);
            exercise(*tokenizer, text, SpecialTokens::Parse);
            check_said_text(*tokenizer, text);
        }
        // The first bytes of the file as a text: they know the spellings that the fuzzer invented.
        exercise(*tokenizer, bytes.substr(0, 256), SpecialTokens::Parse);
        check_said_text(*tokenizer, bytes.substr(0, 256));
    } catch (const Error&) {  // refused: an answer, not a fault
        return;
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    read_as_vocabulary(bytes);
    read_as_tokenizer(bytes, parse_tokenizer_json);
    read_as_tokenizer(bytes, parse_tekken);
    return 0;
}
