// Runs the part of the suite that tools/test --sanitize-part takes through each sanitizer. Without --gtest_filter the
// cases that match kLeftOut do not run: they take most of the time of their files, and other cases enter the same code.
#include <fnmatch.h>

#include <iterator>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/sanitizers.h"
#include "tests/tools/program_texts.h"
#include "tests/tools/run_program.h"

using slipstream::kThreadSanitizer;

namespace {

constexpr const char* kLeftOut[] = {
    "*AttentionPartsTest.HaveTheBitsOfOneWholeCallHoweverItIsCut*",
    "*MatmulTest.EqualsDoubleLoopsWithinTheRoundingBound*",
    // Of three timings of the emulated streams the one in which copies overtake kernels remains.
    "*LayersOnCards.*/0",
    "*LayersOnCards.*/1",
    "*LayersOnCards.AnEightBitCache*",
    "*LayersOnCards.LongPrompts*",
    "*LayersOnCards.TwoCards*",
    "*TensorOnCards.*/0",
    "*TensorOnCards.*/1",
    "*TensorOnCards.LogitsAreNear*",
    "*TensorOnCards.NcclAndHostMemory*",
    "*TensorOnCards.ThreeCards*",
    "*TensorOnCards.TwoCards*",
    "*RankFaults/0.NoneHangsAndNothingIsLost",
    "*RankView.FaultsOfTheTargetLeaveViewsOfTheTextOrNone*",
    "AnswerReader.ReadsEachGoldenHoweverItIsDivided",
    "Drafter.LeavesOutASourceThatDoesNotKnowSoLargeAVocabulary",
    "Generate.AContinuationKeepsItsLeadingSpace",
    "Generate.ADashIsStdout",
    "Generate.EchoPutsThePromptInFront",
    "Generate.EndsBeforeAStopText",
    "Generate.OnePassHasNoRate",
    "Generate.SaysWhatTheRealModelSays",
    "Generate.SpellingsOfControlTokensStandForThemWhereAsked",
    "Generate.StatisticsMayFollowTheText",
    "Generate.StdoutIsTheTextAlone",
    "Generate.StopsWhereTheContextIsFull",
    "Generate.TakesThePromptFromFileAndStdin",
    "Generate.WritesTheIdsOfItsTokens",
    "GenerateSignals.KeepTextSessionAndTables",
    "GenerationLoop.AnyProposerGivesThePlainOutput",
    "LayersView.KeepsWhatOneDeviceKeeps",
    "LayersViewOfAPrompt.IsReadySoonWhateverStreams",
    "MtpSource.NeverChangesTheText",
    "MtpSource.TokensPerPassOfAHeadThatIsRightAndOfOneThatIsWrongAreThoseOfArithmetic",
    "PassStream.ForwardsTakeTurnsOverOneCache",
    "PinnedArena.AnyNumberOfArenasAtOnceAndOneAfterTheOther",
    "PipelinedPrefillTest.AFailureAnywhereInAPromptIsNamedAndLeavesNoTrace",
    "PipelinedPrefillTest.APromptThatIsGivenUpLeavesNoTrace",
    "PipelinedPrefillTest.APromptWhoseKvIsReadAgainForEachPrefillChunkHasTheSameBits",
    "PipelinedPrefillTest.EverySplitAndPlacementGivesTheBitsOfOneDevice",
    "SelfDraftModel.VerificationReadsNothingThatAViewHolds",
    "SessionRecordsTest.AWrongByteLosesNoToken",
    "SessionRecordsTest.AChangedByteNeverPassesForWhatWasWritten",
    "Signals.HupIsAsTermEverywhere",
    "Streaming.APromptByLayersReadsKvAgainWhereALayersDoesNotFit",
    "Streaming.DeviceBytesAreWhatWasAnnounced",
    "Streaming.CutsAndContinuationsGiveTheBitsOfTheResidentModel",
    "Streaming.EveryPlacementGivesTheBitsOfTheResidentModel",
};

// Under ThreadSanitizer also without these, which take long and run in one thread, or whose threads others run too.
constexpr const char* kLeftOutUnderThreadSanitizer[] = {
    "*Cpu/MatmulTest.*/scalar_*",
    "*Cpu/MatmulVectorTest.*",
    "CudaDevice.TakesLittleMoreOfACardThanItsBudgetCounts",
    "Drafter.MemoryIsReported",
    "Generate.AnyBytesAreAPrompt",
    "Generate.TheSeedDecidesAndThreadsDoNot",
    "GgufFile.*",
    "Lookahead.WindowAndPoolAreThoseOfTheReference",
    "ModelFiles.*",
    "PinnedArena.BlocksOfAllSizesStayApartThroughRandomTraces",
    "PinnedArena.SmallBlocksAreDenseAndMoreOfThemThanARangeHoldsAreServed",
    "PipedSignal.WhatWasSaidIsKeptThoughStdoutIsFull",
    "PipelinedPrefillTest.ATurnMayBeginAnywhere",
    "PlanReport.*",
    "SelfDraftModel.ASmallViewGuessesMostOfATale",
    "SelfDraftModel.OverTheWholeTextEveryGuessIsTheTargetsOwn",
    "SessionRecordsTest.*",
    "TableDamage.*",
    "TensorView.HeadsKeepWhatTheyKeepOnOneDevice",
    "WeightLoader.ProgressMayGiveUpAtAnyStep",
};

/// Whether a registered case has a name that matches `pattern`.
bool matches_a_case(const char* pattern) {
    const testing::UnitTest& all = *testing::UnitTest::GetInstance();
    for (int i = 0; i < all.total_test_suite_count(); ++i) {
        const testing::TestSuite& suite = *all.GetTestSuite(i);
        for (int j = 0; j < suite.total_test_count(); ++j) {
            const std::string name = fmt::format("{}.{}", suite.name(), suite.GetTestInfo(j)->name());
            if (fnmatch(pattern, name.c_str(), 0) == 0) return true;
        }
    }
    return false;
}

}  // namespace

int main(int argc, char** argv) {
    testing::InitGoogleMock(&argc, argv);
    slipstream::tools::register_program_text(slipstream::tools::source_path("tests/tools/program/generate.txt"));
    std::vector<const char*> left_out(std::begin(kLeftOut), std::end(kLeftOut));
    if (kThreadSanitizer)
        left_out.insert(left_out.end(), std::begin(kLeftOutUnderThreadSanitizer),
                        std::end(kLeftOutUnderThreadSanitizer));
    std::string filter = "-";
    for (const char* pattern : left_out) {
        if (!matches_a_case(pattern)) {
            fmt::print(stderr, "tests/sanitized/main.cpp: no case matches {}; remove or correct this line\n", pattern);
            return 2;
        }
        filter += fmt::format("{}:", pattern);
    }
    if (GTEST_FLAG_GET(filter) == "*") GTEST_FLAG_SET(filter, filter);
    return RUN_ALL_TESTS();
}
