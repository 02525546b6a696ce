// The templates for models without one: what they render, byte for byte, and which models get which.
#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tools/chat_form.h"
#include "tools/prompt_template.h"
#include "tools/template_families.h"

namespace slipstream::tools {
namespace {

// Knows a few special tokens; all else is one token a byte.
class Spellings final : public Tokenizer {
public:
    explicit Spellings(std::vector<std::string> special) : special_(std::move(special)) {}
    std::string_view kind() const override { return "of a test"; }
    std::int64_t vocab_size() const override { return 256 + std::ssize(special_) + 2; }
    std::optional<TokenId> bos_id() const override { return 256; }
    bool adds_bos() const override { return true; }
    std::optional<TokenId> eos_id() const override { return 257; }
    TokenKind token_kind(TokenId id) const override { return id < 256 ? TokenKind::Normal : TokenKind::Control; }
    std::vector<TokenId> end_tokens() const override { return {257}; }
    std::vector<TokenId> encode(std::string_view text, SpecialTokens special) const override {
        std::vector<TokenId> ids;
        while (!text.empty()) {
            TokenId id = static_cast<unsigned char>(text.front());
            std::size_t length = 1;
            for (TokenId i = 256; special == SpecialTokens::Parse && i < vocab_size(); ++i)
                if (text.starts_with(piece(i))) {
                    id = i;
                    length = piece(i).size();
                }
            ids.push_back(id);
            text.remove_prefix(length);
        }
        return ids;
    }
    std::string_view piece(TokenId id) const override {
        static const std::array<char, 256> kBytes = [] {
            std::array<char, 256> bytes{};
            for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i);
            return bytes;
        }();
        if (id < 256) return {kBytes.data() + id, 1};
        if (id < 258) return id == 256 ? "<s>" : "</s>";
        return special_[static_cast<std::size_t>(id - 258)];
    }
    std::string_view token_bytes(TokenId id) const override { return id < 256 ? piece(id) : std::string_view(); }
    bool adds_space_prefix() const override { return false; }

private:
    std::vector<std::string> special_;
};

std::string rendered(std::string_view family, std::vector<Message> messages) {
    const Spellings tokenizer({});
    const TemplateFamily* found = find_template_family(family);
    if (found == nullptr) return "no such family";
    return PromptTemplate(ChatTemplate::parse(std::string(found->source), std::string(family)), {}, tokenizer)
        .render(messages);
}

TEST(TemplateFamilies, RenderAsTheirModelsWereTrained) {
    const std::vector<Message> talk{{"system", "S"}, {"user", "a"}, {"assistant", "b"}, {"user", "c"}};
    EXPECT_EQ(rendered("chatml", talk),
              "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"
              "<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n");
    EXPECT_EQ(
        rendered("llama-3", talk),
        "<|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\na<|eot_"
        "id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nb<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nc"
        "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n");
    EXPECT_EQ(rendered("gemma", talk),
              "<start_of_turn>user\nS\n\na<end_of_turn>\n<start_of_turn>model\nb<end_of_turn>\n<start_of_turn>user\nc"
              "<end_of_turn>\n<start_of_turn>model\n");
    EXPECT_EQ(rendered("phi-3", talk),
              "<|system|>\nS<|end|>\n<|user|>\na<|end|>\n<|assistant|>\nb<|end|>\n<|user|>\nc<|end|>\n<|assistant|>\n");
    EXPECT_EQ(rendered("deepseek", talk), "S<｜User｜>a<｜Assistant｜>b</s><｜User｜>c<｜Assistant｜>");
    EXPECT_EQ(rendered("zephyr", talk),
              "<|system|>\nS</s>\n<|user|>\na</s>\n<|assistant|>\nb</s>\n<|user|>\nc</s>\n<|assistant|>\n");
    EXPECT_EQ(rendered("llama-2", talk), "[INST] <<SYS>>\nS\n<</SYS>>\n\na [/INST] b </s><s>[INST] c [/INST]");
    EXPECT_EQ(rendered("mistral", talk), "[INST] S\n\na [/INST] b</s>[INST] c [/INST]");
    EXPECT_EQ(rendered("vicuna", talk), "S USER: a ASSISTANT: b</s>USER: c ASSISTANT:");
    EXPECT_EQ(rendered("vicuna", {{"user", "a"}}).substr(0, 60),
              "A chat between a curious user and an artificial intelligence");
}

TEST(TemplateFamilies, AreGuessedFromTokensThenFromTheName) {
    const auto guessed = [](std::vector<std::string> special, std::string_view name) -> std::string {
        const TemplateFamily* family = guess_template_family(Spellings(std::move(special)), name);
        return family == nullptr ? "" : std::string(family->name);
    };
    EXPECT_EQ(guessed({"<|im_start|>", "<|im_end|>"}, "vicuna-7b"), "chatml");
    EXPECT_EQ(guessed({"<|start_header_id|>", "<|eot_id|>"}, ""), "llama-3");
    EXPECT_EQ(guessed({"<|start_header_id|>"}, ""), "");  // one of two
    EXPECT_EQ(guessed({}, "Vicuna-7B-v1.5"), "vicuna");
    EXPECT_EQ(guessed({}, "Llama_2-7b Chat.gguf"), "llama-2");
    EXPECT_EQ(guessed({}, "llama-2-7b.gguf"), "");
    EXPECT_EQ(guessed({}, "Mixtral-8x7B-Instruct"), "mistral");
    EXPECT_EQ(guessed({}, "a model"), "");
    EXPECT_EQ(find_template_family("nobodys"), nullptr);
    EXPECT_EQ(template_family_names(), "llama-3, gemma, chatml, phi-3, deepseek, vicuna, zephyr, llama-2, mistral");
}

TEST(ChatForm, OfOneTextIsParagraphs) {
    const Spellings tokenizer({});
    const ChatForm form(std::nullopt, tokenizer);
    EXPECT_EQ(form.prompt_text("S", {{"user", "a"}, {"assistant", " b."}, {"user", "c"}}, " d"), "S\n\na b.\n\nc d");
    EXPECT_EQ(form.prompt_text(std::nullopt, {{"user", ""}}), "");
    EXPECT_EQ(form.prompt(std::nullopt, {{"user", ""}}).start, StreamingDetokenizer::Start::OfText);
    EXPECT_EQ(form.with_stops({}).stops, std::vector<std::string>{"\n\n"});
    EXPECT_EQ(form.with_stops({.stops = {"x"}}).stops, std::vector<std::string>{"x"});
    EXPECT_EQ(form.bridge("", {}), "\n\n");
    EXPECT_EQ(form.bridge("text", {}), std::nullopt);
    EXPECT_EQ(form.bridge("", {.stops = {"x"}}), std::nullopt);
}

}  // namespace
}  // namespace slipstream::tools
