#include "draft/rungs/draft_vocabulary.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "offload/mapped_file.h"
#include "runtime/text/printable.h"
#include "runtime/text/tokenizer/tokenizer.h"

namespace slipstream::draft {

namespace {

constexpr std::int64_t kMostPadding = 128;

[[noreturn]] void refuse(const std::string& difference) {
    throw RequestError(fmt::format(
        "the draft model does not share the target's vocabulary: {}; take another draft model", difference));
}

// One model's vocabulary, wherever it was found.
struct Vocabulary {
    std::int64_t n_tokens = 0;
    std::function<std::string_view(std::int64_t)> piece;
    std::optional<std::int64_t> bos_id;
    std::vector<std::int64_t> end_ids;  // ascending
};

Vocabulary vocabulary_of(const Tokenizer& tokenizer) {
    Vocabulary vocabulary{.n_tokens = tokenizer.vocab_size(),
                          .piece = [&](std::int64_t id) { return tokenizer.piece(static_cast<TokenId>(id)); },
                          .bos_id = tokenizer.bos_id()};
    for (const TokenId id : tokenizer.end_tokens()) vocabulary.end_ids.push_back(id);
    std::ranges::sort(vocabulary.end_ids);
    return vocabulary;
}

Vocabulary vocabulary_of(const GgufVocabulary& gguf) {
    Vocabulary vocabulary{
        .n_tokens = std::ssize(gguf.tokens),
        .piece = [&](std::int64_t id) -> std::string_view { return gguf.tokens[static_cast<std::size_t>(id)]; },
        .bos_id = gguf.bos_id};
    for (const auto& id : {gguf.eos_id, gguf.eot_id})
        if (id) vocabulary.end_ids.push_back(*id);
    std::ranges::sort(vocabulary.end_ids);
    vocabulary.end_ids.erase(std::unique(vocabulary.end_ids.begin(), vocabulary.end_ids.end()),
                             vocabulary.end_ids.end());
    return vocabulary;
}

std::string name_of(const std::optional<std::int64_t>& id) {
    return id ? std::to_string(*id) : "none";
}

void compare(const Vocabulary& target, const Vocabulary& draft) {
    const std::int64_t n_shared = std::min(target.n_tokens, draft.n_tokens);
    for (std::int64_t id = 0; id < n_shared; ++id)
        if (target.piece(id) != draft.piece(id))
            refuse(fmt::format("token {} is '{}' there and '{}' in the target", id, printable(draft.piece(id)),
                               printable(target.piece(id))));
    if (std::max(target.n_tokens, draft.n_tokens) - n_shared > kMostPadding)
        refuse(fmt::format("it has {} tokens and the target {}, more than {} apart", draft.n_tokens, target.n_tokens,
                           kMostPadding));
    if (target.bos_id != draft.bos_id)
        refuse(fmt::format("the beginning of a text is token {} there and {} in the target", name_of(draft.bos_id),
                           name_of(target.bos_id)));
    if (target.end_ids != draft.end_ids)
        refuse(fmt::format("its end tokens are [{}] and the target's [{}]", fmt::join(draft.end_ids, ", "),
                           fmt::join(target.end_ids, ", ")));
}

// Null where the kind is not served.
std::unique_ptr<Tokenizer> find_tokenizer(const TokenizerSource& source) {
    try {
        return make_tokenizer(source);
    } catch (const Unsupported&) {
        return nullptr;
    }
}

bool equal_files(const std::filesystem::path& a, const std::filesystem::path& b) {
    if (a.empty() || b.empty()) return false;
    const MappedFile first(a);
    const MappedFile second(b);
    return std::ranges::equal(first.bytes(), second.bytes());
}

// Ids follow from tokenizer.json alone, or from vocab.json with what tokenizer_config.json adds.
bool equal_tokenizer_files(const TokenizerSource& target, const TokenizerSource& draft) {
    if (!target.tokenizer_json.empty() || !draft.tokenizer_json.empty())
        return equal_files(target.tokenizer_json, draft.tokenizer_json);
    return equal_files(target.vocab_json, draft.vocab_json) &&
           equal_files(target.tokenizer_config_json, draft.tokenizer_config_json);
}

}  // namespace

void check_draft_vocabulary(const ModelFiles& target, const ModelFiles& draft) {
    const TokenizerSource& of_target = target.tokenizer_source();
    const TokenizerSource& of_draft = draft.tokenizer_source();
    const std::unique_ptr<Tokenizer> target_tokenizer = find_tokenizer(of_target);
    const std::unique_ptr<Tokenizer> draft_tokenizer = find_tokenizer(of_draft);
    if (target_tokenizer && draft_tokenizer)
        return compare(vocabulary_of(*target_tokenizer), vocabulary_of(*draft_tokenizer));
    if (target_tokenizer || draft_tokenizer)
        refuse(fmt::format("the tokenizer of the {} is {}, that of the other is of another kind, which is not served",
                           target_tokenizer ? "target" : "draft model",
                           (target_tokenizer ? target_tokenizer : draft_tokenizer)->kind()));
    if (of_target.gguf && of_draft.gguf) {
        if (of_target.gguf->model != of_draft.gguf->model)
            refuse(fmt::format("its tokenizer is '{}' and the target's '{}'", printable(of_draft.gguf->model),
                               printable(of_target.gguf->model)));
        return compare(vocabulary_of(*of_target.gguf), vocabulary_of(*of_draft.gguf));
    }
    if (of_target.gguf || of_draft.gguf || !equal_tokenizer_files(of_target, of_draft))
        throw RequestError(
            "whether the draft model shares the target's vocabulary cannot be told: tokenizers of their kind are not "
            "served yet, and their files differ; take the draft model as GGUF with a GGUF target, or both from one "
            "family as directories");
}

}  // namespace slipstream::draft
