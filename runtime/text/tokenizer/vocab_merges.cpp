#include "runtime/text/tokenizer/vocab_merges.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/text/printable.h"
#include "runtime/text/tokenizer/byte_bpe.h"
#include "runtime/text/tokenizer/pre_tokenizer_names.h"

namespace slipstream {

namespace {

/// The pre-tokenizer of a class of the transformers package.
NamedPreTokenizer find_class(const std::string& tokenizer_class, const std::string& name) {
    std::string_view base = tokenizer_class;
    if (base.ends_with("Fast")) base.remove_suffix(4);
    std::string_view named;
    if (base == "GPT2Tokenizer" || base == "CodeGenTokenizer") named = "gpt-2";
    if (base == "Qwen2Tokenizer") named = "qwen2";
    if (named.empty())
        throw Unsupported(
            fmt::format("{}: how text is cut into words is known for the tokenizer classes GPT2Tokenizer, "
                        "CodeGenTokenizer and Qwen2Tokenizer, and this one's is '{}'; add its tokenizer.json",
                        name, tokenizer_class.empty() ? "not given" : printable(tokenizer_class)));
    return find_pre_tokenizer(named).value();
}

MergeTable read_merges(const VocabMergesFiles& files, const IndexedVocabulary& vocabulary) {
    std::string_view rest = files.merges_txt;
    MergeReader reader(vocabulary, static_cast<std::size_t>(std::ranges::count(rest, '\n')), files.merges_name);
    while (!rest.empty()) {
        const std::size_t end = std::min(rest.find('\n'), rest.size());
        std::string_view line = rest.substr(0, end);
        rest.remove_prefix(std::min(end + 1, rest.size()));
        if (line.ends_with('\r')) line.remove_suffix(1);
        if (!line.empty()) reader.add(line);
    }
    return reader.take();
}

/// Tokens that the settings name as BOS, EOS or unknown are special, listed or not.
void add_named(const TokenizerSettings& settings, const IndexedVocabulary& vocabulary,
               std::vector<AddedToken>& tokens) {
    for (const auto& name : {settings.bos_token, settings.eos_token, settings.unk_token}) {
        if (!name || std::ranges::find(tokens, *name, &AddedToken::content) != tokens.end()) continue;
        if (const TokenId id = vocabulary.find(*name); id >= 0)
            tokens.push_back({.content = *name, .id = id, .special = true});
    }
}

}  // namespace

std::unique_ptr<Tokenizer> parse_vocab_merges(const VocabMergesFiles& files, const TokenizerSettings& settings,
                                              const TextEnds& ends) {
    const NamedPreTokenizer named = find_class(settings.tokenizer_class, files.vocab_name);
    PipelineParts parts;
    if (settings.add_prefix_space.value_or(false)) {
        parts.pre_tokenizer.emplace_back(PrefixSpaceStep{});
        parts.adds_space_prefix = true;
    }
    for (PreTokenizerStep& step : steps_of(named, files.vocab_name)) parts.pre_tokenizer.push_back(std::move(step));
    if (named.form) {
        std::vector<NormalizerStep> steps;
        steps.emplace_back(*named.form);
        parts.normalizer = TextNormalizer(std::move(steps));
    }
    IndexedVocabulary vocabulary = read_vocabulary_object(files.vocab_json, files.vocab_name);
    MergeTable merges = read_merges(files, vocabulary);
    set_bytes_by_alphabet(*vocabulary.tokens);
    std::optional<TokenId> unk;
    if (settings.unk_token)
        if (const TokenId id = vocabulary.find(*settings.unk_token); id >= 0) unk = id;
    parts.model = std::make_unique<ByteBpe>(*vocabulary.tokens, std::move(merges), ByteBpe::WholeWords::Merge, unk,
                                            files.vocab_name);
    std::vector<AddedToken> added = settings.added_tokens;
    add_named(settings, vocabulary, added);
    parts.added_tokens = place_added_tokens(std::move(added), vocabulary, files.vocab_name);
    parts.vocabulary = std::move(vocabulary.tokens);
    set_text_ends(settings, {}, ends, parts, files.vocab_name);
    return std::make_unique<PipelineTokenizer>(std::move(parts));
}

}  // namespace slipstream
