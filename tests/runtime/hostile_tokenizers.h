// Tokenizers for hostile messages: of each kind, with each normaliser, and with control tokens that have every rule
// that a file can give them. All are made from the golden vocabularies and by text; published ones come in where they
// are found.
#pragma once

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "runtime/formats/gguf_vocabulary.h"
#include "runtime/formats/model_files.h"
#include "runtime/text/tokenizer/tokenizer.h"
#include "tests/support/random_texts.h"

namespace slipstream {

struct HostileTokenizer {
    std::string name;
    std::unique_ptr<Tokenizer> tokenizer;
    std::vector<std::string> spellings;  // of control tokens and of those that look like them
    std::vector<bool> is_control;        // by id; but for a token that stands for what is unknown
};

namespace hostile {

inline const std::filesystem::path kTrained = SLIPSTREAM_GOLDEN_DIR "/tokenizer/trained";
inline const std::filesystem::path kPublished = SLIPSTREAM_SOURCE_DIR "/../shared/data/tokenizers";

inline std::string content_of(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

inline HostileTokenizer named(std::string name, std::unique_ptr<Tokenizer> tokenizer) {
    HostileTokenizer made{
        .name = std::move(name), .tokenizer = std::move(tokenizer), .spellings = {}, .is_control = {}};
    for (TokenId id = 0; id < made.tokenizer->vocab_size(); ++id) {
        const TokenKind kind = made.tokenizer->token_kind(id);
        const std::string piece(made.tokenizer->piece(id));
        const bool is_control = kind == TokenKind::Control || (kind == TokenKind::UserDefined && is_turn_mark(piece));
        made.is_control.push_back(is_control && piece != "<unk>");
        if (made.is_control.back()) made.spellings.push_back(piece);
    }
    return made;
}

struct Control {
    std::string content;
    bool special = true;
};
inline const std::vector<Control> kControls = {
    {"<|im_start|>"}, {"<|im_end|>"},    {"</s>"},
    {"<s>"},          {"[INST]", false}, {"<EOS>"},
    {"<s>>"},         {"<f\u00edn>"},    {"<\uff5cend\u2581of\u2581turn\uff5c>"},
    {"\u2581</s>"},   {"<|x|>", false},  {"\ufb01\u00e9"}};

inline const std::vector<std::pair<std::string, std::string>> kNormalizers = {
    {"none", "null"},
    {"nfc", R"({"type": "NFC"})"},
    {"nfkc", R"({"type": "NFKC"})"},
    {"lowercase", R"({"type": "Lowercase"})"},
    {"nfkc_lowercase", R"({"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Lowercase"}]})"},
    {"nfkd", R"({"type": "NFKD"})"},
    {"blanks", R"({"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"})"},
    {"prepend", R"({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"},
                   {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]})"},
    {"accents", R"({"type": "Sequence", "normalizers": [{"type": "NFD"},
                   {"type": "Replace", "pattern": {"Regex": "\\p{Mn}+"}, "content": ""}, {"type": "NFC"}]})"},
    {"zero_width", R"({"type": "Sequence", "normalizers": [{"type": "Replace",
                      "pattern": {"Regex": "[\u200b-\u200d\u2060\ufeff\u00ad]"}, "content": ""}, {"type": "NFKC"}]})"},
    {"strip", R"({"type": "Sequence", "normalizers": [{"type": "Strip", "strip_left": true, "strip_right": true},
                 {"type": "Lowercase"}]})"},
    {"letters", R"({"type": "Sequence", "normalizers": [{"type": "Replace", "pattern": {"String": "#"}, "content": "<"},
                   {"type": "Replace", "pattern": {"Regex": "[\u2026!]"}, "content": "s>"}]})"}};

/// A golden tokenizer.json with other control tokens, which its model can also make of text, and another normaliser.
inline std::string variant_json(const std::string& base, const std::string& normalizer, bool normalized, bool has_rules,
                                TextRandom& random) {
    auto json = nlohmann::json::parse(content_of(kTrained / (base + ".json")));
    json["normalizer"] = nlohmann::json::parse(normalizer);
    auto& model = json["model"];
    auto& added = json["added_tokens"];
    for (auto& token : added) token["normalized"] = normalized;
    const bool is_unigram = model["type"] == "Unigram";
    const auto id_of = [&](const std::string& text) -> std::int64_t {
        for (const auto& token : added)
            if (token["content"] == text) return token["id"].get<std::int64_t>();
        if (!is_unigram) return model["vocab"].contains(text) ? model["vocab"][text].get<std::int64_t>() : -1;
        for (std::size_t i = 0; i < model["vocab"].size(); ++i)
            if (model["vocab"][i][0] == text) return static_cast<std::int64_t>(i);
        return -1;
    };
    const auto n_ids = [&] {
        std::int64_t n = std::ssize(model["vocab"]);
        for (const auto& token : added) n = std::max(n, token["id"].get<std::int64_t>() + 1);
        return n;
    };
    if (is_unigram) {  // before tokens are added behind: the ids of pieces count up
        while (std::ssize(model["vocab"]) < n_ids()) model["vocab"].push_back({fmt::format("<{}>", n_ids()), -20.0});
        for (const Control& control : kControls)
            if (id_of(control.content) < 0) model["vocab"].push_back({control.content, -0.5});
    } else {
        for (const std::array<const char*, 2>& merge :
             std::to_array<std::array<const char*, 2>>({{"<", "/"}, {"s", ">"}, {"</", "s>"}, {"<", "s>"}})) {
            const std::string joined = std::string(merge[0]) + merge[1];
            if (id_of(merge[0]) < 0 || id_of(merge[1]) < 0) continue;
            if (!model["vocab"].contains(joined)) {
                const std::int64_t id = id_of(joined);
                model["vocab"][joined] = id < 0 ? n_ids() : id;
            }
            model["merges"].push_back({merge[0], merge[1]});
        }
        if (random.below(3) == 0) model["ignore_merges"] = true;
    }
    for (const Control& control : kControls) {
        const std::int64_t id = id_of(control.content);
        const auto flag = [&] { return has_rules && random.below(3) == 0; };
        nlohmann::json token = {{"id", id < 0 ? n_ids() : id},
                                {"content", control.content},
                                {"special", control.special},
                                {"lstrip", flag()},
                                {"rstrip", flag()},
                                {"single_word", flag()},
                                {"normalized", normalized}};
        std::erase_if(added.get_ref<nlohmann::json::array_t&>(),
                      [&](const auto& other) { return other["content"] == control.content; });
        added.push_back(std::move(token));
    }
    return json.dump();
}

inline std::unique_ptr<Tokenizer> from_json(const std::string& json) {
    TokenizerParts parts;
    parts.tokenizer_json = NamedBytes{json, "tokenizer.json"};
    return make_tokenizer(parts);
}

/// The bytes of a tokenizer.model with more pieces: fields of a message may be appended to it.
inline std::string with_pieces(std::string model, const std::vector<std::string>& user_defined) {
    const auto append = [](std::string& message, const std::string& bytes) {  // field 1
        message += '\x0a';
        message += static_cast<char>(bytes.size());
        message += bytes;
    };
    for (const std::string& text : user_defined) {
        std::string piece;
        append(piece, text);
        piece.append("\x15\0\0\0\0\x18\x04", 7);  // score 0, type 4
        append(model, piece);
    }
    return model;
}

/// A GGUF vocabulary of single bytes, letters and a few pieces, for either algorithm of SentencePiece.
inline PlainVocabulary plain_vocabulary(const std::string& model) {
    PlainVocabulary vocabulary;
    vocabulary.model = model;
    const auto add = [&](std::string text, float score, std::int32_t type) {
        vocabulary.tokens.push_back(std::move(text));
        vocabulary.scores.push_back(score);
        vocabulary.types.push_back(type);
    };
    add("<unk>", 0, 2);
    add("<s>", 0, 3);
    add("</s>", 0, 3);
    for (int byte = 0; byte < 256; ++byte) add(fmt::format("<0x{:02X}>", byte), 0, 6);
    add("<|im_start|>", 0, 3);
    for (const char* text : {"<|im_end|>", "<start_of_turn>", "[INST]", "<|a b|>", "\u2581\u2581", "\n\n"})
        add(text, 0, 4);
    float score = -1;
    for (const char* text :
         {"\u2581", "|>", "<|", "im", "_end", "<|im", "<|im_end", "</", "s>", "\u2581the", "[I", "ST]"})
        add(text, score -= 1, 1);
    for (char c = '!'; c < 127; ++c) add(std::string(1, c), score -= 1, 1);
    vocabulary.bos_id = 1;
    vocabulary.eos_id = 2;
    vocabulary.unk_id = 0;
    return vocabulary;
}

}  // namespace hostile

/// All of them, by `seed`. `skipped` tells which published ones are not there.
inline std::vector<HostileTokenizer> hostile_tokenizers(std::uint64_t seed, std::string& skipped) {
    using namespace hostile;
    TextRandom random(seed);
    std::vector<HostileTokenizer> made;
    for (const char* name : {"bloom", "falcon", "gemma", "llama2", "llama3", "metaspace", "odd_steps", "prefix_space",
                             "qwen2", "tekken", "unigram", "unigram_rules"})
        made.push_back(named(name, from_json(content_of(kTrained / (std::string(name) + ".json")))));
    for (const char* base : {"bloom", "llama2", "unigram"})
        for (const auto& [name, normalizer] : kNormalizers)
            for (const bool normalized : {false, true}) {
                const bool has_rules = random.below(2) == 0;
                made.push_back(
                    named(fmt::format("{}, {}, normalized {}{}", base, name, normalized, has_rules ? ", rules" : ""),
                          from_json(variant_json(base, normalizer, normalized, has_rules, random))));
            }
    const std::vector<std::string> user_defined = {"<|im_end|>", "[INST]", "<start_of_turn>", "<|a\u2581b|>",
                                                   "\u2581q\u2581z"};
    for (const std::filesystem::path& file :
         {kTrained / "spm_unigram.model", kTrained / "spm_bpe_rules.model", kTrained / "spm_unigram_rules.model",
          std::filesystem::path(SLIPSTREAM_SOURCE_DIR "/tools/demo_model/target/tokenizer.model")}) {
        const std::string bytes = with_pieces(content_of(file), user_defined);
        TokenizerParts parts;
        parts.sentencepiece_model = NamedBytes{bytes, file};
        made.push_back(named(file.filename(), make_tokenizer(parts)));
    }
    {  // has ordinary tokens that are spelt like control tokens
        const std::string bytes = content_of(kTrained / "../tekken/tekken.json");
        TokenizerParts parts;
        parts.tekken_json = NamedBytes{bytes, "tekken.json"};
        made.push_back(named("tekken.json", make_tokenizer(parts)));
    }
    for (const char* model : {"llama", "t5"})
        for (const bool removes : {false, true}) {
            PlainVocabulary vocabulary = plain_vocabulary(model);
            vocabulary.remove_extra_whitespaces = removes;
            TokenizerParts parts;
            parts.vocabulary = &vocabulary;
            made.push_back(
                named(fmt::format("gguf {}{}", model, removes ? ", without extra spaces" : ""), make_tokenizer(parts)));
        }
    for (const char* name : {"gpt-2", "llama-spm", "phi-3"}) {
        const std::filesystem::path file = kPublished / (std::string("ggml-vocab-") + name + ".gguf");
        TokenizerSource source;
        if (std::filesystem::exists(file)) {
            source.gguf = read_gguf_vocabulary(file);
            made.push_back(named(file.filename(), make_tokenizer(source)));
        } else {
            skipped += fmt::format(" {}", file.filename().string());
        }
    }
    return made;
}

}  // namespace slipstream
