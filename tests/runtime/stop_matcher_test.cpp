// Stop strings across pieces, against a search in the whole text.
#include "runtime/loop/sampling/stop_matcher.h"

#include <algorithm>
#include <chrono>
#include <random>

#include <gtest/gtest.h>

namespace slipstream {
namespace {

struct Outcome {
    std::string shown;
    bool matched;
    bool operator==(const Outcome&) const = default;
};

Outcome feed(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
    StopMatcher matcher(stops);
    std::string shown;
    for (const std::string& piece : pieces) shown += matcher.push(piece);
    shown += matcher.finish();
    return {shown, matcher.matched()};
}

/// The definition: the stop whose last byte comes first, the longest of those.
Outcome reference(const std::vector<std::string>& stops, const std::string& text) {
    for (std::size_t end = 1; end <= text.size(); ++end) {
        std::size_t longest = 0;
        for (const std::string& stop : stops)
            if (std::string_view(text).substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
        if (longest > 0) return {text.substr(0, end - longest), true};
    }
    return {text, false};
}

TEST(StopMatcher, ShowsEverythingWithoutStops) {
    EXPECT_EQ(feed({}, {"ab", "", "c"}), (Outcome{"abc", false}));
    EXPECT_EQ(feed({"", ""}, {"ab", "c"}), (Outcome{"abc", false}));
    StopMatcher matcher({});
    EXPECT_EQ(matcher.push("at once"), "at once");
}

TEST(StopMatcher, FindsAStopAcrossPieces) {
    EXPECT_EQ(feed({"END"}, {"the E", "N", "D and more", "more"}), (Outcome{"the ", true}));
    EXPECT_EQ(feed({"END"}, {"END"}), (Outcome{"", true}));
    EXPECT_EQ(feed({"END"}, {"EN", "EN", "DEND"}), (Outcome{"EN", true}));
}

TEST(StopMatcher, HoldsBackOnlyWhatCouldBecomeAStop) {
    StopMatcher matcher({"\n\n", "User:"});
    EXPECT_EQ(matcher.push("Hello Us"), "Hello ");
    EXPECT_EQ(matcher.push("a"), "Usa");
    EXPECT_EQ(matcher.push("\n"), "");
    EXPECT_EQ(matcher.push("b"), "\nb");
    EXPECT_EQ(matcher.push("User"), "");
    EXPECT_EQ(matcher.finish(), "User");
    EXPECT_EQ(matcher.finish(), "");
    EXPECT_FALSE(matcher.matched());
}

TEST(StopMatcher, DropsEverythingAfterAMatch) {
    StopMatcher matcher({"stop"});
    EXPECT_EQ(matcher.push("a stop b"), "a ");
    EXPECT_TRUE(matcher.matched());
    EXPECT_EQ(matcher.push("c"), "");
    EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, TakesTheStopThatIsCompleteFirst) {
    EXPECT_EQ(feed({"abcd", "bc"}, {"xabcd"}), (Outcome{"xa", true}));
    EXPECT_EQ(feed({"bc", "abc"}, {"xabc"}), (Outcome{"x", true}));  // the longest of those that end there
    EXPECT_EQ(feed({"abab", "b"}, {"aabab"}), (Outcome{"aa", true}));
}

TEST(StopMatcher, TellsWhichStopMatched) {
    StopMatcher matcher({"abcd", "bc", "xbc"});
    EXPECT_EQ(matcher.push("axb"), "a");
    EXPECT_EQ(matcher.matched_stop(), "");
    EXPECT_EQ(matcher.push("cd"), "");
    EXPECT_EQ(matcher.matched_stop(), "xbc");
}

TEST(StopMatcher, EqualsASearchOfTheWholeTextHoweverItIsCut) {
    std::mt19937 random(5);
    const auto word = [&](std::size_t max) {
        std::string text(random() % (max + 1), ' ');
        for (char& c : text) c = static_cast<char>('a' + random() % 2);
        return text;
    };
    int n_matched = 0;
    for (int round = 0; round < 20000; ++round) {
        std::vector<std::string> stops(random() % 4);
        for (std::string& stop : stops) stop = word(7);
        const std::string text = word(24);
        std::vector<std::string> pieces;
        for (std::size_t at = 0; at < text.size();) {
            const std::size_t length = 1 + random() % 5;
            pieces.push_back(text.substr(at, length));
            at += length;
        }
        const Outcome expected = reference(stops, text);
        ASSERT_EQ(feed(stops, pieces), expected) << "round " << round << ", text " << text;
        n_matched += expected.matched ? 1 : 0;
    }
    EXPECT_GT(n_matched, 5000);
    EXPECT_LT(n_matched, 19000);
}

TEST(StopMatcher, CostsLinearTimeWhateverTheStop) {
    // A suffix check would compare a million times a hundred thousand bytes here: minutes.
    StopMatcher matcher({std::string(100000, 'a') + "b"});
    std::size_t shown = 0;
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 1000; ++i) shown += matcher.push(std::string(999, 'a') + (i % 200 == 199 ? "c" : "a")).size();
    shown += matcher.finish().size();
    EXPECT_EQ(shown, 1000000U);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

}  // namespace
}  // namespace slipstream
