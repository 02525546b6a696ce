// Rows in 4 bits near the rows; attention over view pages near softmax in double.
#include "tests/kernels/view_pages_cases.h"

#include <optional>
#include <string>
#include <tuple>

#include "kernels/cpu/attention/kv_layout.h"
#include "kernels/cpu_device.h"

namespace slipstream::testing_view {
namespace {

class ViewPages : public testing::TestWithParam<std::tuple<CpuForm, DType>> {
protected:
    void SetUp() override {
        if (!cpu_has_form(std::get<0>(GetParam()))) GTEST_SKIP() << "the machine has no such instructions";
        device_.emplace(CpuDeviceOptions{.n_threads = 2, .form = std::get<0>(GetParam())});
        stream_ = device_->make_stream(StreamKind::Compute);
    }
    [[nodiscard]] static DType type() { return std::get<1>(GetParam()); }
    [[nodiscard]] ExecRef exec() { return {*device_, *stream_}; }
    void expect_fold(const HeadPages& pages, const PageQueries& queries, const std::vector<float>& state) {
        expect_exact_fold(pages, queries, state, 1.0, rounds() ? PageNumbers::EightBits : PageNumbers::Floats);
    }
    [[nodiscard]] static bool rounds() { return std::get<0>(GetParam()) >= CpuForm::Avx512Vnni; }

private:
    std::optional<CpuDevice> device_;
    std::unique_ptr<Stream> stream_;
};

TEST_P(ViewPages, FoldIsThatOfDouble) {
    for (const std::int64_t head_dim : {2, 42, 64, 80, 96, 128, 256})
        for (std::int64_t group = 1; group <= 8; ++group) {
            const std::int64_t n_kv_heads = head_dim == 256 ? 1 : 3;
            std::vector<std::int64_t> n_slots{300 + group, 8 * group, 0};
            n_slots.resize(static_cast<std::size_t>(n_kv_heads));
            const Rows rows({n_kv_heads, head_dim, type()}, 320, static_cast<std::uint32_t>(head_dim + group));
            const HeadPages pages(exec(), rows, n_slots);
            PageQueries queries(group % 3 == 0 ? 5 : 1, rows.shape, group, 7);
            if (group % 2 == 0) queries.with_sinks();
            if (group % 4 == 0) queries.with_softcap(4.0F);
            SCOPED_TRACE(testing::Message() << group << " heads of " << head_dim);
            expect_fold(pages, queries, fold_pages(exec(), pages, queries, group % 2));
        }
}

TEST_P(ViewPages, HoldAnyNumberOfSlots) {
    const Rows rows({2, 64, type()}, 128, 3);
    for (std::int64_t n = 1; n <= 64; ++n) {
        const HeadPages pages(exec(), rows, {n, 128 - n});
        const PageQueries queries(1, rows.shape, 3, 7);
        SCOPED_TRACE(testing::Message() << n << " slots");
        expect_fold(pages, queries, fold_pages(exec(), pages, queries));
    }
}

TEST_P(ViewPages, BitsOfATokenDoNotDependOnOthers) {
    for (const auto& [head_dim, group] : {std::pair{64, 3}, std::pair{128, 6}, std::pair{128, 3}, std::pair{128, 1},
                                          std::pair{80, 1}, std::pair{42, 8}}) {
        const Rows rows({2, head_dim, type()}, 700, 5);
        const HeadPages pages(exec(), rows, {700, 333});
        for (const std::int64_t n : {2, 3, 7, 17})
            expect_same_alone(exec(), pages,
                              PageQueries(n, rows.shape, group, 8).with_sinks().with_softcap(n == 7 ? 3.0F : 0.0F));
    }
}

TEST_P(ViewPages, NumbersThatAreNotFiniteStayInTheirQuery) {
    const Rows rows({2, 64, type()}, 100, 5);
    const HeadPages pages(exec(), rows, {100, 70});
    const PageQueries queries(2, rows.shape, 3, 8);
    const std::vector<float> finite = fold_pages(exec(), pages, queries);
    for (const float number : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        PageQueries with = queries;
        with.q[64 + 9] = number;  // of query head 1
        const std::vector<float> found = fold_pages(exec(), pages, with);
        for (std::int64_t query = 0; query < 12; ++query)
            EXPECT_EQ(testing_cuda::same_bits(std::span(found).subspan(static_cast<std::size_t>(64 * query), 64),
                                              std::span(finite).subspan(static_cast<std::size_t>(64 * query), 64)),
                      query != 1)
                << "query " << query << ", " << number;
    }
}

TEST_P(ViewPages, BitsDoNotDependOnThreads) {
    const Rows rows({2, 128, type()}, 3000, 6);
    for (const std::int64_t n_tokens : {1, 16}) {
        const PageQueries queries(n_tokens, rows.shape, 8, 9);
        const HeadPages pages(exec(), rows, {3000, 1111});
        const std::vector<float> found = fold_pages(exec(), pages, queries);
        for (const int n_threads : {1, 5}) {
            CpuDevice other({.n_threads = n_threads, .form = std::get<0>(GetParam())});
            const auto stream = other.make_stream(StreamKind::Compute);
            const HeadPages same({other, *stream}, rows, {3000, 1111});
            EXPECT_EQ(pages.bytes(), same.bytes());
            EXPECT_TRUE(testing_cuda::same_bits(found, fold_pages({other, *stream}, same, queries)))
                << n_tokens << " tokens, " << n_threads << " threads";
        }
    }
}

TEST_P(ViewPages, JoinTheRowsThatFollow) {
    for (const auto& [head_dim, group] : {std::pair{64, 3}, std::pair{128, 6}, std::pair{42, 1}})
        for (const std::int64_t n_recent : {0, 144, 300}) {
            const KvLayout shape{2, head_dim, type()};
            const Rows rows(shape, 400, 5);
            const HeadPages pages(exec(), rows, {400, n_recent == 144 ? 0 : 65});
            SCOPED_TRACE(testing::Message() << n_recent << " rows behind pages, heads of " << head_dim);
            expect_exact_joined(
                exec(), pages, PageQueries(4, shape, group, 8).with_sinks().with_softcap(n_recent == 300 ? 5.0F : 0.0F),
                Rows(shape, n_recent, 21), Rows(shape, 4, 22), 0.0,
                rounds() ? PageNumbers::EightBits : PageNumbers::Floats);
        }
}

TEST_P(ViewPages, HoldRowsThatAreHardToRound) {
    for (const std::int64_t head_dim : {6, 64, 80}) {
        const Rows rows = hard_rows({2, head_dim, type()}, 200);
        const HeadPages pages(exec(), rows, {200, 131});
        PageQueries queries(3, rows.shape, 2, 7);
        const std::vector<float> state = fold_pages(exec(), pages, queries);
        EXPECT_TRUE(std::all_of(state.begin(), state.end(), [](float x) { return std::isfinite(x); }));
        expect_fold(pages, queries, state);
    }
}

// Rows of an odd length get into chunks here, since kv_commit() takes words of four bytes.
TEST_P(ViewPages, HoldHeadsOfAnOddLength) {
    for (const std::int64_t head_dim : {1, 7, 33, 65}) {
        const KvLayout shape{2, head_dim, type()};
        Rows rows(shape, 100, 13);
        std::vector<std::byte> chunk(shape.chunk_bytes(), std::byte{0xff});
        const std::size_t element = cpu::element_bytes(shape, 1);
        for (std::int64_t slot = 0; slot < rows.n_slots; ++slot)
            for (std::int64_t head = 0; head < 2; ++head) {
                const std::byte* k = rows.head_row(false, slot, head).data();
                const std::byte* v = rows.head_row(true, slot, head).data();
                std::byte* keys = chunk.data() + cpu::k_step_offset(shape, head, slot / kStepTokens);
                const std::int64_t in_step = slot % kStepTokens;
                for (std::int64_t d = 0; d < head_dim; ++d)
                    std::memcpy(keys + static_cast<std::size_t>(d * kStepTokens + in_step) * element,
                                k + static_cast<std::size_t>(d) * element, element);
                std::memcpy(chunk.data() + cpu::v_row_offset(shape, head, slot), v,
                            cpu::element_bytes(shape, head_dim));
                if (!shape.has_scales()) continue;
                cpu::put_scales(shape, keys, k + shape.head_code_bytes(), in_step);
                cpu::put_scales(shape, chunk.data() + cpu::v_row_offset(shape, head, slot - in_step),
                                v + shape.head_code_bytes(), in_step);
            }
        std::byte* chunks[] = {chunk.data()};
        const HeadPages pages(exec(), rows, {100, 37}, chunks);
        const PageQueries queries(2, shape, 3, 7);
        SCOPED_TRACE(testing::Message() << "heads of " << head_dim);
        expect_fold(pages, queries, fold_pages(exec(), pages, queries));
    }
}

// All kernel variants write the same pages.
TEST_P(ViewPages, AreThoseOfTheScalarVariant) {
    CpuDevice scalar({.n_threads = 1, .form = CpuForm::Scalar});
    const auto stream = scalar.make_stream(StreamKind::Compute);
    for (const std::int64_t head_dim : {6, 42, 64, 80, 128}) {
        const Rows rows = hard_rows({2, head_dim, type()}, 200);
        EXPECT_EQ(HeadPages(exec(), rows, {200, 131}).bytes(), HeadPages({scalar, *stream}, rows, {200, 131}).bytes());
    }
}

std::string name_of(const testing::TestParamInfo<std::tuple<CpuForm, DType>>& info) {
    return std::string(cpu_form_name(std::get<0>(info.param))) + "_" + std::string(dtype_name(std::get<1>(info.param)));
}
INSTANTIATE_TEST_SUITE_P(Forms, ViewPages,
                         testing::Combine(testing::ValuesIn(kCpuForms),
                                          testing::Values(DType::F32, DType::F16, DType::BF16, DType::Q8_0)),
                         name_of);

// Queries of whole numbers up to 127 times equal scales, and equal weights, lose nothing by 8 bits: every slot and
// dimension counts as it does in double.
TEST(ViewPagesInEightBits, LoseNothingThatFits) {
    if (!cpu_has_form(CpuForm::Avx512Vnni)) GTEST_SKIP() << "the machine has no such instructions";
    CpuDevice device({.n_threads = 1, .form = CpuForm::Avx512Vnni});
    const auto stream = device.make_stream(StreamKind::Compute);
    const ExecRef exec{device, *stream};
    for (const std::int64_t head_dim : {16, 42, 64, 80, 128, 192})
        for (const std::int64_t n_slots : {1, 3, 21, 64, 150}) {
            SCOPED_TRACE(testing::Message() << n_slots << " slots of " << head_dim);
            Rows rows({1, head_dim, DType::F32}, n_slots, 1);
            std::mt19937 random(static_cast<std::uint32_t>(head_dim + n_slots));
            // Each dimension of a page, and each slot, has the codes 0 and 15, so all scales are equal.
            const auto code = [&](std::int64_t i, std::int64_t of_0, std::int64_t of_15) {
                if (i == of_0 || i == of_15) return i == of_0 ? 0.0F : 15.0F;
                return static_cast<float>(random() % 16);
            };
            for (std::int64_t slot = 0; slot < n_slots; ++slot)
                for (std::int64_t d = 0; d < head_dim; ++d) {
                    rows.put(rows.head_row(false, slot, 0).data(), d, 0.25F * code(slot % kPageSlots, 0, 1) - 2.0F);
                    rows.put(rows.head_row(true, slot, 0).data(), d, 0.5F * code(d, 3, 7) - 1.0F);
                }
            const HeadPages pages(exec, rows, {n_slots});
            for (const int group : {1, 2, 4, 6, 7}) {
                PageQueries queries(1, rows.shape, group, 5);
                queries.scale = 0x1p-8F;
                for (float& q : queries.q) q = static_cast<float>(static_cast<int>(random() % 255) - 127);
                for (int head = 0; head < group; ++head) queries.q[head * head_dim + head] = 127.0F;
                const std::vector<float> state = fold_pages(exec, pages, queries);
                // With all queries 0 the weights are equal, so the values lose nothing. Weights that differ are
                // rounded: there only m + log l is compared, which depends on the scores alone.
                PageQueries none = queries;
                std::ranges::fill(none.q, 0.0F);
                expect_exact_fold(pages, none, fold_pages(exec, pages, none));
                for (int head = 0; head < group; ++head) {
                    const ExactFold exact = exact_fold(queries, 0, head, pages.held(0));
                    EXPECT_NEAR(static_cast<double>(state[group * head_dim + head]) +
                                    std::log(static_cast<double>(state[group * (head_dim + 1) + head])),
                                exact.log_sum, exact.log_error);
                }
            }
        }
}

TEST(PageCode, IsWithinHalfAScale) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (int i = 0; i < 20000; ++i) {
        const float offset = i % 3 == 0 ? 0.0F : std::ldexp(normal(random), static_cast<int>(random() % 20) - 4);
        const float spread = std::ldexp(1.0F, static_cast<int>(random() % 44) - 30);
        float least = INFINITY;
        float largest = -INFINITY;
        std::vector<float> numbers(1 + random() % 64);
        for (float& number : numbers) {
            number = page_within(offset + spread * normal(random));
            least = std::min(least, number);
            largest = std::max(largest, number);
        }
        const Half minimum = page_minimum(least);
        const Half scale = page_scale(largest, minimum);
        ASSERT_TRUE(std::isfinite(to_float(minimum)) && std::isfinite(to_float(scale)));
        ASSERT_LE(to_float(minimum), least);
        // At most a step of F16 too low, and a scale at most a step too large.
        ASSERT_GE(to_float(minimum) + std::max(std::abs(least) * 0x1p-10F, 0x1p-24F), least);
        for (const float number : numbers) {
            const std::uint32_t code = page_code(number, minimum, page_factor(scale));
            ASSERT_LE(code, 15U);
            const double held = static_cast<double>(to_float(scale)) * code + static_cast<double>(to_float(minimum));
            ASSERT_NEAR(held, number, 0.5001 * to_float(scale)) << offset << " + " << spread;
        }
        ASSERT_LE(to_float(scale), (largest - to_float(minimum)) / 15 * (1 + 0x1p-9F) + 0x1p-24F);
    }
}

TEST(PageCode, OfOneNumberIsExactWhereF16HasIt) {
    for (const float number : {0.0F, -0.0F, 1.0F, -200.0F, 65504.0F, -65504.0F, 0x1p-24F}) {
        const Half minimum = page_minimum(number);
        const Half scale = page_scale(number, minimum);
        EXPECT_EQ(to_float(minimum), number);
        EXPECT_EQ(scale.bits, 0U);
        EXPECT_EQ(page_code(number, minimum, page_factor(scale)), 0U);
    }
    EXPECT_EQ(page_minimum(-0.0F).bits, 0U);
    EXPECT_EQ(page_minimum(-1e-30F).bits, 0x8001U);
    EXPECT_EQ(page_minimum(1e-30F).bits, 0U);
}

TEST(PageCode, OfNumbersBeyondF16IsFinite) {
    EXPECT_EQ(page_within(1e30F), 65504.0F);
    EXPECT_EQ(page_within(-INFINITY), -65504.0F);
    EXPECT_EQ(page_within(std::nanf("")), 65504.0F);
    const Half scale = page_scale(65504.0F, page_minimum(-65504.0F));
    EXPECT_TRUE(std::isfinite(15 * to_float(scale) + 65504.0F));
    EXPECT_EQ(page_code(65504.0F, page_minimum(-65504.0F), page_factor(scale)), 15U);
}

class ViewPagesArguments : public testing::Test {
protected:
    void write(const PageFill& fill) {
        view_pages_write(
            {device, *stream},
            {.shape = shape, .from = pointers.data(), .fills = &fill, .n_fills = 1, .pages = pages.data()});
    }
    template <typename Change>
    void attend(const Change& change) {
        PagesAttentionArgs args{.shape = shape,
                                .q = matrix_view(static_cast<const float*>(q.data()), 1, 256),
                                .n_q_heads = 4,
                                .pages = pages.data(),
                                .ranges = ranges.data(),
                                .most_slots = 64,
                                .state = state.data()};
        change(args);
        view_pages_attention({device, *stream}, args);
    }

    const KvLayout shape{2, 64, DType::F16};
    CpuDevice device{{.n_threads = 1, .form = {}}};
    std::unique_ptr<Stream> stream = device.make_stream(StreamKind::Compute);
    std::vector<std::byte> chunk = std::vector<std::byte>(shape.chunk_bytes());
    std::vector<const std::byte*> pointers{chunk.data(), nullptr};
    std::vector<std::byte> pages = std::vector<std::byte>(2 * view_page_bytes(64));
    std::vector<PageRange> ranges{{0, 64}, {1, 1}};
    std::vector<float> q = std::vector<float>(256);
    std::vector<float> state = std::vector<float>(attention_state_floats(1, 4, 64));
};

TEST_F(ViewPagesArguments, OfFillsAreChecked) {
    write({.head = 1, .from_step = 3, .n_slots = 64, .page = 1});
    view_pages_write({device, *stream}, {.shape = shape});
    EXPECT_DEATH(write({.head = 2, .n_slots = 64}), "page 0 of 64 slots of step 0, head 2 of 2");
    EXPECT_DEATH(write({.from_step = 4, .n_slots = 64}), "slots of step 4");
    EXPECT_DEATH(write({.from_step = -1, .n_slots = 64}), "slots of step -1");
    EXPECT_DEATH(write({.n_slots = 65}), "page 0 of 65 slots");
    EXPECT_DEATH(write({.n_slots = 0}), "page 0 of 0 slots");
    EXPECT_DEATH(write({.n_slots = 1, .page = -1}), "page -1 of 1 slots");
    EXPECT_DEATH(view_pages_write({device, *stream}, {.shape = shape, .n_fills = 1}), "view_pages_write of 1 pages");
}

TEST_F(ViewPagesArguments, OfAttentionAreChecked) {
    write({.head = 0, .n_slots = 64, .page = 0});
    write({.head = 1, .n_slots = 1, .page = 1});
    attend([](PagesAttentionArgs&) {});
    EXPECT_EQ(state[4 * 64 + 4], 64.0F);  // l of 64 slots, q . k = 0
    EXPECT_EQ(state[4 * 64 + 7], 1.0F);
    EXPECT_DEATH(attend([](PagesAttentionArgs& args) { args.n_q_heads = 3; }), "3 heads over 2 of 64");
    EXPECT_DEATH(attend([](PagesAttentionArgs& args) { args.softcap = -1.0F; }), "softcap of -1");
    EXPECT_DEATH(attend([](PagesAttentionArgs& args) { args.state = nullptr; }), "pages of up to 64 slots");
    EXPECT_DEATH(attend([](PagesAttentionArgs& args) { args.ranges = nullptr; }), "pages of up to 64 slots");
    EXPECT_DEATH(attend([](PagesAttentionArgs& args) { args.sinks = args.q; }), "4 heads with 256 sinks");
    EXPECT_DEATH(attend([](PagesAttentionArgs& args) { args.most_slots = 63; }), "64 slots from page 0 of head 0");
}

}  // namespace
}  // namespace slipstream::testing_view
