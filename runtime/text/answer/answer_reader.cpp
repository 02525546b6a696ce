#include "runtime/text/answer/answer_reader.h"

#include <algorithm>
#include <utility>

namespace slipstream {

namespace {

using Step = CallReader::Step;

bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

template <typename... States>
constexpr unsigned states(States... some) {
    return ((1U << static_cast<unsigned>(some)) | ...);
}

}  // namespace

AnswerReader::AnswerReader(const AnswerForm& form, OfferedTools tools, Start start)
    : tools_(std::move(tools)),
      calls_(tools_.empty() ? CallForm::None : form.calls),
      thought_end_(form.thoughts.close),
      state_(start == Start::Thought && form.thoughts.exist() ? State::Thought : State::Beginning) {
    constexpr unsigned kFirst = states(State::Beginning, State::AfterThought, State::AfterCall);
    constexpr unsigned kAny = kFirst | states(State::Content, State::MarkedContent, State::AfterContent);
    drops_space_ = state_ == State::Thought;
    if (consists_of_messages(form.calls)) {
        harmony_.emplace(form.calls == CallForm::Muse ? HarmonyReader::Dialect::Muse : HarmonyReader::Dialect::GptOss,
                         tools_,
                         start == Start::Thought ? HarmonyReader::Start::Thought : HarmonyReader::Start::Header);
        return;
    }
    if (form.thoughts.exist()) marks_.push_back({form.thoughts.open, Effect::OpensThought, states(State::Beginning)});
    if (form.content.exist()) {
        marks_.push_back({form.content.open, Effect::OpensContent, states(State::Beginning, State::AfterThought)});
        marks_.push_back(
            {form.content.close, Effect::ClosesContent, states(State::MarkedContent, State::AfterContent)});
    }
    const unsigned after_call = states(State::AfterCall);
    const auto add_bare_calls = [&] {
        marks_.push_back({"{", Effect::BeginsCall, kFirst, true});
        marks_.push_back({"```json", Effect::OpensCall, kFirst, true});
        marks_.push_back({"```", Effect::Separates, after_call});
    };
    switch (calls_) {
        case CallForm::None:
        case CallForm::Harmony:
        case CallForm::Muse:
            break;
        case CallForm::Hermes:
            marks_.push_back({"<tool_call>", Effect::OpensCall, kAny});
            marks_.push_back({"</tool_call>", Effect::Separates, after_call});
            add_bare_calls();
            break;
        case CallForm::QwenXml:
            marks_.push_back({"<tool_call>", Effect::OpensCall, kAny});
            marks_.push_back({"<function=", Effect::BeginsCall, kAny});
            marks_.push_back({"</tool_call>", Effect::Separates, after_call});
            break;
        case CallForm::Llama3:
            marks_.push_back({"<|python_tag|>", Effect::OpensCall, kAny});
            marks_.push_back({";", Effect::Separates, after_call});
            add_bare_calls();
            break;
        case CallForm::Mistral:
            marks_.push_back({"[TOOL_CALLS]", Effect::OpensCall, kAny});
            break;
        case CallForm::Phi4:
            marks_.push_back({"<|tool_call|>", Effect::OpensCall, kAny});
            marks_.push_back({"functools[", Effect::BeginsCall, kAny});
            marks_.push_back({"<|/tool_call|>", Effect::Separates, after_call});
            break;
        case CallForm::Gemma4:
            marks_.push_back({"<|tool_call>", Effect::OpensCall, kAny});
            marks_.push_back({"<tool_call|>", Effect::Separates, after_call});
            break;
    }
}

void AnswerReader::skip(std::string_view text) {
    static_cast<void>(push(text));
    n_calls_ = 0;
    if (harmony_) harmony_->skip_held();
    n_skipped_ = pending_.size();
}

std::vector<AnswerPiece> AnswerReader::push(std::string_view text) {
    if (harmony_) {
        for (const char c : text) harmony_->push(c, out_);
        n_calls_ += static_cast<std::size_t>(std::ranges::count(out_, AnswerPiece::Kind::Call, &AnswerPiece::kind));
        return std::exchange(out_, {});
    }
    for (const char c : text) step(c);
    return std::exchange(out_, {});
}

std::vector<AnswerPiece> AnswerReader::finish() {
    if (harmony_) {
        harmony_->finish(out_);
        return std::exchange(out_, {});
    }
    if (state_ == State::InCall) {
        state_ = text_state_;
        call_.reset();
    } else if (state_ != State::Thought) {
        static_cast<void>(take_mark());  // a mark that waited because a longer mark begins with it
    }
    if (state_ == State::AfterContent && n_space_ == pending_.size()) forget_pending();
    flush_pending();
    return std::exchange(out_, {});
}

void AnswerReader::step(char c) {
    if (state_ == State::InCall) {
        step_call(c);
    } else if (state_ == State::Thought) {
        step_thought(c);
    } else {
        step_text(c);
    }
}

void AnswerReader::step_text(char c) {
    if (state_ == State::Content && calls_ == CallForm::None) {
        emit(AnswerPiece::Kind::Content, {&c, 1});
        return;
    }
    if (n_space_ == pending_.size() && is_space(c)) {
        pending_ += c;
        ++n_space_;
        return;
    }
    pending_ += c;
    const std::string_view begun = std::string_view(pending_).substr(n_space_);
    const auto is_longer = [&](const Mark& mark) { return may_begin(mark, begun) && mark.text.size() > begun.size(); };
    if (std::ranges::any_of(marks_, is_longer)) return;
    if (take_mark()) return;
    // pending_ cannot become a mark. If it has two bytes or more, its last byte may begin another mark.
    const bool is_alone = begun.size() == 1;
    if (!is_alone) pending_.pop_back();
    flush_pending();
    state_ = text_state_;
    if (!is_alone) step_text(c);
}

bool AnswerReader::may_begin(const Mark& mark, std::string_view begun) const {
    return (mark.states & states(state_)) != 0 && mark.text.starts_with(begun);
}

// If pending_ begins with a mark after its white space, takes the longest such mark, reads the rest again, and returns
// true.
bool AnswerReader::take_mark() {
    const std::string_view begun = std::string_view(pending_).substr(n_space_);
    const Mark* longest = nullptr;
    for (const Mark& mark : marks_)
        if ((mark.states & states(state_)) != 0 && begun.starts_with(mark.text) &&
            (longest == nullptr || mark.text.size() > longest->text.size()))
            longest = &mark;
    if (longest == nullptr) return false;
    const std::string rest(begun.substr(longest->text.size()));
    pending_.resize(pending_.size() - rest.size());
    enter(*longest);
    for (const char c : rest) step(c);
    return true;
}

void AnswerReader::step_thought(char c) {
    if (n_space_ == pending_.size() && is_space(c)) {
        pending_ += c;
        ++n_space_;
        return;
    }
    pending_ += c;
    const std::string_view begun = std::string_view(pending_).substr(n_space_);
    if (thought_end_.starts_with(begun)) {
        if (thought_end_.size() != begun.size()) return;
        forget_pending();
        state_ = State::AfterThought;
        return;
    }
    const bool is_alone = begun.size() == 1;
    if (!is_alone) pending_.pop_back();
    flush_pending();
    if (!is_alone) step_thought(c);
}

void AnswerReader::step_call(char c) {
    const Step step = call_->push(c);
    const bool is_read = step == Step::Call || step == Step::LastCall;
    const auto is_doubtful = [&] {
        return is_weak_ && (!call_->call().has_arguments || find_tool(tools_, call_->call().name) == nullptr);
    };
    if (step == Step::Failed || (is_read && is_doubtful())) {
        fail_call(c);
        return;
    }
    if (step == Step::More) {
        pending_ += c;
        return;
    }
    forget_pending();
    if (is_read) {
        ++n_calls_;
        out_.push_back({.kind = AnswerPiece::Kind::Call, .text = call_->call().arguments, .name = call_->call().name});
    }
    if (step == Step::Call) return;
    call_.reset();
    state_ = State::AfterCall;
}

void AnswerReader::enter(const Mark& mark) {
    switch (mark.effect) {
        case Effect::OpensThought:
            forget_pending();
            state_ = State::Thought;
            return;
        case Effect::OpensContent:
            forget_pending();
            state_ = text_state_ = State::MarkedContent;
            return;
        case Effect::ClosesContent:
            emit(AnswerPiece::Kind::Content, closing_);
            closing_ = std::exchange(pending_, {});
            n_space_ = 0;
            closing_.erase(0, std::exchange(n_skipped_, 0));
            drops_space_ = false;
            state_ = State::AfterContent;
            return;
        case Effect::Separates:
            forget_pending();
            return;
        case Effect::OpensCall:
        case Effect::BeginsCall:
            break;
    }
    state_ = State::InCall;
    is_weak_ = mark.is_weak;
    if (calls_ == CallForm::QwenXml) {
        call_ = make_xml_call_reader(tools_);
    } else if (calls_ == CallForm::Gemma4) {
        call_ = make_gemma_call_reader();
    } else {
        call_ = calls_ == CallForm::Mistral ? make_mistral_call_reader() : make_json_call_reader();
    }
    if (mark.effect == Effect::OpensCall) return;
    // Phi 4: of the mark "functools[", only the bracket belongs to the call.
    const std::string_view begun = calls_ == CallForm::Phi4 ? mark.text.substr(mark.text.size() - 1) : mark.text;
    for (const char c : begun) static_cast<void>(call_->push(c));
}

// Ends a call that turned out to be none: the text held back for it becomes content. Then reads `c`, the byte that
// cannot belong to the call and may begin another mark.
void AnswerReader::fail_call(char c) {
    call_.reset();
    state_ = text_state_;
    flush_pending();
    step_text(c);
}

void AnswerReader::flush_pending() {
    emit(AnswerPiece::Kind::Content, closing_);  // text follows it, so it closed nothing
    const std::size_t n_dropped = std::max(drops_space_ ? n_space_ : 0, n_skipped_);
    emit(state_ == State::Thought ? AnswerPiece::Kind::Thought : AnswerPiece::Kind::Content,
         std::string_view(pending_).substr(n_dropped));
    forget_pending();
    drops_space_ = false;
}

// Empties the held-back text without emitting it. White space that follows is then dropped too, as part of a mark or a
// call, unless the caller resets drops_space_.
void AnswerReader::forget_pending() {
    pending_.clear();
    closing_.clear();
    n_space_ = n_skipped_ = 0;
    drops_space_ = true;
}

void AnswerReader::emit(AnswerPiece::Kind kind, std::string_view text) {
    if (text.empty()) return;
    if (out_.empty() || out_.back().kind != kind || kind == AnswerPiece::Kind::Call)
        out_.push_back({.kind = kind, .text = {}, .name = {}});
    out_.back().text += text;
}

}  // namespace slipstream
