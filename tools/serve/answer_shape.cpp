#include "tools/serve/answer_shape.h"

#include <utility>

#include "tools/serve/dialect_shapes.h"

namespace slipstream::tools {

std::unique_ptr<AnswerShape> make_answer_shape(Dialect dialect, AnswerHead head, const Tokenizer& tokenizer) {
    switch (dialect) {
        case Dialect::Chat:
            break;
        case Dialect::Completions:
            return make_completion_shape(std::move(head), tokenizer);
        case Dialect::Messages:
            return make_messages_shape(std::move(head), tokenizer);
        case Dialect::Responses:
            return make_responses_shape(std::move(head), tokenizer);
        case Dialect::Llama:
            return make_llama_shape(std::move(head), tokenizer);
    }
    return make_chat_shape(std::move(head), tokenizer);
}

}  // namespace slipstream::tools
