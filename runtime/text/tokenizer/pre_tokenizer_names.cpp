#include "runtime/text/tokenizer/pre_tokenizer_names.h"

#include <array>

#include "runtime/text/tokenizer/pattern_dialect.h"
#include "runtime/text/tokenizer/published_patterns.h"

namespace slipstream {

namespace {

constexpr std::string_view kDigit = R"(\p{N})";
constexpr std::string_view kDigits = R"(\p{N}+)";
constexpr std::string_view kThreeAsciiDigits = "[0-9][0-9][0-9]";
constexpr std::string_view kLineBreak = R"([\r\n])";
constexpr std::string_view kChineseAndMore = R"([\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}]+)";
// Letters that have case, less the modifiers; as DeepSeek LLM lists them.
constexpr std::string_view kDeepseekLetters =
    R"(\s?[)"
    R"(A-Za-z\x{b5}\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{1ba}\x{1bc}-\x{1bf}\x{1c4}-\x{293}\x{295}-\x{2af})"
    R"(\x{370}-\x{373}\x{376}\x{377}\x{37b}-\x{37d}\x{37f}\x{386}\x{388}-\x{38a}\x{38c}\x{38e}-\x{3a1})"
    R"(\x{3a3}-\x{3f5}\x{3f7}-\x{481}\x{48a}-\x{52f}\x{531}-\x{556}\x{10a0}-\x{10c5}\x{13a0}-\x{13f5})"
    R"(\x{13f8}-\x{13fd}\x{1c90}-\x{1cba}\x{1cbd}-\x{1cbf}\x{1d00}-\x{1d2b}\x{1d6b}-\x{1d77}\x{1d79}-\x{1d9a})"
    R"(\x{1e00}-\x{1f15}\x{1f18}-\x{1f1d}\x{1f20}-\x{1f45}\x{1f48}-\x{1f4d}\x{1f50}-\x{1f57}\x{1f59}\x{1f5b})"
    R"(\x{1f5d}\x{1f5f}-\x{1f7d}\x{1f80}-\x{1fb4}\x{1fb6}-\x{1fbc}\x{1fbe}\x{1fc2}-\x{1fc4}\x{1fc6}-\x{1fcc})"
    R"(\x{1fd0}-\x{1fd3}\x{1fd6}-\x{1fdb}\x{1fe0}-\x{1fec}\x{1ff2}-\x{1ff4}\x{1ff6}-\x{1ffc}\x{2102}\x{2107})"
    R"(\x{210a}-\x{2113}\x{2115}\x{2119}-\x{211d}\x{2124}\x{2126}\x{2128}\x{212a}-\x{212d}\x{212f}-\x{2134}\x{2139})"
    R"(\x{213c}-\x{213f}\x{2145}-\x{2149}\x{214e}\x{2183}\x{2184}\x{2c00}-\x{2c7b}\x{2c7e}-\x{2ce4})"
    R"(\x{2ceb}-\x{2cee}\x{2cf2}\x{2cf3}\x{a640}-\x{a66d}\x{a680}-\x{a69b}\x{a722}-\x{a76f}\x{a771}-\x{a787})"
    R"(\x{a78b}-\x{a78e}\x{ab70}-\x{abbf}\x{fb00}-\x{fb06}\x{fb13}-\x{fb17}\x{ff21}-\x{ff3a}\x{ff41}-\x{ff5a})"
    R"(\x{10400}-\x{1044f}\x{104b0}-\x{104d3}\x{104d8}-\x{104fb}\x{10c80}-\x{10cb2}\x{10cc0}-\x{10cf2})"
    R"(\x{118a0}-\x{118df}\x{1e900}-\x{1e943})"
    R"(]+)";
constexpr std::string_view kDeepseekMarks =
    R"(\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+)";
constexpr std::string_view kDeepseek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
                                     R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
                                     R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kBloom = R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{ff0c}\x{3001}\x{964}\x{6d4}\x{60c})]+)";
constexpr std::string_view kBailing =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kSeedCoder =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::array kDefaultPatterns = {std::string_view(R"([\p{P}\$\+<=>\^~\|]+)"), kGpt2Pattern, kDigits,
                                         kThreeAsciiDigits};
constexpr std::array kGpt2Patterns = {kGpt2Pattern};
constexpr std::array kDigitThenGpt2Patterns = {kDigit, kGpt2Pattern};
constexpr std::array kFalconPatterns = {std::string_view(R"([\p{P}\$\+<=>\^~\|`]+)"), kGpt2Pattern, kThreeAsciiDigits};
constexpr std::array kLlama3Patterns = {kLlama3Pattern};
constexpr std::array kQwen2Patterns = {kQwen2Pattern};
constexpr std::array kDeepseekLlmPatterns = {
    kLineBreak, kDeepseekLetters, kDeepseekMarks, std::string_view(R"(\s+$)"), kChineseAndMore, kDigits};
constexpr std::array kDeepseekCoderPatterns = {kLineBreak, std::string_view(R"(\s?\p{L}+)"),
                                               std::string_view(R"(\s?\p{P}+)"), kChineseAndMore, kDigit};
constexpr std::array kDeepseek3Patterns = {
    std::string_view(R"(\p{N}{1,3})"), std::string_view(R"([\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+)"),
    kDeepseek3};
constexpr std::array kTekkenPatterns = {kTekken};
constexpr std::array kGpt4oPatterns = {kO200kPattern};
constexpr std::array kBloomPatterns = {kBloom};
constexpr std::array kVikingPatterns = {kBloom, kDigit};
constexpr std::array kBailingPatterns = {kBailing};
constexpr std::array kSeedCoderPatterns = {kSeedCoder};

struct Row {
    std::string_view name;
    NamedPreTokenizer value;
};

constexpr NamedPreTokenizer kDefault = {.patterns = kDefaultPatterns};
constexpr NamedPreTokenizer kGpt2 = {.patterns = kGpt2Patterns};
constexpr NamedPreTokenizer kDigitThenGpt2 = {.patterns = kDigitThenGpt2Patterns};
constexpr NamedPreTokenizer kFalcon = {.patterns = kFalconPatterns};
constexpr NamedPreTokenizer kLlama3 = {.patterns = kLlama3Patterns, .takes_whole_words = true, .adds_bos = true};
constexpr NamedPreTokenizer kLlama3Merging = {.patterns = kLlama3Patterns};
constexpr NamedPreTokenizer kQwen2 = {.patterns = kQwen2Patterns, .form = UnicodeForm::Nfc};
constexpr NamedPreTokenizer kQwen2AsItComes = {.patterns = kQwen2Patterns};
constexpr NamedPreTokenizer kDeepseek3Named = {.patterns = kDeepseek3Patterns};
constexpr NamedPreTokenizer kTekkenNamed = {.patterns = kTekkenPatterns, .takes_whole_words = true, .adds_bos = true};
constexpr NamedPreTokenizer kBloomNamed = {.patterns = kBloomPatterns};
constexpr NamedPreTokenizer kBailingNamed = {.patterns = kBailingPatterns};
constexpr NamedPreTokenizer kGpt4o = {.patterns = kGpt4oPatterns};

constexpr std::array kRows = std::to_array<Row>({
    {"", kDefault},
    {"a.x-4.0", kGpt2},
    {"bailingmoe", kBailingNamed},
    {"bailingmoe2", kBailingNamed},
    {"bloom", kBloomNamed},
    {"chatglm-bpe", kLlama3Merging},
    {"codeshell", kDigitThenGpt2},
    {"command-r", kDigitThenGpt2},
    {"dbrx", kLlama3Merging},
    {"deepseek-coder", {.patterns = kDeepseekCoderPatterns}},
    {"deepseek-llm", {.patterns = kDeepseekLlmPatterns}},
    {"deepseek-r1-qwen", kQwen2AsItComes},
    {"deepseek-v3", kDeepseek3Named},
    {"default", kDefault},
    {"exaone", kDigitThenGpt2},
    {"exaone4", kGpt2},
    {"falcon", kFalcon},
    {"falcon-h1", kLlama3},
    {"falcon3", kLlama3},
    {"gigachat", kGpt2},
    {"glm4", kLlama3Merging},
    {"gpt-2", kGpt2},
    {"gpt-4o", kGpt4o},
    {"gpt-neox", kGpt2},
    {"gpt2", kGpt2},
    {"gpt3-finnish", kBloomNamed},
    {"granite-docling", kGpt2},
    {"grok-2", kQwen2AsItComes},
    {"hunyuan", kQwen2AsItComes},
    {"hunyuan-dense", kDeepseek3Named},
    {"jais", kGpt2},
    {"lfm2", kLlama3},
    {"llada-moe", kBailingNamed},
    {"llama-bpe", kLlama3},
    {"llama-v3", kLlama3},
    {"llama3", kLlama3},
    {"llama4", kGpt4o},
    {"megrez", kQwen2},
    {"mellum", kGpt2},
    {"minerva-7b", kDigitThenGpt2},
    {"mpt", kGpt2},
    {"olmo", kGpt2},
    {"phi-2", kGpt2},
    {"pixtral", kLlama3},
    {"poro-chat", kBloomNamed},
    {"qwen2", kQwen2},
    {"refact", kDigitThenGpt2},
    {"seed-coder", {.patterns = kSeedCoderPatterns}},
    {"smaug-bpe", kLlama3Merging},
    {"smollm", kDigitThenGpt2},
    {"stablelm2", kQwen2AsItComes},
    {"starcoder", kDigitThenGpt2},
    {"tekken", kTekkenNamed},
    {"trillion", kGpt2},
    {"viking", {.patterns = kVikingPatterns}},
});

}  // namespace

std::optional<NamedPreTokenizer> find_pre_tokenizer(std::string_view name) {
    for (const Row& row : kRows)
        if (row.name == name) return row.value;
    return std::nullopt;
}

std::vector<PreTokenizerStep> steps_of(const NamedPreTokenizer& named, const std::string& file) {
    std::vector<PreTokenizerStep> steps;
    for (const std::string_view pattern : named.patterns)
        steps.emplace_back(SplitStep{TextPattern(to_pcre2(pattern, PatternDialect::Oniguruma, file), file)});
    steps.emplace_back(ByteAlphabetStep{});
    return steps;
}

}  // namespace slipstream
