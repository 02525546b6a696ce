// Attention over view pages near softmax in double, alone and before the rows that follow; the same bits for a token
// among others.
#include <numbers>

#include "kernels/graph.h"
#include "tests/cuda/under_test.h"
#include "tests/kernels/view_pages_cases.h"

namespace slipstream::testing_cuda {
namespace {

using testing_view::HeadPages;
using testing_view::PageQueries;
using testing_view::Rows;

constexpr DType kTypes[] = {DType::F32, DType::F16, DType::BF16, DType::Q8_0};

class CudaViewPages : public CudaOps {
protected:
    void expect_exact(const HeadPages& pages, const PageQueries& queries) {
        expect_exact_fold(pages, queries, fold_pages(exec(), pages, queries, 4), std::numbers::ln2);
    }
};

TEST_F(CudaViewPages, FoldIsThatOfDouble) {
    for (const DType type : kTypes)
        for (const std::int64_t head_dim : {2, 18, 42, 64, 80, 96, 128, 256})
            for (const std::int64_t group : {1, 2, 3, 5, 8}) {
                const std::int64_t n_kv_heads = head_dim == 256 ? 1 : 3;
                std::vector<std::int64_t> n_slots{300 + group, 8 * group, 0};
                n_slots.resize(static_cast<std::size_t>(n_kv_heads));
                const Rows rows({n_kv_heads, head_dim, type}, 320, static_cast<std::uint32_t>(head_dim + group));
                const HeadPages pages(exec(), rows, n_slots);
                PageQueries queries(group == 3 ? 5 : 1, rows.shape, group, 7);
                if (group % 2 == 0) queries.with_sinks();
                if (group == 8) queries.with_softcap(4.0F);
                SCOPED_TRACE(testing::Message() << group << " heads of " << head_dim << " " << dtype_name(type));
                expect_exact(pages, queries);
            }
}

TEST_F(CudaViewPages, HoldAnyNumberOfSlots) {
    const Rows rows({2, 64, DType::F16}, 128, 3);
    for (std::int64_t n = 1; n <= 64; ++n) {
        SCOPED_TRACE(testing::Message() << n << " slots");
        expect_exact(HeadPages(exec(), rows, {n, 128 - n}), PageQueries(1, rows.shape, 3, 7));
    }
}

TEST_F(CudaViewPages, HoldRowsThatAreHardToRound) {
    for (const DType type : kTypes)
        for (const std::int64_t head_dim : {6, 64, 80}) {
            const Rows rows = testing_view::hard_rows({2, head_dim, type}, 200);
            SCOPED_TRACE(testing::Message() << head_dim << " " << dtype_name(type));
            expect_exact(HeadPages(exec(), rows, {200, 131}), PageQueries(3, rows.shape, 2, 7));
        }
}

TEST_F(CudaViewPages, BitsOfATokenDoNotDependOnOthers) {
    for (const auto& [head_dim, group] : {std::pair{64, 3}, std::pair{128, 6}, std::pair{80, 1}, std::pair{42, 8}}) {
        const Rows rows({2, head_dim, DType::F16}, 700, 5);
        const HeadPages pages(exec(), rows, {700, 333});
        for (const std::int64_t n : {2, 7, 17})
            expect_same_alone(exec(), pages,
                              PageQueries(n, rows.shape, group, 8).with_sinks().with_softcap(n == 7 ? 3.0F : 0.0F));
    }
}

TEST_F(CudaViewPages, JoinTheRowsThatFollow) {
    for (const DType type : {DType::F32, DType::F16, DType::Q8_0})
        for (const auto& [head_dim, group] : {std::pair{64, 3}, std::pair{128, 6}, std::pair{42, 1}})
            for (const std::int64_t n_recent : {0, 144, 300}) {
                const KvLayout shape{2, head_dim, type};
                const HeadPages pages(exec(), Rows(shape, 400, 5), {400, n_recent == 144 ? 0 : 65});
                SCOPED_TRACE(testing::Message()
                             << n_recent << " rows after pages, heads of " << head_dim << " " << dtype_name(type));
                expect_exact_joined(exec(), pages,
                                    PageQueries(4, shape, group, 8)
                                        .with_sinks()
                                        .with_softcap(n_recent == 300 && head_dim != 64 ? 5.0F : 0.0F),
                                    Rows(shape, n_recent, 21), Rows(shape, 4, 22),
                                    type == DType::F32 ? 0.0 : 0x1p-11);  // mma of half floats
            }
}

// A launch of a graph folds the slots that heads have then. The most slots that a call is made for change no bit.
TEST_F(CudaViewPages, AGraphReadsRangesAtEachLaunch) {
    const Rows rows({2, 64, DType::F16}, 700, 5);
    HeadPages pages(exec(), rows, {700, 333});
    const PageQueries queries(3, rows.shape, 3, 8);
    const DeviceFloats q(exec(), 3, 6 * 64, queries.q);
    const DeviceFloats state(exec(), 1, static_cast<std::int64_t>(attention_state_floats(3, 6, 64)));
    static_cast<void>(fold_pages(exec(), pages, queries));  // takes the scratch
    const auto graph = exec().stream.capture([&] {
        view_pages_attention(exec(), {.shape = rows.shape,
                                      .q = q.view(),
                                      .n_q_heads = 6,
                                      .pages = pages.pages(),
                                      .ranges = pages.ranges(),
                                      .most_slots = pages.most_slots(),
                                      .scale = queries.scale,
                                      .state = state.data()});
    });
    for (const std::vector<std::int64_t>& n_slots :
         {std::vector<std::int64_t>{700, 333}, {0, 64}, {320, 0}, {64, 320}, {0, 0}}) {
        pages.set_slots(n_slots);
        ASSERT_TRUE(exec().stream.launch(*graph, {}));
        const std::vector<float> found = state.read();
        EXPECT_TRUE(same_bits(found, fold_pages(exec(), pages, queries))) << n_slots[0];
        EXPECT_TRUE(same_bits(found, fold_pages(exec(), HeadPages(exec(), rows, n_slots), queries))) << n_slots[0];
    }
}

// More pages than one launch takes: one step of rows, again and again.
TEST_F(CudaViewPages, WritesMorePagesThanALaunchTakes) {
    constexpr std::int32_t kPages = (1 << 10) + 1;
    const Rows rows({1, 2, DType::F16}, kPageSlots, 3);
    const testing_view::Chunks chunks(exec(), rows);
    std::vector<PageFill> fills;
    for (std::int32_t page = 0; page < kPages; ++page) fills.push_back({0, 0, 64, page});
    const std::size_t bytes = view_page_bytes(2);
    const Buffer pages = upload_bytes(exec(), std::vector<std::byte>(kPages * bytes, std::byte{0xff}));
    view_pages_write(exec(), {.shape = rows.shape,
                              .from = chunks.pointers(),
                              .fills = fills.data(),
                              .n_fills = kPages,
                              .pages = pages.data()});
    const std::vector<std::byte> found = download_bytes(exec(), pages.data(), kPages * bytes);
    for (std::size_t page = 1; page < kPages; ++page)
        ASSERT_TRUE(std::equal(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(bytes),
                               found.begin() + static_cast<std::ptrdiff_t>(page * bytes)))
            << "page " << page;
}

}  // namespace
}  // namespace slipstream::testing_cuda
