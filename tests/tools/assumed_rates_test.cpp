// Tokens a second by assumption: what is read, and the arithmetic.
#include "tools/plan/assumed_rates.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_text.h"
#include "tools/base/usage_error.h"
#include "tools/options/command.h"
#include "tools/options/settings.h"

namespace slipstream::tools {
namespace {

using testing::HasSubstr;

const CommandSpec& test_command() {
    static const CommandSpec kCommand{
        .name = "test",
        .summary = "",
        .details = "",
        .example = "",
        .options = {{"assume", "--assume", "LIST", ""}, {"view-type", "--view-type", "TYPE", ""}},
        .run = nullptr};
    return kCommand;
}

Settings settings_of(const OptionValues& values) {
    const EnvironmentReader nothing = [](const std::string&) { return std::nullopt; };
    return {test_command(), {&test_command(), 1}, values, nothing, {}, ""};
}
AssumedValues assumed_values(const std::string& text) {
    return assumed_setting(settings_of({{"assume", {text}}}));
}
std::optional<Assumptions> assumed(const std::string& text) {
    return assumed_values(text).drafter;
}

TEST(Assumptions, AreRead) {
    EXPECT_FALSE(assumed_setting(settings_of({})).drafter);
    EXPECT_FALSE(assumed_setting(settings_of({})).hits);
    const Assumptions some = assumed("acceptance=.95,hidden=0.7").value();
    EXPECT_DOUBLE_EQ(some.acceptance, 0.95);
    EXPECT_DOUBLE_EQ(some.hidden, 0.7);
    EXPECT_FALSE(some.draft_seconds);
    EXPECT_EQ(some.view(8).value().options.budget_tokens, 4096);
    EXPECT_EQ(some.view(8).value().options.type, ViewType::Rows);
    const Assumptions paged =
        assumed_setting(settings_of({{"assume", {"acceptance=.95"}}, {"view-type", {"q4"}}})).drafter.value();
    EXPECT_EQ(paged.view(8).value().options.type, ViewType::Q4);
    const Assumptions all = assumed("view=1024,draft=.003,acceptance=0,hidden=1").value();
    EXPECT_DOUBLE_EQ(all.draft_seconds.value(), 0.003);
    EXPECT_FALSE(all.view(8)) << "something else drafts";
}

// Hits are of the model, and need no drafter.
TEST(Assumptions, HitsStandAlone) {
    const AssumedValues alone = assumed_values("hits=.85");
    EXPECT_DOUBLE_EQ(alone.hits.value(), 0.85);
    EXPECT_FALSE(alone.drafter);
    const AssumedValues both = assumed_values("acceptance=.95,hits=0.5,draft=.003");
    EXPECT_DOUBLE_EQ(both.hits.value(), 0.5);
    EXPECT_DOUBLE_EQ(both.drafter.value().acceptance, 0.95);
    EXPECT_FALSE(assumed_values("acceptance=.95").hits);
}

TEST(Assumptions, MistakesAreNamed) {
    for (const auto& [text, said] :
         std::vector<std::pair<std::string, std::string>>{{"hidden=0", "acceptance=.95"},
                                                          {"acceptance", "found ''"},
                                                          {"acceptance=1", "from 0 to 0.9999 expected, found '1'"},
                                                          {"acceptance=.9,hidden=2", "from 0 to 1 expected"},
                                                          {"acceptance=.9,view=4", "from 512"},
                                                          {"acceptance=.9,draft=-1", "found '-1'"},
                                                          {"acceptance=.9,speed=3", "found 'speed=3'"},
                                                          {"acceptance=nan", "found 'nan'"},
                                                          {"hits=1.1", "from 0 to 1 expected, found '1.1'"},
                                                          {"hits", "found ''"},
                                                          {"hits=.9,hidden=0", "acceptance=.95"}})
        EXPECT_THAT(error_text<UsageError>([&] { static_cast<void>(assumed(text)); }), HasSubstr(said));
}

TEST(BestChain, WeighsTokensAgainstDrafting) {
    const auto pass = [](std::int64_t n) { return n <= 64 ? 1.0 : static_cast<double>(n) / 64.0; };
    const AssumedRate free = best_chain({.acceptance = 0.95, .hidden = 1.0}, 0.1, 256, pass);
    EXPECT_GE(free.n_guesses, 52) << "what costs nothing";
    EXPECT_DOUBLE_EQ(free.seconds, pass(free.n_guesses + 1));
    const AssumedRate paid = best_chain({.acceptance = 0.95, .hidden = 0.0}, 0.02, 256, pass);
    EXPECT_NEAR(paid.tokens_per_pass, (1.0 - std::pow(0.95, static_cast<double>(paid.n_guesses + 1))) / 0.05, 1e-9);
    EXPECT_DOUBLE_EQ(paid.seconds, 1.0 + 0.02 * static_cast<double>(paid.n_guesses));
    // No length does better: the derivative changes its sign there.
    for (const std::int64_t n : {paid.n_guesses - 5, paid.n_guesses + 5})
        EXPECT_LT((1.0 - std::pow(0.95, static_cast<double>(n + 1))) / 0.05 / (1.0 + 0.02 * static_cast<double>(n)),
                  1.0 / paid.seconds_per_token());
    EXPECT_LT(paid.n_guesses, free.n_guesses);
    EXPECT_EQ(best_chain({.acceptance = 0.95, .hidden = 1.0}, 0.1, 4, pass).n_guesses, 3)
        << "no more nodes than there is room for";
    EXPECT_EQ(best_chain({.acceptance = 0.0}, 0.1, 256, pass).n_guesses, 0) << "plain decoding";
}

}  // namespace
}  // namespace slipstream::tools
