#include "tools/bench/bench_talk.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"
#include "tools/engine/engine.h"
#include "tools/terminal/signals.h"

namespace slipstream::tools {

BenchForm::BenchForm(const BenchRequest& request, const OpenedModel& model, const Tokenizer& tokenizer,
                     const EngineCallbacks& callbacks)
    : tokenizer_(&tokenizer),
      config_(&model.config()),
      end_tokens_(all_end_tokens(model.files().generation_defaults(), tokenizer)),
      system_(request.chat_template.system) {
    TemplateSettings chosen = request.chat_template;
    auto made = completion_template(chosen, model, tokenizer, callbacks);
    if (!made) return;
    name_ = made->name();
    turn_end_ = made->turn_end().value_or("");
    form_.emplace(std::move(made), tokenizer, &cancel_flag());
}

std::vector<TokenId> BenchForm::prompt(std::span<const std::string> turns,
                                       std::span<const std::vector<TokenId>> answers) const {
    CHECK(form_ && answers.size() + 1 == turns.size(), "{} answers, {} turns", answers.size(), turns.size());
    std::vector<Message> messages;
    for (std::size_t i = 0; i < turns.size(); ++i) {
        messages.push_back({"user", turns[i]});
        if (i == answers.size()) break;
        std::span<const TokenId> answer = answers[i];
        if (!answer.empty() && std::ranges::find(end_tokens_, answer.back()) != end_tokens_.end())
            answer = answer.first(answer.size() - 1);
        std::string said = tokenizer_->decode(answer);
        if (!turn_end_.empty()) said.resize(std::min(said.size(), said.find(turn_end_)));
        messages.push_back({"assistant", std::move(said)});
    }
    std::vector<TokenId> tokens = form_->prompt(system_, messages).tokens;
    check_tokens(tokens, *config_);
    return tokens;
}

}  // namespace slipstream::tools
