// Rows in 4 bits near the rows; attention over view pages near softmax in double.
#include "tests/kernels/view_pages_cases.h"

#include <optional>
#include <string>
#include <tuple>

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
            expect_exact_fold(pages, queries, fold_pages(exec(), pages, queries, group % 2));
        }
}

std::string name_of(const testing::TestParamInfo<std::tuple<CpuForm, DType>>& info) {
    return std::string(cpu_form_name(std::get<0>(info.param))) + "_" + std::string(dtype_name(std::get<1>(info.param)));
}
INSTANTIATE_TEST_SUITE_P(Forms, ViewPages,
                         testing::Combine(testing::Values(CpuForm::Scalar, CpuForm::Avx2, CpuForm::Avx512),
                                          testing::Values(DType::F32, DType::F16, DType::BF16, DType::Q8_0)),
                         name_of);

}  // namespace
}  // namespace slipstream::testing_view
