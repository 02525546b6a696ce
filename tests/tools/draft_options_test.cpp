// What the options about guessing come to, and every way in which they cannot act.
#include "tools/options/draft_options.h"

#include <map>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/base/usage_error.h"
#include "tools/engine/engine.h"
#include "tools/options/settings.h"

namespace slipstream::tools {
namespace {

using draft::ChildRule;
using draft::NoiseRanking;
using draft::SourceKind;
using draft::TreeShape;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Environment = std::map<std::string, std::string>;

std::vector<DraftSettings> drafts(const OptionValues& values, DraftPlace place = DraftPlace::OnModel,
                                  const Environment& environment = {}) {
    const CommandSpec command{.name = "test",
                              .summary = "",
                              .details = "",
                              .example = "",
                              .options = draft_option_specs(place),
                              .run = nullptr};
    const EnvironmentReader reader = [&](const std::string& name) -> std::optional<std::string> {
        const auto found = environment.find(name);
        return found == environment.end() ? std::nullopt : std::optional(found->second);
    };
    const Settings settings(command, {&command, 1}, values, reader, {}, "");
    return draft_settings(settings, place, DraftLists::Every, "auto");
}

DraftSettings one(const OptionValues& values, DraftPlace place = DraftPlace::OnModel,
                  const Environment& environment = {}) {
    return drafts(values, place, environment).front();
}

std::string refused(const OptionValues& values, DraftPlace place = DraftPlace::OnModel) {
    try {
        static_cast<void>(drafts(values, place));
    } catch (const UsageError& error) {
        return error.what();
    }
    ADD_FAILURE() << "not refused";
    return "";
}

TEST(DraftOptions, GuessingIsOnWithoutBeingAskedFor) {
    const DraftSettings draft = one({});
    EXPECT_TRUE(draft.automatic);
    EXPECT_EQ(draft.list, "auto");
    EXPECT_EQ(draft.options.sources, std::vector(automatic_sources().begin(), automatic_sources().end()));
    EXPECT_FALSE(draft.options.shape.has_value());
    EXPECT_TRUE(draft.options.adapt_budget);
    EXPECT_EQ(draft.options.max_budget, kAutoBudget);
    EXPECT_EQ(draft.verify, VerifyRule::Exact);
    EXPECT_EQ(draft.options.noise_ranking, NoiseRanking::Aware);
}

TEST(DraftOptions, NoneAndLists) {
    EXPECT_THAT(one({{"draft", {"none"}}}).options.sources, IsEmpty());
    EXPECT_THAT(one({{"draft", {"lookup,model"}}}).options.sources, ElementsAre(SourceKind::Lookup, SourceKind::Model));
    const auto several = drafts({{"draft", {"none", "suffix", "auto"}}});
    ASSERT_EQ(several.size(), 3U);
    EXPECT_THAT(several[1].options.sources, ElementsAre(SourceKind::Suffix));
    EXPECT_FALSE(several[1].automatic);
    EXPECT_TRUE(several[2].automatic);
    for (const char* list : {"", ",", "suffix,", "auto,suffix", "suffix,none", "suffix,suffix", "Suffix", "magic"})
        EXPECT_THAT(refused({{"draft", {list}}}), HasSubstr("--draft: ")) << list;
    EXPECT_THAT(refused({{"draft", {"magic"}}}), AllOf(HasSubstr("unknown source 'magic'"), HasSubstr("lookahead")));
}

TEST(DraftOptions, ViewsHaveATypeAndASize) {
    EXPECT_FALSE(one({}).view_type);
    EXPECT_EQ(one({}).options.view.budget_tokens, 0);
    const OptionValues retrieval{{"draft", {"retrieval"}}};
    const auto with = [&](OptionValues values) {
        values.insert(retrieval.begin(), retrieval.end());
        return values;
    };
    EXPECT_EQ(one(with({{"view-type", {"q4"}}})).view_type, ViewType::Q4);
    EXPECT_EQ(one(with({{"view-type", {"f16"}}})).view_type, ViewType::Rows);
    EXPECT_FALSE(one(with({{"view-type", {"auto"}}})).view_type);
    EXPECT_EQ(one(with({{"kv-budget", {"33"}}})).options.view.budget_tokens, 40) << "whole groups";
    const DraftSettings share = one(with({{"kv-budget", {"100%"}}, {"view-type", {"q4"}}}));
    EXPECT_EQ(share.view_percent, 100);
    EXPECT_EQ(share.options.view.budget_tokens, 0);
    for (const char* size : {"0%", "101%", "%", "-1%", "1.5%", "5 %"})
        EXPECT_THAT(refused(with({{"kv-budget", {size}}})), HasSubstr("a percentage from 1% to 100% expected")) << size;
    EXPECT_THAT(refused(with({{"kv-budget", {"31"}}})), HasSubstr("--kv-budget"));
    EXPECT_THAT(refused(with({{"view-type", {"q8"}}})), HasSubstr("auto or f16 or q4 expected, found 'q8'"));
    EXPECT_THAT(refused(with({{"view-type", {"q4"}}, {"kv-budget", {"200"}}})),
                HasSubstr("a view of type q4 has at least 208 tokens, found '200'"));
    EXPECT_THAT(refused({{"draft", {"suffix"}}, {"view-type", {"q4"}}}), HasSubstr("'retrieval' among the sources"));
}

TEST(DraftOptions, LaterSourcesAreRefusedByNameAndNotListed) {
    for (const char* name : {"lowbit"}) {
        const std::string message = refused({{"draft", {name}}});
        EXPECT_THAT(message, AllOf(HasSubstr(name), HasSubstr("this version")));
        EXPECT_EQ(refused({{"draft", {"magic"}}}).find(name), std::string::npos);
    }
    for (const OptionSpec& option : draft_option_specs(DraftPlace::OnModel))
        EXPECT_EQ(option.help.find("lowbit"), std::string_view::npos);
}

TEST(DraftOptions, ARecordingHasTokensOnly) {
    for (const SourceKind kind : one({}, DraftPlace::OnRecording).options.sources)
        EXPECT_TRUE(needs_tokens_only(kind)) << draft::source_name(kind);
    EXPECT_FALSE(one({}, DraftPlace::OnRecording).options.adapt_budget);
    EXPECT_EQ(one({}, DraftPlace::OnRecording).options.max_budget, kRecordedBudget);
    for (const char* name : {"model", "retrieval", "bigram", "unigram", "recycling", "lookahead"})
        EXPECT_THAT(refused({{"draft", {name}}}, DraftPlace::OnRecording), HasSubstr("tokens only")) << name;
}

TEST(DraftOptions, BudgetAndOwnTrees) {
    EXPECT_EQ(one({{"budget", {"7"}}}).options.max_budget, 7);
    EXPECT_FALSE(one({{"budget", {"7"}}}).options.adapt_budget);
    EXPECT_TRUE(one({{"budget", {"auto"}}}).options.adapt_budget);
    for (const char* budget : {"0", "-1", "4097", "many", ""})
        EXPECT_THAT(refused({{"budget", {budget}}}), HasSubstr("--budget")) << budget;
    EXPECT_THAT(refused({{"budget", {"AUTO"}}}), HasSubstr("auto, or a whole number from 1 to 4096"));
    // A paper's own tree finds room unless a budget says otherwise.
    EXPECT_EQ(one({{"draft", {"cacheback"}}}).options.max_budget, 96);
    EXPECT_EQ(one({{"draft", {"cacheback"}}, {"cacheback", {"tdl=200"}}}).options.max_budget, 200);
    EXPECT_EQ(one({{"draft", {"cacheback"}}, {"budget", {"20"}}}).options.max_budget, 20);
    EXPECT_GE(one({{"draft", {"recycling"}}}).options.max_budget, 81);
    EXPECT_EQ(one({{"draft", {"cacheback"}}, {"tree", {"merged"}}}).options.max_budget, kAutoBudget);
}

TEST(DraftOptions, ANamedTreeBringsItsSources) {
    EXPECT_THAT(one({{"tree", {"cacheback"}}}).options.sources, ElementsAre(SourceKind::Cacheback));
    EXPECT_THAT(one({{"tree", {"recycling"}}}).options.sources, ElementsAre(SourceKind::Recycling));
    EXPECT_THAT(one({{"tree", {"ngrammys"}}}).options.sources,
                testing::IsSupersetOf({SourceKind::Context, SourceKind::Bigram}));
    EXPECT_EQ(one({{"tree", {"chain"}}}).options.shape, TreeShape::Chain);
    EXPECT_THAT(refused({{"tree", {"cacheback"}}, {"draft", {"suffix"}}}),
                AllOf(HasSubstr("--tree cacheback"), HasSubstr("suffix"), HasSubstr("--draft cacheback")));
    EXPECT_THAT(refused({{"tree", {"ngrammys"}}, {"draft", {"bigram"}}}),
                AllOf(HasSubstr("'context'"), HasSubstr("--draft context,bigram")));
    EXPECT_EQ(one({{"tree", {"ngrammys"}}, {"draft", {"context"}}}).options.shape, TreeShape::NGrammys);
    EXPECT_THAT(refused({{"tree", {"bush"}}}), HasSubstr("--tree: merged, "));
}

TEST(DraftOptions, GammaAsksForAChain) {
    const DraftSettings draft = one({{"draft", {"model"}}, {"gamma", {"3"}}});
    EXPECT_EQ(draft.options.shape, TreeShape::Chain);
    EXPECT_EQ(draft.options.gamma, 3);
    EXPECT_EQ(one({{"draft", {"model"}}}).options.shape, std::nullopt);
    EXPECT_EQ(one({{"tree", {"chain"}}, {"gamma", {"3"}}}).options.gamma, 3);
    EXPECT_THAT(refused({{"gamma", {"3"}}}), HasSubstr("--gamma has an effect only on chains"));
    EXPECT_THAT(refused({{"draft", {"model"}}, {"tree", {"merged"}}, {"gamma", {"3"}}}), HasSubstr("--gamma"));
    EXPECT_THAT(refused({{"draft", {"model"}}, {"gamma", {"0"}}}), HasSubstr("--gamma"));
}

TEST(DraftOptions, WhatCannotActIsRefused) {
    struct Case {
        const char* option;
        const char* value;
        const char* acts_with;
    };
    for (const Case& test : {Case{"draft-model", "x", "model"}, Case{"lookup-ngram", "2", "lookup"},
                             Case{"cacheback", "ll=2", "cacheback"}, Case{"frozen-table", "x", "cacheback"},
                             Case{"corpus", "x", "corpus"}}) {
        EXPECT_THAT(refused({{"draft", {"suffix"}}, {test.option, {test.value}}}),
                    AllOf(HasSubstr(fmt::format("--{} has an effect only", test.option)), HasSubstr(test.acts_with)));
        // One list among several will do.
        OptionValues values{{"draft", {"suffix", test.acts_with}}, {test.option, {test.value}}};
        EXPECT_EQ(drafts(values).size(), 2U) << test.option;
    }
    EXPECT_THAT(refused({{"draft", {"corpus"}}}), HasSubstr("--corpus F"));
}

TEST(DraftOptions, WhereNothingGuessesOptionsOfGuessingStand) {
    for (const auto& [option, value] : std::map<std::string, std::string>{{"budget", "8"},
                                                                          {"tables", "off"},
                                                                          {"verify", "exact"},
                                                                          {"noise-ranking", "blind"},
                                                                          {"tree", "merged"},
                                                                          {"gamma", "3"},
                                                                          {"draft-model", "x"},
                                                                          {"corpus", "x"}})
        EXPECT_THAT(one({{"draft", {"none"}}, {option, {value}}}).options.sources, IsEmpty()) << option;
    // What is malformed is refused all the same.
    EXPECT_THAT(refused({{"draft", {"none"}}, {"budget", {"much"}}}), HasSubstr("--budget"));
}

TEST(DraftOptions, TheEnvironmentServesManyCommands) {
    // What cannot act there is passed over; what is malformed is not.
    const Environment environment{{"SLIPSTREAM_BUDGET", "12"}, {"SLIPSTREAM_GAMMA", "4"}};
    EXPECT_THAT(one({{"draft", {"none"}}}, DraftPlace::OnModel, environment).options.sources, IsEmpty());
    EXPECT_EQ(one({}, DraftPlace::OnModel, environment).options.max_budget, 12);
    EXPECT_THROW(static_cast<void>(one({}, DraftPlace::OnModel, {{"SLIPSTREAM_BUDGET", "much"}})), UsageError);
}

TEST(DraftOptions, AutoTakesUpWhatItsOptionsAskFor) {
    EXPECT_THAT(one({{"frozen-table", {"f"}}}).options.sources, testing::Contains(SourceKind::Cacheback));
    EXPECT_THAT(one({{"corpus", {"f"}}}).options.sources, testing::Contains(SourceKind::Corpus));
    EXPECT_THAT(one({}).options.sources, testing::Not(testing::Contains(SourceKind::Corpus)));
    const std::string draft_model = SLIPSTREAM_SOURCE_DIR "/tools/demo_model/draft";
    EXPECT_EQ(one({{"draft-model", {draft_model}}}).find_model("any target"), draft_model);
    EXPECT_EQ(one({}).find_model("any target"), "") << "the bundled one is for the bundled target";
}

TEST(DraftOptions, RejectionDrawsWithoutNoise) {
    const DraftSettings merged = one({{"verify", {"rejection"}}});
    EXPECT_EQ(merged.verify, VerifyRule::Rejection);
    EXPECT_EQ(merged.options.noise_ranking, NoiseRanking::Blind);
    EXPECT_EQ(merged.options.child_rule, ChildRule::Pick);
    EXPECT_EQ(one({{"verify", {"rejection"}}, {"draft", {"model"}}}).options.child_rule, ChildRule::Draw);
    EXPECT_THAT(refused({{"verify", {"rejection"}}, {"noise-ranking", {"aware"}}}), HasSubstr("--verify exact"));
    EXPECT_THAT(refused({{"verify", {"maybe"}}}), HasSubstr("exact or rejection expected"));
}

TEST(DraftOptions, WhereTablesPersist) {
    namespace fs = std::filesystem;
    const auto tables = [](const OptionValues& values, const Environment& environment) {
        return one(values, DraftPlace::OnModel, environment).options.tables;
    };
    EXPECT_EQ(tables({}, {}), std::nullopt);
    EXPECT_EQ(tables({}, {{"HOME", "/h"}}), fs::path("/h/.cache/slipstream/tables"));
    EXPECT_EQ(tables({}, {{"HOME", "/h"}, {"XDG_CACHE_HOME", "/c"}}), fs::path("/c/slipstream/tables"));
    EXPECT_EQ(tables({{"tables", {"/t"}}}, {{"HOME", "/h"}}), fs::path("/t"));
    EXPECT_EQ(tables({{"tables", {"off"}}}, {{"HOME", "/h"}}), std::nullopt);
}

TEST(DraftOptions, CachebackSettings) {
    const draft::CachebackOptions options = parse_cacheback("ll=2,fc=7,tdl=50", "--cacheback");
    EXPECT_EQ(options.leader_tokens, 2);
    EXPECT_EQ(options.follower_tokens, 3);
    EXPECT_EQ(options.max_followers, 7);
    EXPECT_EQ(options.tree_tokens, 50);
    EXPECT_EQ(options.reserved_tokens, 16);
    for (const char* list :
         {"", "ll", "ll=", "ll=0", "ll=x", "zz=1", "ll=1;fl=2", "lc=99999999999", "tdl=16", "ll=1,", "ll=1,ll=2"})
        EXPECT_THROW(static_cast<void>(parse_cacheback(list, "--cacheback")), UsageError) << list;
}

TEST(DraftOptions, DescribesThemselves) {
    EXPECT_EQ(describe_draft(one({{"draft", {"none"}}})), "none");
    EXPECT_THAT(describe_draft(one({{"draft", {"suffix,lookup"}}, {"budget", {"9"}}})),
                AllOf(HasSubstr("suffix+lookup"), HasSubstr("9 nodes")));
}

}  // namespace
}  // namespace slipstream::tools
