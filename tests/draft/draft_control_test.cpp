// When drafting pauses, in time that is counted, not measured: what a stretch of passes takes beside plain decoding;
// and what a token is taken to be worth.
#include "draft/control/draft_control.h"

#include <functional>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace slipstream::draft {
namespace {

constexpr std::int64_t kNodes = 8;  // of every pass with guesses

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
    [[nodiscard]] std::int64_t longest_pause() const {
        std::int64_t longest = 0;
        for (std::size_t i = 1; i < when.size(); ++i) longest = std::max(longest, when[i] - when[i - 1] - 1);
        return longest;
    }
};

// A plain pass takes a second by the plan, one with guesses `guessing` seconds.
DraftControl control_with(double guessing) {
    return DraftControl(kNodes, [=](std::int64_t n, std::int64_t) {
        return 1.0 + (guessing - 1.0) * static_cast<double>(n - 1) / static_cast<double>(kNodes - 1);
    });
}

Course run(DraftControl& control, std::int64_t n_passes, const std::function<Pass(std::int64_t)>& pass_at) {
    Course course;
    for (std::int64_t i = 0; i < n_passes; ++i) {
        const Pass pass = pass_at(i);
        const bool guesses = control.should_draft(100 + course.tokens);
        const std::int64_t n = guesses ? pass.n_tokens : 1;
        const double seconds = guesses ? pass.seconds : pass.plain;
        const double expected = pass.expected > 0.0 ? pass.expected : static_cast<double>(n);
        control.record({.n_nodes = guesses ? kNodes : 1,
                        .n_tokens = n,
                        .pass_seconds = seconds,
                        .expected = guesses ? expected : 0.0,
                        .guessed = guesses});
        course.tokens += n;
        course.seconds += seconds;
        course.plain_seconds += static_cast<double>(n) * pass.plain;
        if (guesses) course.when.push_back(i);
    }
    course.guessed = std::ssize(course.when);
    return course;
}

TEST(DraftControl, GuessesThatAlwaysMissEndInPausesThatGrow) {
    DraftControl control = control_with(1.5);
    const Course course = run(control, 6000, [](std::int64_t) { return Pass{1, 1.5}; });
    EXPECT_LT(course.guessed, 150);
    EXPECT_LT(course.slowdown(), 1.01);
    EXPECT_EQ(control.back_off().of_passes, 6000);
    EXPECT_GT(control.back_off().passes, 5800);
    EXPECT_LE(control.back_off().passes, 6000 - course.guessed);
    EXPECT_NEAR(control.back_off().slowdown, 1.5, 0.01);
    EXPECT_GE(course.longest_pause(), 512);  // it is tried again, at the rarest
    EXPECT_LE(course.longest_pause(), 513);  // with a plain pass for its own sake
    std::int64_t longest = 0;
    for (std::size_t i = 1; i < course.when.size(); ++i) {
        const std::int64_t pause = course.when[i] - course.when[i - 1] - 1;
        EXPECT_TRUE(pause <= 1 || pause > longest || pause >= 512) << pause;
        longest = std::max(longest, pause);
    }
}

TEST(DraftControl, GreatExpectationsThatNeverComeTrueEndInPausesToo) {
    DraftControl control = control_with(1.5);
    const Course course = run(control, 6000, [](std::int64_t) { return Pass{1, 1.5, 1.0, 3.0}; });
    EXPECT_LT(course.guessed, 400);
    EXPECT_LT(course.slowdown(), 1.04);
    EXPECT_LT(control.realised_fraction(), 0.3);
}

TEST(DraftControl, GuessesThatHitAgainstAllExpectationGoOn) {
    DraftControl control = control_with(1.3);
    EXPECT_EQ(run(control, 2000, [](std::int64_t) { return Pass{3, 1.3, 1.0, 1.2}; }).guessed, 1999);
    EXPECT_GT(control.realised_fraction(), 3.0);
}

TEST(DraftControl, LuckAndBadLuckAreNotMistakenForMore) {
    // One pass in four commits five tokens, the others one: two are expected, and that is what it comes to. A plain
    // pass now and then tells what that is worth.
    DraftControl control = control_with(1.5);
    std::mt19937 random(1);
    const Course course = run(control, 5000, [&](std::int64_t) {
        return Pass{random() % 4 == 0 ? 5 : 1, 1.5, 1.0, 2.0};
    });
    EXPECT_GE(course.guessed, 5000 * 29 / 30);
    EXPECT_LE(course.longest_pause(), 1);
}

TEST(DraftControl, GuessesThatHitGoOn) {
    DraftControl control = control_with(1.3);
    EXPECT_EQ(run(control, 2000, [](std::int64_t) { return Pass{2, 1.3}; }).guessed, 1999);
    EXPECT_EQ(control.back_off().passes, 0);
    EXPECT_NEAR(control.realised_fraction(), 1.0, 1e-9);
}

TEST(DraftControl, AStretchWithoutLuckIsForgiven) {
    DraftControl control = control_with(1.2);
    // Three tokens a pass, but for ten in a hundred.
    const Course course = run(control, 3000, [](std::int64_t i) { return Pass{i % 100 < 10 ? 1 : 3, 1.2}; });
    EXPECT_GE(course.guessed, 2995);
    EXPECT_LE(course.longest_pause(), 1);
}

TEST(DraftControl, LearnsNothingFromTheFirstPasses) {
    // Tables are empty at first: 20 passes in vain, then they pay.
    DraftControl control = control_with(1.3);
    const Course course = run(control, 300, [](std::int64_t i) { return Pass{i < 20 ? 1 : 4, 1.3}; });
    EXPECT_GE(course.guessed, 298);
}

TEST(DraftControl, StopsWhereGuessesStopPaying) {
    DraftControl control = control_with(1.3);
    run(control, 500, [](std::int64_t) { return Pass{3, 1.2}; });
    const Course after = run(control, 2000, [](std::int64_t) { return Pass{1, 1.4}; });
    EXPECT_LT(after.guessed, 200);
    EXPECT_LT(after.when[1], 5);
    EXPECT_LT(after.slowdown(), 1.04);
}

TEST(DraftControl, BeginsAgainWhereGuessesPayAtLast) {
    DraftControl control = control_with(1.5);
    run(control, 3000, [](std::int64_t) { return Pass{1, 1.5}; });
    const Course after = run(control, 2000, [](std::int64_t) { return Pass{3, 1.3}; });
    EXPECT_LE(after.when.front(), 513);
    EXPECT_GE(after.guessed, 2000 - after.when.front() - 3);  // and goes on from then on
    // Pauses are short again, when it comes to that.
    const Course bad = run(control, 200, [](std::int64_t) { return Pass{1, 1.5}; });
    EXPECT_LT(bad.guessed, 150);
    EXPECT_LE(bad.longest_pause(), 65);
}

TEST(DraftControl, AMachineThatIsBusyAltogetherChangesLittle) {
    DraftControl control = control_with(1.4);
    const Course course = run(control, 1000, [](std::int64_t i) {
        const double load = i / 100 % 2 == 0 ? 1.0 : 3.0;
        return Pass{2, 1.4 * load, load};
    });
    // One that slows down right behind a plain pass seems to make guesses alone dearer: a first pause tells.
    EXPECT_GE(course.guessed, 950);
    EXPECT_LE(course.longest_pause(), 16);
    EXPECT_LT(course.slowdown(), 0.72);  // 0.7 with guesses in every pass
}

TEST(DraftControl, DraftingInVainThatCostsNothingIsNoLoss) {
    DraftControl control = control_with(1.5);
    for (int i = 0; i < 2000; ++i) {
        const bool guesses = control.should_draft(i);
        EXPECT_TRUE(guesses) << i;
        control.record({.n_nodes = 1, .pass_seconds = 1.0, .draft_seconds = 0.01, .expected = 1.0, .guessed = guesses});
    }
    // A tenth of a pass is one.
    std::int64_t n_guessed = 0;
    for (int i = 0; i < 2000; ++i) {
        const bool guesses = control.should_draft(i);
        n_guessed += guesses ? 1 : 0;
        control.record(
            {.pass_seconds = 1.0, .draft_seconds = guesses ? 0.1 : 0.0, .expected = 1.0, .guessed = guesses});
    }
    EXPECT_LT(n_guessed, 200);
}

TEST(DraftControl, ATokenIsNeverWorthMoreThanAPlainPass) {
    for (std::uint32_t seed = 0; seed < 10; ++seed) {
        std::mt19937 random(seed);
        std::lognormal_distribution<double> noise(0.0, 0.5);
        DraftControl control = control_with(1.5);
        EXPECT_EQ(control.seconds_per_token(), control.curve().at(1));
        for (int i = 0; i < 500; ++i) {
            const bool guesses = control.should_draft(i);
            control.record({.n_nodes = guesses ? kNodes : 1,
                            .n_tokens = guesses ? 1 + static_cast<std::int64_t>(random() % 3) : 1,
                            .pass_seconds = (guesses ? 2.0 : 1.0) * noise(random),
                            .draft_seconds = guesses ? 0.5 * noise(random) : 0.0,
                            .guessed = guesses});
            ASSERT_GT(control.seconds_per_token(), 0.0);
            ASSERT_LE(control.seconds_per_token(), control.curve().at(1));
        }
    }
    EXPECT_EQ(DraftControl(kNodes, {}).seconds_per_token(), 0.0) << "no pass is known";
}

TEST(DraftControl, ATokenIsWorthWhatItTookOfLate) {
    DraftControl control = control_with(1.2);
    run(control, 200, [](std::int64_t) { return Pass{3, 1.2}; });
    EXPECT_NEAR(control.seconds_per_token(), 0.4, 0.01);
    const double before = control.seconds_per_token();
    control.record({.n_nodes = kNodes, .n_tokens = 3, .pass_seconds = 60.0, .expected = 3.0, .guessed = true});
    EXPECT_LT(control.seconds_per_token(), 1.1 * before) << "one that was held up says little";
    run(control, 200, [](std::int64_t) { return Pass{2, 1.2}; });
    EXPECT_NEAR(control.seconds_per_token(), 0.6, 0.02);
}

TEST(DraftControl, HalfOfWhatIsExpectedComesTrue) {
    DraftControl control = control_with(1.2);
    EXPECT_EQ(control.realised_fraction(), 1.0);
    run(control, 100, [](std::int64_t) { return Pass{3, 1.2, 1.0, 5.0}; });
    EXPECT_NEAR(control.realised_fraction(), 0.5, 0.07);
    control.reset();
    EXPECT_EQ(control.realised_fraction(), 1.0) << "another text";
}

TEST(DraftControl, APlainPassIsMadeWhereGuessingGainsLittle) {
    // The plan takes a plain pass for twice what it takes in truth: guesses seem to gain, and lose.
    DraftControl control(kNodes, [](std::int64_t n, std::int64_t) { return n == 1 ? 2.0 : 2.2; });
    const Course course = run(control, 2000, [](std::int64_t i) { return Pass{i % 3 == 0 ? 2 : 1, 2.2}; });
    EXPECT_LT(course.slowdown(), 1.05);
    EXPECT_NEAR(control.curve().at(1), 1.0, 0.1);
    // So much so that they seem to gain a lot: what a plan alone says is not believed that far.
    DraftControl deceived(kNodes, [](std::int64_t n, std::int64_t) { return n == 1 ? 2.0 : 2.2; });
    EXPECT_LT(run(deceived, 2000, [](std::int64_t) { return Pass{2, 2.2}; }).slowdown(), 1.02);
    // Where guessing gains much, one is made to be sure, and no more.
    DraftControl gaining = control_with(1.2);
    EXPECT_EQ(run(gaining, 500, [](std::int64_t) { return Pass{3, 1.2}; }).guessed, 499);
    DraftControl riding = control_with(1.1);
    EXPECT_EQ(run(riding, 500, [](std::int64_t) { return Pass{6, 1.1}; }).guessed, 500);
    // Where it gains little, one a while.
    DraftControl little = control_with(1.8);
    const Course kept = run(little, 1000, [](std::int64_t) { return Pass{2, 1.8}; });
    EXPECT_GE(kept.guessed, 950);
    EXPECT_LE(kept.guessed, 985);
}

TEST(DraftControl, TimesThatCannotBeAreNotCounted) {
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    DraftControl control = control_with(1.5);
    run(control, 10, [](std::int64_t) { return Pass{3, 1.5}; });
    const double before = control.seconds_per_token();
    for (int i = 0; i < 200; ++i) {
        EXPECT_TRUE(control.should_draft(100));
        for (const double seconds : {0.0, -1.0, kNan})
            control.record({.n_nodes = kNodes, .pass_seconds = seconds, .expected = 1.0, .guessed = true});
    }
    EXPECT_EQ(control.seconds_per_token(), before);
    EXPECT_EQ(control.realised_fraction(), 1.0);
}

// A KV view is not built at the start of a text: passes without it say nothing of those with it.
TEST(DraftControl, PassesBeforeAViewIsReadyAreCountedApart) {
    DraftControl control = control_with(1.1);
    const auto pass = [&](ViewReady ready, std::int64_t n_tokens, bool probes = true) {
        const bool guesses = control.should_draft(100, probes, ready);
        control.record({.n_nodes = guesses ? kNodes : 1,
                        .n_tokens = guesses ? n_tokens : 1,
                        .pass_seconds = guesses ? 1.1 : 1.0,
                        .expected = guesses ? 10.0 : 0.0,
                        .guessed = guesses});
        return guesses;
    };
    EXPECT_TRUE(pass(ViewReady::No, 1, false));
    EXPECT_FALSE(pass(ViewReady::No, 1));  // the first plain pass is due
    EXPECT_TRUE(pass(ViewReady::No, 1));
    EXPECT_NEAR(control.seconds_per_token(), 1.0, 1e-9);  // a plain pass's: drafting brought nothing
    EXPECT_LT(control.realised_fraction(), 0.2);
    EXPECT_TRUE(pass(ViewReady::Yes, 10));
    EXPECT_NEAR(control.seconds_per_token(), 0.11, 1e-9);
    EXPECT_EQ(control.realised_fraction(), 1.0);
    // A new text has no view again, and its first passes count as such.
    EXPECT_TRUE(pass(ViewReady::No, 1)) << "a plain pass was measured";
    EXPECT_NEAR(control.seconds_per_token(), 1.0, 1e-9);
}

TEST(DraftControl, ResetIsANewBeginning) {
    DraftControl control = control_with(2.0);
    run(control, 1000, [](std::int64_t) { return Pass{1, 2.0}; });
    control.reset();
    EXPECT_GE(run(control, 24, [](std::int64_t) { return Pass{1, 2.0}; }).guessed, 23);
    EXPECT_NEAR(control.curve().at(1), 1.0, 0.1) << "what passes take stays known";
}

}  // namespace
}  // namespace slipstream::draft
