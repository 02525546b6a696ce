// Splits that were planned once and may not change.
#include "tools/engine/kept_splits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/tools/temporary_folder.h"

namespace slipstream::tools {
namespace {

using testing::ElementsAre;
using testing::Optional;

TEST(KeptSplits, TheFirstOfAKeyStays) {
    const TemporaryFolder folder;
    const auto place = folder.path() / "tables";
    EXPECT_EQ(kept_split(place, "a b", 2, 28), std::nullopt);
    EXPECT_THAT(keep_split(place, "a b", {19, 9}), ElementsAre(19, 9));
    EXPECT_THAT(keep_split(place, "a", {1, 27}), ElementsAre(1, 27));
    EXPECT_THAT(keep_split(place, "a b", {14, 14}), ElementsAre(19, 9)) << "another program was quicker";
    EXPECT_THAT(kept_split(place, "a b", 2, 28), Optional(ElementsAre(19, 9)));
    EXPECT_THAT(kept_split(place, "a", 2, 28), Optional(ElementsAre(1, 27)));
    EXPECT_EQ(kept_split(place, "b", 2, 28), std::nullopt);
}

TEST(KeptSplits, OtherLinesArePassedOver) {
    const TemporaryFolder folder;
    folder.write(
        "splits.txt",
        "\n19,9\n0,3 key\n,1 key\n1,x key\n99999999999999999999,1 key\n5,6 key\n9,1,1 key\n4,7 key\n7,4 key\n");
    EXPECT_THAT(kept_split(folder.path(), "key", 2, 11), Optional(ElementsAre(5, 6)));
    EXPECT_THAT(kept_split(folder.path(), "key", 3, 11), Optional(ElementsAre(9, 1, 1)));
    EXPECT_EQ(kept_split(folder.path(), "key", 2, 12), std::nullopt) << "of another model";
}

TEST(KeptSplits, APlaceThatCannotBeWrittenIsSaid) {
    EXPECT_THROW(static_cast<void>(keep_split("/proc/nowhere", "key", {1, 2})), IoError);
}

}  // namespace
}  // namespace slipstream::tools
