// What was said behind a context not long ago, to be said again. The trees of consecutive passes ask behind the same
// frequent contexts, whose counts hardly change in between; mixing them anew is most of what drafting costs. An answer
// serves while nothing new was seen behind its context, for a while: shorter contexts and the mixer's weights may have
// moved a little by then.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "draft/sources/source.h"

namespace slipstream::draft {

class RecentAnswers {
public:
    static constexpr std::size_t kMostWords = 32;
    static constexpr std::uint32_t kFresh = 1024;  // tokens for which an answer serves

    /// Of a context that was seen `total` times, asked for `n_asked` words when the text had `now` tokens.
    struct Question {
        std::uint64_t key = 0;  // not 0
        std::uint32_t total = 0;
        std::uint32_t now = 0;
        std::uint32_t n_asked = 0;
    };

    RecentAnswers() : answers_(kAnswers) {}

    /// Proposals that were kept for as much as is asked now; empty if there are none.
    [[nodiscard]] std::span<const Proposal> find(const Question& question) const {
        const Answer& answer = answers_[place_of(question.key)];
        const Question& then = answer.question;
        if (then.key != question.key || then.total != question.total || then.n_asked < question.n_asked ||
            question.now - then.now > kFresh)
            return {};
        return std::span(answer.words).first(answer.n_words);
    }
    /// At most kMostWords of `words` are kept.
    void keep(const Question& question, std::span<const Proposal> words) {
        Answer& answer = answers_[place_of(question.key)];
        answer.question = question;
        answer.n_words = static_cast<std::uint32_t>(std::min(words.size(), kMostWords));
        std::copy_n(words.begin(), answer.n_words, answer.words.begin());
    }
    void clear() {
        for (Answer& answer : answers_) answer.question.key = 0;
    }
    void prefetch(std::uint64_t key) const { __builtin_prefetch(&answers_[place_of(key)]); }

    [[nodiscard]] std::size_t memory_bytes() const { return answers_.size() * sizeof(Answer); }

private:
    static constexpr std::size_t kAnswers = 4096;

    struct Answer {
        Question question;
        std::uint32_t n_words = 0;
        std::array<Proposal, kMostWords> words;
    };
    [[nodiscard]] static std::size_t place_of(std::uint64_t key) {
        return static_cast<std::size_t>(key >> 40) % kAnswers;
    }

    std::vector<Answer> answers_;
};

}  // namespace slipstream::draft
