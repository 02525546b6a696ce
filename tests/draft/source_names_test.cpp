#include <gtest/gtest.h>

#include "draft/drafter.h"

namespace slipstream::draft {
namespace {

TEST(SourceNames, EverySourceIsFoundByItsName) {
    for (const SourceKind kind : all_sources()) EXPECT_EQ(find_source(source_name(kind)), kind);
    EXPECT_FALSE(find_source("lowbit"));
    EXPECT_FALSE(find_source(""));
}

TEST(SourceNames, ShapesAreFoundByTheirNames) {
    EXPECT_EQ(find_tree_shape("ngrammys"), TreeShape::NGrammys);
    EXPECT_FALSE(find_tree_shape("Merged"));
}

}  // namespace
}  // namespace slipstream::draft
