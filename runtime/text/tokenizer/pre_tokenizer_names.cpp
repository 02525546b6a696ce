#include "runtime/text/tokenizer/pre_tokenizer_names.h"

#include <algorithm>
#include <array>

#include "runtime/text/tokenizer/pattern_dialect.h"

namespace slipstream {

namespace {

constexpr std::string_view kDigit = R"(\p{N})";
constexpr std::string_view kDigits = R"(\p{N}+)";
constexpr std::string_view kThreeAsciiDigits = "[0-9][0-9][0-9]";
constexpr std::string_view kLineBreak = R"([\r\n])";
constexpr std::string_view kChineseAndMore = R"([\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}]+)";
// Letters that have case, without modifier letters, as the pattern of DeepSeek LLM lists them.
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

// The pattern of Qwen 3.5: that of Qwen 2, with combining marks counted as letters.
constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+)"
    R"(|\s+(?!\S)|\s+)";

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
constexpr std::array kQwen35Patterns = {kQwen35};

// A pre-tokenizer and the names that stand for it, separated by spaces.
struct Row {
    std::string_view names;
    NamedPreTokenizer value;
};

constexpr std::array kRows = std::to_array<Row>({
    {"default", {.patterns = kDefaultPatterns}},
    {"a.x-4.0 exaone4 gigachat gpt-2 gpt-neox gpt2 granite-docling jais mellum mpt olmo phi-2 trillion",
     {.patterns = kGpt2Patterns}},
    {"bailingmoe bailingmoe2 llada-moe", {.patterns = kBailingPatterns}},
    {"bloom gpt3-finnish poro-chat", {.patterns = kBloomPatterns}},
    {"chatglm-bpe dbrx glm4 smaug-bpe", {.patterns = kLlama3Patterns}},
    {"codeshell command-r exaone minerva-7b refact smollm starcoder", {.patterns = kDigitThenGpt2Patterns}},
    {"deepseek-coder", {.patterns = kDeepseekCoderPatterns}},
    {"deepseek-llm", {.patterns = kDeepseekLlmPatterns}},
    {"deepseek-r1-qwen grok-2 hunyuan stablelm2", {.patterns = kQwen2Patterns}},
    {"deepseek-v3 hunyuan-dense", {.patterns = kDeepseek3Patterns}},
    {"falcon", {.patterns = kFalconPatterns}},
    {"falcon-h1 falcon3 lfm2 llama-bpe llama-v3 llama3 pixtral",
     {.patterns = kLlama3Patterns, .takes_whole_words = true, .adds_bos = true}},
    {"gpt-4o llama4 minimax-m2", {.patterns = kGpt4oPatterns}},
    {"megrez qwen2", {.patterns = kQwen2Patterns, .form = UnicodeForm::Nfc}},
    {"qwen35", {.patterns = kQwen35Patterns, .form = UnicodeForm::Nfc}},
    {"seed-coder", {.patterns = kSeedCoderPatterns}},
    {"tekken", {.patterns = kTekkenPatterns, .takes_whole_words = true, .adds_bos = true}},
    {"viking", {.patterns = kVikingPatterns}},
});

bool is_among(std::string_view names, std::string_view name) {
    for (std::size_t end = 0; !names.empty(); names.remove_prefix(std::min(end + 1, names.size()))) {
        end = std::min(names.find(' '), names.size());
        if (names.substr(0, end) == name) return true;
    }
    return false;
}

}  // namespace

std::optional<NamedPreTokenizer> find_pre_tokenizer(std::string_view name) {
    const auto* const row = std::ranges::find_if(
        kRows, [&](const Row& candidate) { return is_among(candidate.names, name.empty() ? "default" : name); });
    return row == kRows.end() ? std::nullopt : std::optional(row->value);
}

std::vector<PreTokenizerStep> steps_of(const NamedPreTokenizer& named, const std::string& file) {
    std::vector<PreTokenizerStep> steps;
    for (const std::string_view pattern : named.patterns)
        steps.emplace_back(SplitStep{TextPattern(to_pcre2(pattern, PatternDialect::Oniguruma, file), file)});
    steps.emplace_back(ByteAlphabetStep{});
    return steps;
}

}  // namespace slipstream
