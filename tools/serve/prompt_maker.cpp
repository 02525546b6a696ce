#include "tools/serve/prompt_maker.h"

#include <utility>

#include "kernels/base/interrupted.h"

namespace slipstream::tools {

PromptMaker::PromptMaker(const Tokenizer& tokenizer, std::optional<PromptTemplate> prompt_template,
                         GenerationDefaults defaults)
    : tokenizer_(tokenizer),
      template_(std::move(prompt_template)),
      turns_(template_, tokenizer),
      defaults_(std::move(defaults)) {}

std::string PromptMaker::rendered(const RequestedConversation& conversation, const std::atomic<bool>* cancel) const {
    return render_conversation(form(), make_conversation(conversation, form()), cancel).text.bytes;
}

void PromptMaker::prepare_chat(const RequestedConversation& requested, const std::atomic<bool>* cancel,
                               PreparedText& prepared) const {
    Conversation conversation = make_conversation(requested, form());
    const ConversationPrompt prompt = render_conversation(form(), conversation, cancel);
    prepared.task.prompt = encode_rendered(prompt.text, tokenizer_, cancel);
    prepared.task.text = turns_.with_stops(std::move(prepared.task.text));
    if (form() == nullptr) return;
    prepared.reader =
        std::make_unique<AnswerReader>(form()->answer_form(), std::move(conversation.tools), prompt.start);
    prepared.reader->skip(prompt.begun);
}

PreparedText PromptMaker::prepared(const TextRequest& request, const std::atomic<bool>* cancel) const {
    PreparedText prepared{.task = {.sampling = resolve_sampling(request.sampling, defaults_, {}),
                                   .ignore_end = request.sampling.ignore_end,
                                   .text = request.text,
                                   .n_logprobs = request.n_logprobs}};
    if (const auto* ids = std::get_if<std::vector<TokenId>>(&request.prompt))
        prepared.task.prompt = {*ids, StreamingDetokenizer::Start::Continued};
    else if (const auto* text = std::get_if<std::string>(&request.prompt))
        prepared.task.prompt = encode_raw(*text, tokenizer_, request.special, cancel);
    else
        prepare_chat(std::get<RequestedConversation>(request.prompt), cancel, prepared);
    return prepared;
}

std::vector<TokenId> PromptMaker::tokenized(const std::string& text, Bos bos, SpecialTokens special,
                                            const std::atomic<bool>* cancel) const {
    return bos == Bos::Added ? encode_raw(text, tokenizer_, special, cancel).tokens
                             : tokenizer_.encode(text, special, cancel);
}

}  // namespace slipstream::tools
