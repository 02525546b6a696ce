// The shapes of the dialects. make_answer_shape() chooses one.
#pragma once

#include <memory>

#include "tools/serve/answer_shape.h"

namespace slipstream::tools {

[[nodiscard]] std::unique_ptr<AnswerShape> make_chat_shape(AnswerHead head, const Tokenizer& tokenizer);
[[nodiscard]] std::unique_ptr<AnswerShape> make_completion_shape(AnswerHead head, const Tokenizer& tokenizer);
[[nodiscard]] std::unique_ptr<AnswerShape> make_messages_shape(AnswerHead head, const Tokenizer& tokenizer);
[[nodiscard]] std::unique_ptr<AnswerShape> make_responses_shape(AnswerHead head, const Tokenizer& tokenizer);
[[nodiscard]] std::unique_ptr<AnswerShape> make_llama_shape(AnswerHead head, const Tokenizer& tokenizer);

}  // namespace slipstream::tools
