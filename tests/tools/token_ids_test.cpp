#include "tools/cli/token_ids.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"

namespace slipstream::tools {
namespace {

using testing::ElementsAre;

TEST(TokenIds, AreSeparatedBySpaceLinesOrCommas) {
    EXPECT_THAT(parse_token_ids(" 1 22\n3,4\r\n\t0", "f", 100), ElementsAre(1, 22, 3, 4, 0));
    EXPECT_TRUE(parse_token_ids(" \n", "f", 100).empty());
}

TEST(TokenIds, MustBeInTheVocabulary) {
    for (const char* text : {"1 100", "-1", "1 x", "1.5", "99999999999", "0x10", "1e1"})
        EXPECT_THROW(static_cast<void>(parse_token_ids(text, "f", 100)), FormatError) << text;
}

}  // namespace
}  // namespace slipstream::tools
