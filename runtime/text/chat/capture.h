// The evaluator's two changes of state that must be undone whatever happens: where it writes, and whose slots it uses.
#pragma once

#include <utility>

#include "runtime/text/chat/evaluator.h"

namespace slipstream::jinja {

class Evaluator::Capture {
public:
    explicit Capture(Evaluator& evaluator)
        : evaluator_(evaluator),
          buffer_(evaluator.runtime_.limits().max_text_bytes),
          before_(std::exchange(evaluator.out_, &buffer_)) {}
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;
    ~Capture() { evaluator_.out_ = before_; }

    /// What was written; the output goes where it went before.
    [[nodiscard]] Value take() {
        evaluator_.out_ = before_;
        return evaluator_.runtime_.text(buffer_.take());
    }

private:
    Evaluator& evaluator_;
    TextBuilder buffer_;
    TextBuilder* before_;
};

class Evaluator::Call {
public:
    Call(Evaluator& evaluator, Activation& activation)
        : evaluator_(evaluator), before_(std::exchange(evaluator.current_, &activation)) {}
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    ~Call() { evaluator_.current_ = before_; }

private:
    Evaluator& evaluator_;
    Activation* before_;
};

}  // namespace slipstream::jinja
