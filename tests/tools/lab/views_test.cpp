// The parts of views that measure nothing: requests out of options, and the table.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/base/usage_error.h"
#include "tools/lab/lab.h"
#include "tools/lab/views/view_report.h"
#include "tools/lab/views/view_request.h"
#include "tools/options/settings.h"

namespace slipstream::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ViewsRequest request(const OptionValues& command_line) {
    static const std::vector<CommandSpec> kCommands{views_command()};
    return views_request(Settings(
        kCommands.front(), kCommands, command_line, [](const std::string&) { return std::nullopt; }, {}, ""));
}

std::string refusal(const OptionValues& command_line) {
    try {
        static_cast<void>(request(command_line));
    } catch (const UsageError& error) {
        return error.what();
    }
    ADD_FAILURE() << "it was taken";
    return "";
}

TEST(ViewsRequests, NameViewsAndAText) {
    const ViewsRequest views = request({{"views", {"mean,oracle"}},
                                        {"file", {"t.txt"}},
                                        {"view-budgets", {"8,65"}},
                                        {"view-types", {"q4,f16"}},
                                        {"view-recent", {"16,50%"}},
                                        {"view-rebuild", {"16"}},
                                        {"temperature", {"0.6"}}});
    EXPECT_THAT(views.views, ElementsAre(ComparedView::Mean, ComparedView::Oracle));
    EXPECT_THAT(view_budgets(views, 1000), ElementsAre(8, 72)) << "whole groups";
    EXPECT_THAT(views.types, ElementsAre(ViewType::Q4, ViewType::Rows));
    EXPECT_EQ(views.recents[0].of(72), 16);
    EXPECT_EQ(views.recents[1].of(72), 36);
    EXPECT_EQ(view_pass_tokens(views), 16);
    EXPECT_EQ(views.sampling.temperature, 0.6);
    EXPECT_EQ(views.sampling.top_k, 0) << "the whole distribution";
    EXPECT_EQ(views.sampling.top_p, 1.0);
    const ViewsRequest built_in = request({{"views", {"mass"}}, {"file", {"t.txt"}}});
    EXPECT_THAT(built_in.types, ElementsAre(ViewType::Rows));
    EXPECT_THAT(view_budgets(built_in, 4096), ElementsAre(128, 248, 496));
    EXPECT_THAT(view_budgets(built_in, 60), ElementsAre(8)) << "equal ones stand once";
    EXPECT_EQ(view_pass_tokens(built_in), 64);
}

TEST(ViewsRequests, WhatCannotActIsRefused) {
    const auto with_views = [&](const std::string& views, const std::string& option, const std::string& value) {
        return refusal({{"views", {views}}, {"file", {"t.txt"}}, {option, {value}}});
    };
    EXPECT_THAT(refusal({{"views", {"mass"}}}), HasSubstr("--views requires a text, --file F"));
    EXPECT_THAT(refusal({{"view-budgets", {"64"}}, {"file", {"t.txt"}}}), HasSubstr("--views is missing"));
    EXPECT_THAT(with_views("mass", "session", "s"), HasSubstr("--file does not go with --session"));
    for (const char* list : {"", "mass,", "best", "mass,mass2"})
        EXPECT_THAT(refusal({{"views", {list}}, {"file", {"t.txt"}}}), HasSubstr(fmt::format("found '{}'", list)));
    for (const char* list : {"", "7", "8,", "x", "8 9"})
        EXPECT_THAT(with_views("mass", "view-budgets", list), HasSubstr("--view-budgets: numbers of tokens from 8"));
    for (const char* list : {"", "-1", "%", "0%", "101%", "1%,x"})
        EXPECT_THAT(with_views("mass", "view-recent", list), HasSubstr("--view-recent: numbers of tokens"));
    for (const char* list : {"", "f16,", "q8", "q4 f16"})
        EXPECT_THAT(with_views("mass", "view-types", list), HasSubstr("--view-types: f16 or q4, separated by commas"));
    EXPECT_THAT(with_views("mass", "view-rows", "65"), HasSubstr("--view-rows: numbers from 1 to 64"));
    EXPECT_THAT(with_views("window", "view-recent", "64"), HasSubstr("has an effect only on mass, mean and heavy"));
    EXPECT_THAT(with_views("oracle", "view-rebuild", "64"),
                HasSubstr("has an effect only on mass, mean, window and heavy"));
    EXPECT_THAT(with_views("window,oracle", "view-rows", "2"), HasSubstr("has an effect only on mass, mean and heavy"));
}

TEST(ViewsReport, TheTable) {
    ViewsResult result;
    result.run.machine.name = "a cpu";
    result.run.form = "scalar";
    result.run.depth = 1000;
    result.pass_tokens = 64;
    result.run.sampling = "greedy";
    result.views = {{.view = ComparedView::Mass,
                     .type = ViewType::Q4,
                     .budget_tokens = 64,
                     .bytes = 0.017,
                     .recent_tokens = 16,
                     .score_rows = 2,
                     .positions = 400,
                     .equal = 320,
                     .seconds = 1.0,
                     .target_seconds = 4.0},
                    {.view = ComparedView::Window, .budget_tokens = 64, .score_rows = 1}};
    EXPECT_DOUBLE_EQ(result.views[0].standard_error(), 0.02);  // sqrt(0.8 * 0.2 / 400)
    const std::string table = views_table({result});
    EXPECT_THAT(table, HasSubstr("a cpu, scalar kernels\n"));
    EXPECT_THAT(table, HasSubstr("views of the KV after 1000 tokens of a text, greedy"));
    EXPECT_THAT(table,
                HasSubstr("  view  type  budget  % of depth  % of bytes  recent  rows  positions  acceptance      +-  "
                          "of target's time\n"
                          "  mass    q4      64         6.4         1.7      16     2        400      0.8000  0.0200 "
                          "            0.250\n"
                          "window   f16      64         6.4         0.0       -     -          0      0.0000  0.0000 "
                          "            0.000\n"));
}

}  // namespace
}  // namespace slipstream::tools
