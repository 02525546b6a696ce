// Who guesses, in time that is counted, not measured.
#include "draft/control/crew_choice.h"

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
        const double others = crew == Crew::Quick ? 0.0 : 0.007;
        return Pass{{.tokens = 4, .by_tables = 2, .by_quick = 4}, {.pass = 1.0, .model = 0.05, .others = others}};
    });
    EXPECT_EQ(passes_of(course, Crew::Everyone), 2000);
}

TEST(CrewChoice, TablesThatBringLessThanTheyTakeRest) {
    CrewChoice crews;
    std::mt19937 random(1);
    const Course course = run(crews, 4000, [&](Crew crew) {
        const double by_quick = 1.0 + static_cast<double>(random() % 3);
        const double tokens = by_quick + (random() % 20 == 0 ? 1.0 : 0.0);
        return Pass{{.tokens = tokens, .by_tables = 1, .by_quick = by_quick},
                    {.pass = 1.0, .model = 0.2, .others = crew == Crew::Quick ? 0.05 : 0.25}};
    });
    EXPECT_GT(passes_of(course, Crew::Quick), 3500);
    EXPECT_EQ(passes_of(course, Crew::Tables), 0);
}

TEST(CrewChoice, AModelThatTablesMakeNeedlessRests) {
    CrewChoice crews;
    const Course course = run(crews, 4000, [](Crew crew) {
        return Pass{{.tokens = 5, .by_tables = 5, .by_quick = 3, .by_light = 2},
                    {.pass = 1.0, .model = crew == Crew::Tables ? 0.0 : 0.3, .others = 0.1}};
    });
    EXPECT_GT(passes_of(course, Crew::Tables), 3500);
}

TEST(CrewChoice, WhatItTakesInTruthIsLearntByTrying) {
    // Without the tables the search takes as long as with them: the first guess, that it is free, is soon unlearnt.
    CrewChoice crews;
    const Course course = run(crews, 4000, [](Crew) {
        return Pass{{.tokens = 20, .by_tables = 1, .by_quick = 19}, {.pass = 1.0, .model = 0.2, .others = 0.2}};
    });
    // At the beginning, and now and then again, for machines change.
    EXPECT_GE(passes_of(course, Crew::Quick), 64);
    EXPECT_LE(passes_of(course, Crew::Quick), 160 + 700);
}

TEST(CrewChoice, ATextThatChangesChangesTheCrew) {
    CrewChoice crews;
    const auto new_text = [](Crew crew) {
        return Pass{
            {.tokens = 3, .by_tables = 1, .by_quick = 3},
            {.pass = 1.0, .model = crew == Crew::Tables ? 0.0 : 0.2, .others = crew == Crew::Quick ? 0.02 : 0.2}};
    };
    const auto repeating = [](Crew crew) {
        const WalkShares shares = crew == Crew::Quick
                                      ? WalkShares{.tokens = 3, .by_tables = 3, .by_quick = 3, .by_light = 2}
                                      : WalkShares{.tokens = 8, .by_tables = 8, .by_quick = 3, .by_light = 2};
        return Pass{
            shares,
            {.pass = 1.0, .model = crew == Crew::Tables ? 0.0 : 0.2, .others = crew == Crew::Quick ? 0.02 : 0.2}};
    };
    EXPECT_GT(passes_of(run(crews, 300, new_text), Crew::Quick), 200);
    EXPECT_GT(passes_of(run(crews, 1200, repeating), Crew::Tables), 500);
    while (crews.next() == Crew::Everyone) run(crews, 1, repeating);
    ASSERT_NE(crews.next(), Crew::Everyone);
    crews.reset();
    EXPECT_EQ(crews.next(), Crew::Quick) << "asking everyone is as dear as it was";
}

TEST(CrewChoice, WhereEveryoneIsDearTheQuickCrewBegins) {
    CrewChoice crews;
    const auto pass_of = [](Crew crew) {
        const bool all = asks_all_tables(crew);
        return Pass{{.tokens = 3, .by_tables = 1, .by_quick = 3, .by_light = 2},
                    {.pass = 1.0, .model = asks_model(crew) ? 0.1 : 0.0, .others = all ? 0.3 : 0.03}};
    };
    EXPECT_EQ(passes_of(run(crews, 2, pass_of), Crew::Everyone), 1);
    EXPECT_EQ(crews.next(), Crew::Quick);
    const Course course = run(crews, 1000, pass_of);
    EXPECT_GT(passes_of(course, Crew::Quick), 950);
    EXPECT_GE(passes_of(course, Crew::Everyone), 4) << "it is compared";
    crews.reset();
    EXPECT_EQ(passes_of(run(crews, 20, pass_of), Crew::Everyone), 0) << "it is known by now";

    CrewChoice cheap;
    const Course stays = run(cheap, 20, [](Crew) {
        return Pass{{.tokens = 3, .by_tables = 2, .by_quick = 2, .by_light = 2}, {.pass = 1.0, .others = 0.05}};
    });
    EXPECT_EQ(passes_of(stays, Crew::Everyone), 20);
}

TEST(CrewChoice, LightTablesTakeOverAsSoonAsTheyDo) {
    CrewChoice crews;
    const Course course = run(crews, 60, [](Crew crew) {
        return Pass{{.tokens = 4, .by_tables = 4, .by_quick = 4, .by_light = 4},
                    {.pass = 1.0,
                     .model = asks_model(crew) ? 0.3 : 0.0,
                     .others = asks_all_tables(crew) ? 0.3
                               : crew == Crew::Quick ? 0.06
                                                     : 0.03}};
    });
    EXPECT_GT(passes_of(course, Crew::Light), 40);
    EXPECT_LE(passes_of(course, Crew::Everyone), 1) << "nobody had to be asked for that";
}

TEST(CrewChoice, LightTablesThatBringLessDoNot) {
    // Now and then a walk goes along their words for long; the model's time is what its tokens are worth.
    std::mt19937 random(1);
    CrewChoice crews;
    const Course course = run(crews, 2000, [&](Crew crew) {
        const double by_light = random() % 10 == 0 ? 3.0 : 1.2;
        const double tokens = crew == Crew::Light ? by_light : 2.4;
        return Pass{{.tokens = tokens, .by_tables = by_light, .by_quick = 2.4, .by_light = by_light},
                    {.pass = 1.0,
                     .model = asks_model(crew) ? 0.3 : 0.0,
                     .others = asks_all_tables(crew) ? 0.4
                               : crew == Crew::Quick ? 0.1
                                                     : 0.04}};
    });
    EXPECT_EQ(passes_of(course, Crew::Light), 0);
    EXPECT_GT(passes_of(course, Crew::Quick), 1850);
}

TEST(CrewChoice, ATextThatTellsTablesNothingIsSeldomTriedOnAll) {
    const auto tries_in = [](double by_light) {
        CrewChoice crews;
        return passes_of(run(crews, 150,
                             [&](Crew crew) {
                                 return Pass{{.tokens = 3, .by_tables = by_light, .by_quick = 3, .by_light = by_light},
                                             {.pass = 1.0,
                                              .model = asks_model(crew) ? 0.2 : 0.0,
                                              .others = asks_all_tables(crew) ? 0.4 : 0.05}};
                             }),
                         Crew::Everyone);
    };
    EXPECT_EQ(tries_in(1.05), 1);
    EXPECT_GE(tries_in(1.8), 5);
}

TEST(CrewChoice, WhatLightTablesAreDeniedTheQuickCrewDoesNotGet) {
    // With everyone light tables do best, by the quick crew's passes they do not; that crew is the worst of all.
    CrewChoice crews;
    const auto pass_of = [](Crew crew) {
        const double by_light = crew == Crew::Quick ? 1.2 : 2.6;
        const double tokens = crew == Crew::Everyone ? 3.0 : crew == Crew::Quick ? 2.0 : 2.6;
        return Pass{{.tokens = tokens, .by_tables = 1.5, .by_quick = 2.0, .by_light = by_light},
                    {.pass = 1.0,
                     .model = asks_model(crew) ? 0.3 : 0.0,
                     .others = asks_all_tables(crew) ? 0.1
                               : crew == Crew::Quick ? 0.05
                                                     : 0.02}};
    };
    const Course first = run(crews, 300, pass_of);  // where asking everyone is dear it begins
    EXPECT_GT(passes_of(first, Crew::Quick), 0);
    EXPECT_EQ(passes_of(run(crews, 4000, pass_of), Crew::Quick), 0);
}

TEST(CrewChoice, WhoIsNotThereIsNotChosen) {
    CrewChoice crews;
    const Course course = run(crews, 1000, [](Crew crew) {
        return Pass{{.tokens = 3, .by_tables = 3, .by_quick = 0, .by_light = 2.9},
                    {.pass = 1.0, .model = 0.0, .others = crew == Crew::Light ? 0.02 : 0.4}};
    });
    EXPECT_EQ(passes_of(course, Crew::Quick), 0) << "there is no model";
    EXPECT_GT(passes_of(course, Crew::Light), 900);
    CrewChoice heavy;
    const Course other = run(heavy, 1000, [](Crew crew) {
        return Pass{{.tokens = 3, .by_tables = 1, .by_quick = 3, .by_light = 0},
                    {.pass = 1.0, .model = 0.1, .others = crew == Crew::Quick ? 0.02 : 0.4}};
    });
    EXPECT_EQ(passes_of(other, Crew::Light), 0) << "there are no light tables";
}

TEST(CrewChoice, ASlowMomentOfTheBestCrewIsForgotten) {
    for (const std::int64_t n_slow : {1, 20}) {
        CrewChoice crews;
        std::int64_t n_model = 0;
        const Course course = run(crews, 20000, [&](Crew crew) {
            if (crew == Crew::Quick) ++n_model;
            // The end of the first stretch.
            const bool slow = crew == Crew::Quick && n_model <= 64 && n_model > 64 - n_slow;
            const double others = slow ? (n_slow == 1 ? 4.0 : 0.4) : crew == Crew::Quick ? 0.05 : 0.25;
            return Pass{{.tokens = 2, .by_tables = 1, .by_quick = 2}, {.pass = 1.0, .model = 0.2, .others = others}};
        });
        EXPECT_GT(passes_of(course, Crew::Quick), 16000) << n_slow << " slow passes";
    }
}

TEST(CrewChoice, NoGuessesAtAllAreNoReason) {
    CrewChoice crews;
    const Course course = run(crews, 500, [](Crew) { return Pass{{}, {.pass = 1.0, .model = 0.0, .others = 0.0}}; });
    EXPECT_EQ(passes_of(course, Crew::Everyone), 500);
}

}  // namespace
}  // namespace slipstream::draft
