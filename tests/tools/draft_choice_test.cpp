// What guessing is given where memory is short, by a plan's arithmetic on made-up rates.
#include "tools/engine/draft_choice.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "draft/models/mtp_source.h"
#include "runtime/formats/head_files.h"
#include "runtime/loop/loop_needs.h"
#include "runtime/pass/hidden_tail.h"
#include "tests/support/error_text.h"
#include "tests/support/golden_head.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"
#include "tools/engine/engine.h"
#include "tools/engine/engine_drafter.h"
#include "tools/engine/view_acceptance.h"
#include "tools/machine/host.h"

namespace slipstream::tools {
namespace {

using draft::SourceKind;
using testing::HasSubstr;
using testing::Not;

constexpr std::size_t kMiB = std::size_t{1} << 20;

bool has_model(const DraftSettings& draft) {
    return std::ranges::find(draft.options.sources, SourceKind::Model) != draft.options.sources.end();
}

class DraftChoice : public testing::Test {
protected:
    DraftChoice() {
        draft_.automatic = true;
        draft_.options.sources = {SourceKind::Context, SourceKind::Suffix, SourceKind::Model};
        draft_.find_model = [](const std::filesystem::path&) {
            return SLIPSTREAM_SOURCE_DIR "/tools/demo_model/draft";
        };
    }

    // The target on a device with that budget, and on others_.
    [[nodiscard]] PlacedModel place(std::size_t device_bytes) const {
        ComputeOptions options{.context_tokens = context_tokens_,
                               .n_threads = 1,
                               .devices = choose_devices(others_.empty() ? "cpu" : "cpu,cpu")};
        options.offload = offload_;
        options.offload.host_memory = 1024 * kMiB;
        options.offload.devices = others_;
        options.offload.devices.insert(options.offload.devices.begin(), device_bytes == Budget::kUnlimited
                                                                            ? DeviceLimits{}
                                                                            : DeviceLimits{device_bytes, link_});
        PlacedModel placed(open_(), options, {});
        // Memory of 10 GB/s, and computing that is nearly free.
        MachineRates rates;
        rates.rates.weights.fill(ByteCost::roofline(1e10, 1e14, 2.0));
        rates.rates.kv = ByteCost::roofline(1e10, 1e14, 2.0);
        rates.copy_bytes_per_second = 1e10;
        for (std::size_t i = 0; i < placed.devices().size(); ++i) placed.set_rates(i, rates);
        return placed;
    }

    DraftSettings choose(std::size_t device_bytes) {
        said_.clear();
        details_.clear();
        const EngineCallbacks callbacks{
            .on_note = [this](std::string_view line) { said_.append(line).append("\n"); },
            .on_detail = [this](std::string_view line) { details_.append(line).append("\n"); }};
        return choose_draft(draft_, place(device_bytes), callbacks, check_, ProposingHead::LmHead::OfTarget,
                            std::nullopt, learnt_);
    }

    std::function<OpenedModel()> open_ = [] { return OpenedModel(SLIPSTREAM_SOURCE_DIR "/tools/demo_model/target"); };
    std::int64_t context_tokens_ = 512;
    OffloadOptions offload_;
    std::vector<DeviceLimits> others_;  // of devices beside the first
    DraftSettings draft_;
    ViewAcceptance learnt_;
    CheckPasses check_ = CheckPasses::No;
    double link_ = 1e8;
    std::string said_, details_;
};

// A wrong order of the phases does not compile.
static_assert(std::is_constructible_v<PlacedModel, OpenedModel, ComputeOptions, EngineCallbacks>);
static_assert(std::is_constructible_v<LoadedModel, PlacedModel, RunNeeds, EngineCallbacks>);
static_assert(!std::is_constructible_v<PlacedModel, PlacedModel, ComputeOptions, EngineCallbacks>);
static_assert(!std::is_constructible_v<PlacedModel, LoadedModel, ComputeOptions, EngineCallbacks>);
static_assert(!std::is_constructible_v<LoadedModel, OpenedModel, RunNeeds, EngineCallbacks>);
static_assert(!std::is_constructible_v<LoadedModel, LoadedModel, RunNeeds, EngineCallbacks>);

TEST_F(DraftChoice, NothingIsDecidedWhereThereIsNothingToDecide) {
    draft_.options.sources.clear();
    EXPECT_EQ(choose(8 * kMiB).options.window_bytes, 0U);
    draft_.options.sources = {SourceKind::Model};
    draft_.options.child_rule = draft::ChildRule::Draw;
    const DraftSettings drawn = choose(8 * kMiB);
    EXPECT_EQ(drawn.options.window_bytes, 0U) << "what is drawn may not hang on a machine's memory";
    EXPECT_TRUE(has_model(drawn));
}

TEST_F(DraftChoice, WhatIsDrawnIsRefusedByNameWhereItDoesNotFit) {
    draft_.options.sources = {SourceKind::Model};
    draft_.options.child_rule = draft::ChildRule::Draw;
    bool refused = false;
    for (std::size_t bytes = 64 * kMiB; bytes > 2 * kMiB && !refused; bytes -= kMiB / 4) {
        try {
            EXPECT_TRUE(has_model(choose(bytes)));
        } catch (const OutOfBudget& error) {
            EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("--draft without 'model'"), HasSubstr("--budget")));
            refused = true;
        }
    }
    EXPECT_TRUE(refused);
}

// Views over several devices are weighed for both ways to share a model out.
TEST_F(DraftChoice, SeveralDevicesHaveViewsOfTheirParts) {
    context_tokens_ = 8192;
    const auto has_view = [](const DraftSettings& draft) { return draft.options.has(SourceKind::Retrieval); };
    draft_.find_model = {};
    draft_.options.sources = {SourceKind::Context, SourceKind::Retrieval};
    link_ = 1e6;
    others_ = {{21 * kMiB, link_}};
    offload_.shares = {1, 1};
    EXPECT_TRUE(has_view(choose(21 * kMiB))) << details_;
    EXPECT_THAT(details_, HasSubstr("draft: auto takes retrieval"));
    EXPECT_FALSE(has_view(choose(14 * kMiB))) << details_;  // the weights alone
    // Before it is left out trees become smaller beside it.
    bool is_smaller = false;
    for (std::size_t bytes = 21 * kMiB; bytes > 14 * kMiB && !is_smaller; bytes -= kMiB / 8) {
        const DraftSettings chosen = choose(bytes);
        is_smaller = has_view(chosen) && chosen.options.max_budget < draft_.options.max_budget;
    }
    EXPECT_TRUE(is_smaller) << draft_.options.max_budget;
    static_cast<void>(choose(14 * kMiB));
    EXPECT_THAT(details_, HasSubstr("leaves retrieval out"));
    draft_.options.child_rule = draft::ChildRule::Draw;
    draft_.automatic = false;
    EXPECT_THROW(static_cast<void>(choose(14 * kMiB)), OutOfBudget);
    draft_.options.child_rule = draft::ChildRule::Pick;
    draft_.automatic = true;

    offload_.split = SplitKind::Tensor;
    EXPECT_TRUE(has_view(choose(21 * kMiB))) << details_;
    EXPECT_FALSE(has_view(choose(10 * kMiB))) << details_;
}

// The type and the size of a view are weighed, unless they are given or the tokens are drawn from it: then counts alone
// decide.
TEST_F(DraftChoice, AViewHasTheSizeThatPaysMost) {
    context_tokens_ = 8192;
    draft_.find_model = {};
    draft_.options.view.budget_tokens = 0;
    draft_.options.sources = {SourceKind::Context, SourceKind::Retrieval};
    // A view takes memory of KV, which then streams, and saves passes over the link: the slower that is, the more it
    // pays.
    std::vector<std::int64_t> sizes;
    for (const double link : {1e10, 1e6}) {
        link_ = link;
        const ViewOptions view = choose(40 * kMiB).options.view;
        for (const char* size :
             {"512 tokens, bf16", "984 tokens, q4", "2048 tokens, q4", "4096 tokens, q4", "8192 tokens, q4"})
            EXPECT_THAT(details_, HasSubstr(fmt::format("a view of {}", size)));
        sizes.push_back(view.budget_tokens);
    }
    EXPECT_LT(sizes[0], sizes[1]);
    const ViewOptions free = choose(40 * kMiB).options.view;
    EXPECT_THAT(details_, HasSubstr("auto takes retrieval"));
    EXPECT_EQ(free.type, ViewType::Q4) << details_;
    draft_.view_type = ViewType::Rows;
    EXPECT_EQ(choose(40 * kMiB).options.view.type, ViewType::Rows);
    EXPECT_EQ(choose(40 * kMiB).options.view.budget_tokens, 512);
    draft_.view_type = {};
    draft_.view_percent = 12;
    EXPECT_EQ(choose(40 * kMiB).options.view.budget_tokens, 984);
    draft_.view_percent = 0;
    draft_.automatic = false;
    EXPECT_EQ(choose(40 * kMiB).options.view.budget_tokens, free.budget_tokens) << "by name as by auto";
    draft_.options.sources = {SourceKind::Retrieval};
    draft_.options.child_rule = draft::ChildRule::Draw;
    for (const std::size_t bytes : {40 * kMiB, 400 * kMiB}) {
        const ViewOptions drawn = choose(bytes).options.view;
        EXPECT_EQ(drawn.type, ViewType::Q4);
        EXPECT_EQ(drawn.budget_tokens, 2048);
        EXPECT_EQ(drawn.recent_tokens, 512);
    }
    context_tokens_ = 128;  // no page would fit in
    EXPECT_EQ(choose(400 * kMiB).options.view.type, ViewType::Rows);
}

// Where nothing streams a view of more tokens costs time alone, so that of rows stays unless another is asked for.
TEST_F(DraftChoice, WhereNothingStreamsAViewHasRows) {
    context_tokens_ = 8192;
    draft_.find_model = {};
    draft_.automatic = false;
    draft_.options.sources = {SourceKind::Context, SourceKind::Retrieval};
    draft_.options.view.budget_tokens = 0;
    for (const std::size_t bytes : {Budget::kUnlimited, 4096 * kMiB}) {
        draft_.view_type = {};
        draft_.view_percent = 0;
        EXPECT_EQ(choose(bytes).options.view.type, ViewType::Rows);
        EXPECT_EQ(choose(bytes).options.view.budget_tokens, 512);
        draft_.view_percent = 25;
        EXPECT_EQ(choose(bytes).options.view.type, ViewType::Rows);
        EXPECT_EQ(choose(bytes).options.view.budget_tokens, 2048);
        draft_.view_type = ViewType::Q4;
        EXPECT_EQ(choose(bytes).options.view.type, ViewType::Q4);
        EXPECT_EQ(choose(bytes).options.view.budget_tokens, 2048);
        EXPECT_EQ(said_, "");
    }
}

// Acceptances are those of retrieval, so a window is not weighed by them.
TEST_F(DraftChoice, TheSizeOfAWindowIsNotWeighed) {
    context_tokens_ = 8192;
    draft_.find_model = {};
    draft_.automatic = false;
    draft_.options.sources = {SourceKind::Context, SourceKind::Retrieval};
    draft_.options.view = {.kind = ViewKind::Window, .budget_tokens = 0};
    link_ = 1e6;
    EXPECT_EQ(choose(40 * kMiB).options.view.type, ViewType::Rows);
    EXPECT_EQ(choose(40 * kMiB).options.view.budget_tokens, 512);
    EXPECT_THAT(details_, Not(HasSubstr("is expected")));
    draft_.view_type = ViewType::Q4;
    EXPECT_EQ(choose(40 * kMiB).options.view.type, ViewType::Q4);
    EXPECT_EQ(choose(40 * kMiB).options.view.budget_tokens, 2048);
}

// What --view-type q4 cannot have is said once.
TEST_F(DraftChoice, AViewThatIsNotAsAskedForIsNamed) {
    context_tokens_ = 8192;
    draft_.find_model = {};
    draft_.automatic = false;
    draft_.options.sources = {SourceKind::Context, SourceKind::Retrieval};
    draft_.options.view.budget_tokens = 0;
    draft_.view_type = ViewType::Q4;
    draft_.view_percent = 1;
    for (const std::size_t bytes : {Budget::kUnlimited, 40 * kMiB}) {
        EXPECT_EQ(choose(bytes).options.view.budget_tokens, kLeastPagedView);
        EXPECT_EQ(said_, "the view of the KV keeps 208 tokens, q4: one of type q4 has at least 208\n");
    }
    draft_.view_percent = 3;
    EXPECT_EQ(choose(Budget::kUnlimited).options.view.budget_tokens, 248);
    EXPECT_EQ(said_, "");
    draft_.view_percent = 0;
    context_tokens_ = 128;
    EXPECT_EQ(choose(Budget::kUnlimited).options.view.type, ViewType::Rows);
    EXPECT_EQ(said_, "the view of the KV keeps 128 tokens, bf16: one of type q4 has at least 208\n");
    // By auto a size is never raised.
    draft_.view_type = {};
    context_tokens_ = 8192;
    draft_.view_percent = 1;
    EXPECT_EQ(choose(40 * kMiB).options.view.type, ViewType::Rows);
    EXPECT_EQ(choose(40 * kMiB).options.view.budget_tokens, 88);
    EXPECT_EQ(said_, "");
}

// What earlier texts taught of views counts instead of the prior alone: where the target rejected more, a view has to
// save more before it pays. Under `--verify rejection` the view never depends on it.
TEST_F(DraftChoice, WhatTextsTaughtOfViewsCounts) {
    context_tokens_ = 8192;
    draft_.find_model = {};
    draft_.options.view.budget_tokens = 0;
    draft_.options.sources = {SourceKind::Context, SourceKind::Retrieval};
    const auto count_links_that_take_a_view = [&] {
        int n = 0;
        for (link_ = 4e9; link_ > 1e6; link_ /= 2) n += choose(40 * kMiB).options.has(SourceKind::Retrieval) ? 1 : 0;
        return n;
    };
    const int by_prior = count_links_that_take_a_view();
    EXPECT_THAT(details_, HasSubstr("(an acceptance of 0.972 is expected after 0 tokens of earlier texts)"));
    for (int text = 0; text < 50; ++text) learnt_.learn(ViewType::Q4, 2048, 8192, 1000, 500);
    const int by_texts = count_links_that_take_a_view();
    EXPECT_THAT(details_,
                HasSubstr(fmt::format("(an acceptance of {:.3f} is expected after 8192 tokens of earlier texts)",
                                      learnt_.expected(ViewType::Q4, 2048, 8192))));
    EXPECT_GT(by_prior, by_texts);
    EXPECT_GT(by_texts, 0);

    draft_.verify = VerifyRule::Rejection;
    EXPECT_EQ(count_links_that_take_a_view(), by_prior);
    EXPECT_THAT(details_, HasSubstr("of 0.972 is expected after 0 tokens"));
}

// All drafters of a target have one view, which is chosen by the options of the first that has one.
TEST_F(DraftChoice, AViewThatIsSharedIsNotChosenAgain) {
    context_tokens_ = 8192;
    draft_.find_model = {};
    draft_.automatic = false;
    draft_.options.sources = {SourceKind::Context, SourceKind::Retrieval};
    draft_.options.view.budget_tokens = 100000;
    draft_.view_type = ViewType::Rows;
    const ViewOptions shared = choose(Budget::kUnlimited).options.view;
    EXPECT_THAT(details_, HasSubstr("kv-budget = 8192 (of the 100000 asked for"));
    draft_.view_type = ViewType::Q4;
    draft_.view_percent = 1;
    details_.clear();
    said_.clear();
    const EngineCallbacks callbacks{.on_note = [this](std::string_view line) { said_.append(line).append("\n"); },
                                    .on_detail = [this](std::string_view line) { details_.append(line).append("\n"); }};
    const ViewOptions again = choose_draft(draft_, place(Budget::kUnlimited), callbacks, CheckPasses::No,
                                           ProposingHead::LmHead::OfTarget, shared)
                                  .options.view;
    EXPECT_EQ(again.type, ViewType::Rows);
    EXPECT_EQ(again.budget_tokens, 8192);
    EXPECT_EQ(said_, "");
    EXPECT_THAT(details_, Not(HasSubstr("kv-budget")));
}

TEST_F(DraftChoice, WithoutALimitTheWindowIsAShareOfTheHost) {
    const DraftSettings chosen = choose(Budget::kUnlimited);
    EXPECT_GT(chosen.options.window_bytes, 0U);
    EXPECT_TRUE(has_model(chosen));
    EXPECT_EQ(chosen.options.max_budget, draft_.options.max_budget);
}

TEST_F(DraftChoice, WhereAllFitsNothingChanges) {
    const DraftSettings chosen = choose(4096 * kMiB);
    EXPECT_EQ(chosen.options.window_bytes, 4096 * kMiB / 16);
    EXPECT_TRUE(has_model(chosen));
    EXPECT_EQ(chosen.options.max_budget, draft_.options.max_budget);
    EXPECT_EQ(said_, "");
}

TEST_F(DraftChoice, ADraftModelThatMakesTheTargetStreamIsLeftOutWhereThatDoesNotPay) {
    link_ = 1e6;  // each streamed byte costs a microsecond
    ASSERT_TRUE(has_model(choose(4096 * kMiB)));
    int n_left_out = 0;
    int n_taken = 0;
    for (std::size_t bytes = 2 * kMiB; bytes < 256 * kMiB; bytes += 4 * kMiB) {
        const DraftSettings chosen = choose(bytes);
        if (has_model(chosen)) continue;
        if (said_.find("the draft model is not used") == std::string::npos) {
            EXPECT_TRUE(chosen.options.sources.empty()) << "the target alone does not fit, as loading will say";
            continue;
        }
        EXPECT_EQ(chosen.options.sources.size(), 2U);
        EXPECT_EQ(said_.find("e+"), std::string::npos) << "a rate in digits: " << said_;
        ++n_left_out;
        // Asked for by name it is taken where it fits.
        draft_.automatic = false;
        const bool taken = has_model(choose(bytes));
        EXPECT_EQ(taken, said_.find("is not used") == std::string::npos) << said_;
        n_taken += taken ? 1 : 0;
        draft_.automatic = true;
    }
    EXPECT_GT(n_left_out, 0);
    EXPECT_GT(n_taken, 0);
}

TEST_F(DraftChoice, WhatDoesNotFitShrinksToNothing) {
    draft_.options.sources = {SourceKind::Context};
    draft_.find_model = {};
    bool shrank = false;
    bool gone = false;
    for (std::size_t bytes = 64 * kMiB; bytes > 2 * kMiB; bytes -= kMiB / 8) {
        const DraftSettings chosen = choose(bytes);
        if (chosen.options.sources.empty()) {
            EXPECT_EQ(chosen.options.max_budget, 1);
            gone = true;
        } else if (chosen.options.max_budget < draft_.options.max_budget) {
            EXPECT_FALSE(gone) << "less memory never serves more";
            EXPECT_THAT(said_, HasSubstr("trees of at most"));
            shrank = true;
        }
    }
    EXPECT_TRUE(shrank && gone);
}

TEST_F(DraftChoice, ABudgetInSoManyWordsIsRefusedByItsName) {
    draft_.options.sources = {SourceKind::Context};
    draft_.find_model = {};
    draft_.options.adapt_budget = false;
    draft_.options.max_budget = 256;
    bool refused = false;
    for (std::size_t bytes = 32 * kMiB; bytes > 2 * kMiB && !refused; bytes -= kMiB / 8) {
        try {
            EXPECT_EQ(choose(bytes).options.max_budget, 256);
        } catch (const OutOfBudget& error) {
            EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("--budget auto"), HasSubstr("--device-memory")));
            refused = true;
        }
    }
    EXPECT_TRUE(refused);
}

TEST_F(DraftChoice, NodesThatRideAlongMakeTreesLarger) {
    // 33 MiB of weights, and a small vocabulary, so that logits take little.
    open_ = [] { return OpenedModel("tiny", make_tiny_model({.d_model = 256, .d_ff = 1024, .n_layers = 8})); };
    draft_.options.sources = {SourceKind::Context, SourceKind::Suffix};
    draft_.find_model = {};
    std::int64_t largest = 0;
    for (std::size_t bytes = 4 * kMiB; bytes < 40 * kMiB; bytes += 4 * kMiB) {
        const DraftSettings chosen = choose(bytes);
        largest = std::max(largest, chosen.options.max_budget);
        EXPECT_LE(chosen.options.max_budget, 256);
        // A budget that was given, and a paper's own tree, keep their size.
        draft_.options.adapt_budget = false;
        EXPECT_EQ(choose(bytes).options.max_budget, draft_.options.max_budget);
        draft_.options.adapt_budget = true;
        draft_.options.shape = draft::TreeShape::Chain;
        EXPECT_LE(choose(bytes).options.max_budget, draft_.options.max_budget);
        draft_.options.shape.reset();
    }
    EXPECT_GT(largest, draft_.options.max_budget);
}

// The MTP head in the files of a golden model of 0.3 MiB, and copies of them without it and damaged.
class HeadChoice : public DraftChoice {
protected:
    HeadChoice() {
        draft_.find_model = {};
        draft_.options.sources = {SourceKind::Context, SourceKind::Mtp};
        context_tokens_ = 24;
        GoldenModel damaged = load_golden_head("qwen35").model;
        damaged.tensors.pop_back();
        write_hugging_face(load_golden_head("qwen35").model, whole_.path());
        write_hugging_face(damaged, damaged_.path());
        write_hugging_face(load_golden_model("qwen35"), without_.path());
        use(whole_);
    }
    void use(const TempFolder& folder) {
        open_ = [path = folder.path()] { return OpenedModel(path); };
    }
    [[nodiscard]] static bool has_mtp(const DraftSettings& draft) { return draft.options.has(SourceKind::Mtp); }
    std::string refusal(std::size_t bytes) {
        return error_text([&] { static_cast<void>(choose(bytes)); });
    }

    TempFolder whole_, damaged_, without_;
};

TEST_F(HeadChoice, AHeadIsTakenIfTheFilesHaveOne) {
    for (const bool automatic : {true, false}) {
        draft_.automatic = automatic;
        EXPECT_TRUE(has_mtp(choose(Budget::kUnlimited)));
        EXPECT_TRUE(has_mtp(choose(4096 * kMiB)));
        EXPECT_EQ(said_, "");
    }
}

// A second copy of the LM head takes memory: where all of the target stays on one device, the head uses its own.
TEST_F(HeadChoice, TheLmHeadIsTheTargetsWhereAllOfItStays) {
    link_ = 1e6;
    draft_.automatic = false;
    EXPECT_TRUE(choose(64 * kMiB).lm_head_of_target);
    draft_.options.sources = {SourceKind::Context};
    EXPECT_FALSE(choose(64 * kMiB).lm_head_of_target);
    draft_.options.sources = {SourceKind::Mtp};
    std::size_t least = 64 * kMiB;
    for (std::size_t bytes = 8 * kMiB; bytes > kMiB / 4; bytes -= kMiB / 32) {
        const std::string refused = error_text([&] {
            const DraftSettings chosen = choose(bytes);
            if (chosen.lm_head_of_target) least = std::min(least, bytes);
            if (!chosen.lm_head_of_target) {
                EXPECT_LT(bytes, least) << "less memory never holds more";
            }
        });
        if (refused != "nothing thrown") break;
    }
    EXPECT_LT(least, 8 * kMiB);
    EXPECT_GT(least, kMiB / 2);
}

// One that has an LM head of its own uses that, whatever the memory.
TEST_F(HeadChoice, AHeadWithAnLmHeadOfItsOwnDoesNotUseTheTargets) {
    const TempFolder own;
    write_hugging_face(load_golden_head("glm4_moe").model, own.path());
    use(own);
    for (const bool automatic : {true, false}) {
        draft_.automatic = automatic;
        for (const std::size_t bytes : {Budget::kUnlimited, 4096 * kMiB, 64 * kMiB}) {
            const DraftSettings chosen = choose(bytes);
            EXPECT_TRUE(has_mtp(chosen)) << said_ << details_;
            EXPECT_FALSE(chosen.lm_head_of_target);
        }
    }
    const PlacedModel target = place(Budget::kUnlimited);
    const Model whole(target.files(), target.device(), {.context_tokens = context_tokens_});
    const std::optional<EngineHead> head = load_head(draft_, target, &whole, HostMemory{}, {});
    ASSERT_TRUE(head.has_value());
    EXPECT_NE(head->head->lm_head().front().packed.data, whole.parts(0, TensorRole::LmHead).front().packed.data);
}

// With trees made smaller, or in `auto`, the head shares the LM head wherever it does with small trees.
TEST_F(HeadChoice, SmallerTreesAreTakenBeforeAnythingStreams) {
    link_ = 1e6;
    const DraftSettings as_given = draft_;
    bool is_smaller = false;
    std::size_t n_shared = 0;
    for (std::size_t bytes = 8 * kMiB; bytes > kMiB / 4; bytes -= kMiB / 64) {
        draft_ = as_given;
        draft_.automatic = false;
        draft_.options.adapt_budget = false;
        draft_.options.max_budget = 2;
        DraftSettings least;
        if (error_text([&] { least = choose(bytes); }) != "nothing thrown") break;
        if (!least.lm_head_of_target) continue;
        ++n_shared;
        for (const bool automatic : {true, false}) {
            draft_ = as_given;
            draft_.automatic = automatic;
            const DraftSettings chosen = choose(bytes);
            EXPECT_TRUE(chosen.lm_head_of_target) << bytes << " bytes, " << said_;
            EXPECT_TRUE(has_mtp(chosen)) << said_;
            EXPECT_THAT(said_, Not(HasSubstr("the MTP head is not used")));
            is_smaller = is_smaller || chosen.options.max_budget < as_given.options.max_budget;
        }
    }
    EXPECT_GT(n_shared, 0U);
    EXPECT_TRUE(is_smaller);
}

// The passes of the self-check become smaller before anything streams.
TEST_F(HeadChoice, WithTheSelfCheckMoreMemoryNeverSharesLess) {
    link_ = 1e6;
    draft_.automatic = false;
    check_ = CheckPasses::Yes;
    const DraftSettings as_given = draft_;
    bool is_refused = false;
    std::vector<bool> shares;
    for (std::size_t bytes = 24 * kMiB; bytes > kMiB && !is_refused; bytes -= kMiB / 16) {
        draft_ = as_given;
        is_refused = error_text([&] { shares.push_back(choose(bytes).lm_head_of_target); }) != "nothing thrown";
    }
    ASSERT_FALSE(shares.empty());
    EXPECT_TRUE(shares.front());
    EXPECT_TRUE(std::ranges::is_sorted(shares, std::greater<>()));
}

// Several lists that are benchmarked beside each other.
class HeadOfSeveralLists : public HeadChoice {
protected:
    HeadOfSeveralLists() {
        draft_.automatic = false;
        draft_.options.sources = {SourceKind::Mtp};
    }
    [[nodiscard]] DraftSettings list_of(std::vector<SourceKind> sources) const {
        DraftSettings list = draft_;
        list.options.sources = std::move(sources);
        return list;
    }
    [[nodiscard]] std::size_t used_by(const std::vector<DraftSettings>& lists) const {
        const PlacedModel target = place(64 * kMiB);
        const Drafting drafting(lists, target, nullptr, {}, {});
        return target.device().budget().used_bytes();
    }
};

TEST_F(HeadOfSeveralLists, AHeadAloneOnTheDeviceUsesTheLmHeadOfTheTarget) {
    const std::size_t alone = used_by({draft_});
    EXPECT_EQ(used_by({list_of({}), draft_}), alone);
    EXPECT_EQ(used_by({draft_, list_of({SourceKind::Context})}), alone);
    DraftSettings larger = list_of({SourceKind::Context});
    larger.options.max_budget *= 2;
    EXPECT_GT(used_by({draft_, larger}), alone) << "larger passes of another list";
    const PlacedModel target = place(64 * kMiB);
    const std::unique_ptr<HeadSource> head = open_head(target.files());
    const auto bytes_of = [&](ProposingHead::LmHead lm_head) {
        return ProposingHead::device_bytes(*head, WeightRounding::Q8_0, lm_head);
    };
    EXPECT_GT(used_by({draft_, draft_}),
              alone + bytes_of(ProposingHead::LmHead::Own) - bytes_of(ProposingHead::LmHead::OfTarget))
        << "passes of two heads, and a copy";
}

// What a head has on the device is given back after a target that does not load, and has taken the device with it.
TEST_F(HeadOfSeveralLists, ATargetThatDoesNotLoadLeavesADraftingThatCanBeDestroyed) {
    PlacedModel placed = place(64 * kMiB);
    const Drafting drafting({&draft_, 1}, placed, nullptr, {}, {});
    RunNeeds needs = drafting.needs(0);
    needs.other_bytes = 64 * kMiB;
    EXPECT_THROW(LoadedModel(std::move(placed), needs, {}), OutOfBudget);
}

// Where the LM head, which was planned to stay, is not whole on the head's device: `auto` goes on without the head, a
// list by name is refused.
TEST_F(HeadOfSeveralLists, WithoutTheLmHeadOfTheTargetAHeadIsNotUsed) {
    for (const bool automatic : {true, false}) {
        draft_.automatic = automatic;
        others_.clear();
        said_.clear();
        const EngineCallbacks callbacks{.on_note = [this](std::string_view line) { said_.append(line).append("\n"); }};
        const PlacedModel planned = place(64 * kMiB);
        Drafting drafting({&draft_, 1}, planned, nullptr, {}, callbacks);
        ASSERT_TRUE(drafting.drafter().needs_hidden());
        others_ = {{64 * kMiB, link_}};
        offload_.shares = {1, 1};
        const LoadedModel model(place(64 * kMiB), drafting.needs(0), callbacks);
        offload_.shares.clear();
        const auto runner = make_runner(model, drafting.needs(0), callbacks);
        EXPECT_EQ(said_, "");
        const std::string error = error_text([&] { drafting.attach(model, *runner); });
        EXPECT_EQ(error == "nothing thrown", automatic) << error;
        EXPECT_THAT(automatic ? said_ : error, HasSubstr("LM head, which its MTP head uses, does not stay on"));
        EXPECT_EQ(drafting.drafter().needs_hidden(), !automatic);
    }
}

TEST_F(HeadChoice, AutoLeavesOutWhatIsRefusedByName) {
    for (const auto& [folder, why] :
         {std::pair{&without_, "has no MTP head (tensors mtp.*, of GLM-4.5 one more layer, in GGUF files nextn)"},
          {&damaged_, "the MTP head: tensor mtp.layers.0.mlp.down_proj"}}) {
        use(*folder);
        for (const std::size_t bytes : {Budget::kUnlimited, 4096 * kMiB}) {
            draft_.automatic = true;
            EXPECT_FALSE(has_mtp(choose(bytes)));
            EXPECT_THAT(details_, HasSubstr("draft: auto leaves mtp out: "));
            EXPECT_THAT(details_, HasSubstr(why));
            EXPECT_EQ(said_, "");
            draft_.automatic = false;
            EXPECT_THAT(refusal(bytes), HasSubstr(why));
        }
    }
}

// Where no device's memory is limited, the host's is what a head must fit into.
TEST_F(HeadChoice, AHeadThatTheHostHasNoMemoryForIsNotLoaded) {
    const PlacedModel target = place(Budget::kUnlimited);
    const std::unique_ptr<HeadSource> head = open_head(target.files());
    const std::size_t needed = head_host_bytes(*head, draft_.options, target, ProposingHead::LmHead::Own);
    // The hidden states that are kept for it are a part of that.
    EXPECT_EQ(needed, head_bytes(*head, draft_.options, target.context_tokens(), ProposingHead::LmHead::Own) +
                          HiddenTail::host_bytes(target.config().d_model, draft::hidden_rows(draft_.options.max_budget),
                                                 scratch_nodes_for(draft_.options.max_budget))
                              .all);
    const HostMemory enough{kMiB * 1024, needed};
    const HostMemory short_of_it{kMiB * 1024, needed - 1};
    const EngineCallbacks callbacks{.on_note = [this](std::string_view line) { said_.append(line).append("\n"); },
                                    .on_detail = [this](std::string_view line) { details_.append(line).append("\n"); }};
    for (const bool automatic : {true, false}) {
        draft_.automatic = automatic;
        DraftSettings chosen = draft_;
        EXPECT_TRUE(load_head(chosen, target, nullptr, enough, callbacks).has_value());
        EXPECT_TRUE(load_head(chosen, target, nullptr, HostMemory{}, callbacks).has_value()) << "an unknown amount";
        EXPECT_TRUE(has_mtp(chosen));
    }
    EXPECT_EQ(details_, "");
    EXPECT_THROW(static_cast<void>(load_head(draft_, target, nullptr, short_of_it, callbacks)), OutOfBudget);
    EXPECT_THAT(error_text([&] { static_cast<void>(load_head(draft_, target, nullptr, short_of_it, callbacks)); }),
                testing::AllOf(HasSubstr("the MTP head takes "), HasSubstr("--draft without 'mtp'")));
    draft_.automatic = true;
    EXPECT_FALSE(load_head(draft_, target, nullptr, short_of_it, callbacks).has_value());
    EXPECT_FALSE(has_mtp(draft_));
    EXPECT_THAT(details_, HasSubstr("draft: auto leaves mtp out: the MTP head takes "));
    EXPECT_EQ(said_, "");
}

TEST_F(HeadChoice, AHeadThatDoesNotFitOrPayIsLeftOut) {
    link_ = 1e6;
    bool left_out = false;
    for (std::size_t bytes = 8 * kMiB; bytes > kMiB / 4; bytes -= kMiB / 32) {
        draft_.automatic = true;
        const DraftSettings chosen = choose(bytes);
        if (chosen.options.sources.empty()) break;  // not even the target fits
        if (has_mtp(chosen)) {
            EXPECT_FALSE(left_out) << "less memory never serves more";
            continue;
        }
        EXPECT_THAT(said_, HasSubstr("the MTP head is not used"));
        left_out = true;
    }
    EXPECT_TRUE(left_out);
    // Asked for by name it is used, or refused.
    draft_.automatic = false;
    bool refused = false;
    for (std::size_t bytes = 8 * kMiB; bytes > kMiB / 4 && !refused; bytes -= kMiB / 32) {
        const std::string text = error_text([&] { EXPECT_TRUE(has_mtp(choose(bytes))) << said_; });
        if (text == "nothing thrown") continue;
        EXPECT_THAT(text, testing::AllOf(HasSubstr("the MTP head's "), HasSubstr("--draft without 'mtp'"),
                                         HasSubstr("--device-memory")));
        refused = true;
    }
    EXPECT_TRUE(refused);
    // So is a budget of nodes in so many words.
    draft_.options.adapt_budget = false;
    refused = false;
    for (std::size_t bytes = 8 * kMiB; bytes > kMiB / 4 && !refused; bytes -= kMiB / 32) {
        const std::string text = refusal(bytes);
        if (text == "nothing thrown") continue;
        EXPECT_THAT(text, testing::AllOf(HasSubstr("and the MTP head do not fit"), HasSubstr("--draft without 'mtp'")));
        refused = true;
    }
    EXPECT_TRUE(refused);
}

// Of an MTP head and a draft model that were both requested, the dearer one, the model, goes first.
TEST_F(HeadChoice, ADraftModelGoesBeforeACheaperHead) {
    draft_.automatic = false;
    draft_.options.sources = {SourceKind::Context, SourceKind::Model, SourceKind::Mtp};
    draft_.find_model = [this](const std::filesystem::path&) { return without_.path(); };
    for (const TempFolder* folder : {&whole_, &without_})
        std::filesystem::copy(SLIPSTREAM_SOURCE_DIR "/tools/demo_model/target/tokenizer.model", folder->path());
    bool model_left_out = false;
    for (std::size_t bytes = 16 * kMiB; bytes > kMiB / 4 && !model_left_out; bytes -= kMiB / 32) {
        const DraftSettings chosen = choose(bytes);
        ASSERT_TRUE(has_mtp(chosen)) << said_;
        model_left_out = !has_model(chosen);
    }
    EXPECT_TRUE(model_left_out);
    EXPECT_THAT(said_, HasSubstr("the draft model is not used"));
}

}  // namespace
}  // namespace slipstream::tools
