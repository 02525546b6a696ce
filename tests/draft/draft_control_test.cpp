// The off switch in time that is counted, not measured: what a stretch of passes takes beside plain decoding.
#include "draft/control/guess_switch.h"

#include <functional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace slipstream::draft {
namespace {

// A pass with guesses: tokens that it commits, and seconds, where a plain one takes `plain`.
struct Pass {
    std::int64_t n_tokens;
    double seconds;
    double plain = 1.0;
    double expected = 0.0;  // tokens; 0: as many as come
};

struct Course {
    std::int64_t guessed = 0;  // passes
    std::int64_t tokens = 0;
    double seconds = 0.0;
    double plain_seconds = 0.0;      // that plain decoding takes for the same tokens
    std::vector<std::int64_t> when;  // passes that guessed

    [[nodiscard]] double slowdown() const { return seconds / plain_seconds; }
};

Course run(GuessSwitch& guess_switch, std::int64_t n_passes, const std::function<Pass(std::int64_t)>& pass_at) {
    Course course;
    for (std::int64_t i = 0; i < n_passes; ++i) {
        const Pass pass = pass_at(i);
        const bool guesses = guess_switch.take_turn();
        const std::int64_t n = guesses ? pass.n_tokens : 1;
        const double seconds = guesses ? pass.seconds : pass.plain;
        course.tokens += n;
        course.seconds += seconds;
        course.plain_seconds += static_cast<double>(n) * pass.plain;
        if (!guesses) continue;
        ++course.guessed;
        course.when.push_back(i);
        guess_switch.record(pass.expected > 0.0 ? pass.expected : static_cast<double>(n), n, seconds, pass.plain);
    }
    return course;
}

TEST(GuessSwitch, GuessesThatAlwaysMissEndInRestsThatGrow) {
    GuessSwitch guess_switch;
    const Course course = run(guess_switch, 6000, [](std::int64_t) { return Pass{1, 1.5}; });
    EXPECT_LT(course.guessed, 150);
    EXPECT_LT(course.slowdown(), 1.01);
    std::int64_t longest = 0;
    for (std::size_t i = 1; i < course.when.size(); ++i) {
        const std::int64_t rest = course.when[i] - course.when[i - 1] - 1;
        EXPECT_TRUE(rest == 0 || rest > longest || rest == 512) << rest;
        longest = std::max(longest, rest);
    }
    EXPECT_EQ(longest, 512);  // it is tried again, at the rarest
}

TEST(GuessSwitch, GreatExpectationsThatNeverComeTrueEndInRestsToo) {
    GuessSwitch guess_switch;
    const Course course = run(guess_switch, 6000, [](std::int64_t) { return Pass{1, 1.5, 1.0, 3.0}; });
    EXPECT_LT(course.guessed, 400);
    EXPECT_LT(course.slowdown(), 1.04);
}

TEST(GuessSwitch, GuessesThatHitAgainstAllExpectationGoOn) {
    GuessSwitch guess_switch;
    EXPECT_EQ(run(guess_switch, 2000, [](std::int64_t) { return Pass{3, 1.3, 1.0, 1.2}; }).guessed, 2000);
}

TEST(GuessSwitch, LuckAndBadLuckAreNotMistakenForMore) {
    // One pass in four commits five tokens, the others one: two are expected, and that is what it comes to.
    GuessSwitch guess_switch;
    std::mt19937 random(1);
    const Course course = run(guess_switch, 5000, [&](std::int64_t) {
        return Pass{random() % 4 == 0 ? 5 : 1, 1.5, 1.0, 2.0};
    });
    EXPECT_EQ(course.guessed, 5000);
}

TEST(GuessSwitch, GuessesThatHitGoOn) {
    GuessSwitch guess_switch;
    EXPECT_EQ(run(guess_switch, 2000, [](std::int64_t) { return Pass{2, 1.3}; }).guessed, 2000);
}

TEST(GuessSwitch, AStretchWithoutLuckIsForgiven) {
    GuessSwitch guess_switch;
    // Three tokens a pass, but for ten in a hundred.
    const Course course = run(guess_switch, 3000, [](std::int64_t i) { return Pass{i % 100 < 10 ? 1 : 3, 1.2}; });
    EXPECT_EQ(course.guessed, 3000);
}

TEST(GuessSwitch, LearnsNothingFromTheFirstPasses) {
    // Tables are empty at first: 20 passes in vain, then they pay.
    GuessSwitch guess_switch;
    const Course course = run(guess_switch, 300, [](std::int64_t i) { return Pass{i < 20 ? 1 : 4, 1.3}; });
    EXPECT_EQ(course.guessed, 300);
}

TEST(GuessSwitch, StopsWhereGuessesStopPaying) {
    GuessSwitch guess_switch;
    run(guess_switch, 500, [](std::int64_t) { return Pass{3, 1.2}; });
    const Course after = run(guess_switch, 2000, [](std::int64_t) { return Pass{1, 1.4}; });
    EXPECT_LT(after.guessed, 200);
    EXPECT_LT(after.when[1], 5);
    EXPECT_LT(after.slowdown(), 1.04);
}

TEST(GuessSwitch, BeginsAgainWhereGuessesPayAtLast) {
    GuessSwitch guess_switch;
    run(guess_switch, 3000, [](std::int64_t) { return Pass{1, 1.5}; });
    const Course after = run(guess_switch, 2000, [](std::int64_t) { return Pass{3, 1.3}; });
    EXPECT_LE(after.when.front(), 512);
    EXPECT_EQ(after.guessed, 2000 - after.when.front());  // and never stops from then on
    // Rests are short again, when it comes to that.
    const Course bad = run(guess_switch, 200, [](std::int64_t) { return Pass{1, 1.5}; });
    EXPECT_LT(bad.guessed, 150);
    std::int64_t longest = 0;
    for (std::size_t i = 1; i < bad.when.size(); ++i) longest = std::max(longest, bad.when[i] - bad.when[i - 1] - 1);
    EXPECT_LE(longest, 64);
}

TEST(GuessSwitch, AMachineThatIsBusyAltogetherChangesNothing) {
    GuessSwitch guess_switch;
    const Course course = run(guess_switch, 1000, [](std::int64_t i) {
        const double load = i / 100 % 2 == 0 ? 1.0 : 3.0;
        return Pass{2, 1.4 * load, load};
    });
    EXPECT_EQ(course.guessed, 1000);
}

TEST(GuessSwitch, TimesThatCannotBeAreNotCounted) {
    GuessSwitch guess_switch;
    for (int i = 0; i < 200; ++i) {
        EXPECT_TRUE(guess_switch.take_turn());
        guess_switch.record(1.0, 1, 0.0, 1.0);
        guess_switch.record(1.0, 1, 1.0, 0.0);
        guess_switch.record(1.0, 1, -1.0, 1.0);
    }
}

TEST(GuessSwitch, ResetIsANewBeginning) {
    GuessSwitch guess_switch;
    run(guess_switch, 1000, [](std::int64_t) { return Pass{1, 2.0}; });
    guess_switch.reset();
    EXPECT_EQ(run(guess_switch, 24, [](std::int64_t) { return Pass{1, 2.0}; }).guessed, 24);
}

}  // namespace
}  // namespace slipstream::draft
