// Who guesses, in time that is counted, not measured.
#include "draft/crew_choice.h"

#include <array>
#include <functional>
#include <random>

#include <gtest/gtest.h>

namespace slipstream::draft {
namespace {

struct Pass {
    WalkShares shares;
    CrewSeconds seconds;
};

using Course = std::array<std::int64_t, kNumCrews>;  // passes of each crew

Course run(CrewChoice& crews, std::int64_t n_passes, const std::function<Pass(Crew)>& pass_of) {
    Course course{};
    for (std::int64_t i = 0; i < n_passes; ++i) {
        const Crew crew = crews.next();
        ++course[static_cast<std::size_t>(crew)];
        const Pass pass = pass_of(crew);
        crews.record(pass.shares, pass.seconds);
    }
    return course;
}

std::int64_t passes_of(const Course& course, Crew crew) {
    return course[static_cast<std::size_t>(crew)];
}

TEST(CrewChoice, EveryoneStaysWherePassesTakeLong) {
    CrewChoice crews;
    const Course course = run(crews, 2000, [](Crew crew) {
        // Tables find nothing more, but take no more than a hundred-and-fiftieth of a pass.
        const double others = crew == Crew::Model ? 0.0 : 0.007;
        return Pass{{.tokens = 4, .by_tables = 2, .by_model = 4}, {.pass = 1.0, .model = 0.05, .others = others}};
    });
    EXPECT_EQ(passes_of(course, Crew::Everyone), 2000);
}

TEST(CrewChoice, TablesThatBringLessThanTheyTakeRest) {
    CrewChoice crews;
    std::mt19937 random(1);
    const Course course = run(crews, 4000, [&](Crew crew) {
        const double by_model = 1.0 + static_cast<double>(random() % 3);
        const double tokens = by_model + (random() % 20 == 0 ? 1.0 : 0.0);
        return Pass{{.tokens = tokens, .by_tables = 1, .by_model = by_model},
                    {.pass = 1.0, .model = 0.2, .others = crew == Crew::Model ? 0.05 : 0.25}};
    });
    EXPECT_GT(passes_of(course, Crew::Model), 3500);
    EXPECT_EQ(passes_of(course, Crew::Tables), 0);
}

TEST(CrewChoice, AModelThatTablesMakeNeedlessRests) {
    CrewChoice crews;
    const Course course = run(crews, 4000, [](Crew crew) {
        return Pass{{.tokens = 5, .by_tables = 5, .by_model = 3},
                    {.pass = 1.0, .model = crew == Crew::Tables ? 0.0 : 0.3, .others = 0.1}};
    });
    EXPECT_GT(passes_of(course, Crew::Tables), 3500);
}

TEST(CrewChoice, WhatItTakesInTruthIsLearntByTrying) {
    // Without the tables the search takes as long as with them: the first guess, that it is free, is soon unlearnt.
    CrewChoice crews;
    const Course course = run(crews, 4000, [](Crew) {
        return Pass{{.tokens = 20, .by_tables = 1, .by_model = 19}, {.pass = 1.0, .model = 0.2, .others = 0.2}};
    });
    // Once, and now and then again, for machines change.
    EXPECT_GE(passes_of(course, Crew::Model), 64);
    EXPECT_LE(passes_of(course, Crew::Model), 800);
}

TEST(CrewChoice, ATextThatChangesChangesTheCrew) {
    CrewChoice crews;
    const auto new_text = [](Crew crew) {
        return Pass{
            {.tokens = 3, .by_tables = 1, .by_model = 3},
            {.pass = 1.0, .model = crew == Crew::Tables ? 0.0 : 0.2, .others = crew == Crew::Model ? 0.02 : 0.2}};
    };
    const auto repeating = [](Crew crew) {
        const WalkShares shares = crew == Crew::Model ? WalkShares{.tokens = 3, .by_tables = 1, .by_model = 3}
                                                      : WalkShares{.tokens = 8, .by_tables = 8, .by_model = 3};
        return Pass{
            shares,
            {.pass = 1.0, .model = crew == Crew::Tables ? 0.0 : 0.2, .others = crew == Crew::Model ? 0.02 : 0.2}};
    };
    EXPECT_GT(passes_of(run(crews, 300, new_text), Crew::Model), 200);
    EXPECT_GT(passes_of(run(crews, 1200, repeating), Crew::Tables), 500);
    while (crews.next() == Crew::Everyone) run(crews, 1, repeating);
    ASSERT_NE(crews.next(), Crew::Everyone);
    crews.reset();
    EXPECT_EQ(crews.next(), Crew::Everyone);
}

TEST(CrewChoice, ASlowMomentOfTheBestCrewIsForgotten) {
    for (const std::int64_t n_slow : {1, 20}) {
        CrewChoice crews;
        std::int64_t n_model = 0;
        const Course course = run(crews, 20000, [&](Crew crew) {
            if (crew == Crew::Model) ++n_model;
            // The end of the first stretch.
            const bool slow = crew == Crew::Model && n_model <= 64 && n_model > 64 - n_slow;
            const double others = slow ? (n_slow == 1 ? 4.0 : 0.4) : crew == Crew::Model ? 0.05 : 0.25;
            return Pass{{.tokens = 2, .by_tables = 1, .by_model = 2}, {.pass = 1.0, .model = 0.2, .others = others}};
        });
        EXPECT_GT(passes_of(course, Crew::Model), 16000) << n_slow << " slow passes";
    }
}

TEST(CrewChoice, NoGuessesAtAllAreNoReason) {
    CrewChoice crews;
    const Course course = run(crews, 500, [](Crew) { return Pass{{}, {.pass = 1.0, .model = 0.0, .others = 0.0}}; });
    EXPECT_EQ(passes_of(course, Crew::Everyone), 500);
}

}  // namespace
}  // namespace slipstream::draft
