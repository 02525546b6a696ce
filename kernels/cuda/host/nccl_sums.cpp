#include "kernels/cuda/host/nccl_sums.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/check.h"
#include "kernels/cuda/host/cuda_stream.h"
#include "kernels/cuda/sums_launch.h"
#include "kernels/elementwise.h"

namespace slipstream {

namespace {

// Most bytes that are gathered of each rank at once, if a row is not longer; larger sums are gathered in several steps.
constexpr std::size_t kGatherBytes = std::size_t{1} << 20;
// Time after which a call of NCCL is taken to wait for a rank that is gone, so that abort() no longer waits for it:
// only ending the communicators ends such a call.
constexpr std::chrono::seconds kCallStands{5};

}  // namespace

std::string nccl_version_text(std::int64_t version) {
    return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

class NcclSums::Rank final : public Collective {
public:
    Rank(NcclSums& all, std::size_t index, CudaDevice& card, std::size_t gathered_bytes)
        : all_(all), index_(index), card_(card) {
        if (gathered_bytes > 0)
            gathered_ = card.allocate(gathered_bytes, MemoryTag::Activations, "sums between devices");
    }

    void all_reduce(ExecRef exec, const TensorView& y) override;
    void abort() noexcept override { all_.abort(); }
    void restart() override { all_.restart(); }

    [[nodiscard]] std::size_t index() const { return index_; }
    [[nodiscard]] CudaDevice& card() const { return card_; }
    [[nodiscard]] const cuda::RankPart& part() const { return part_; }
    [[nodiscard]] std::int64_t n_rows() const { return n_rows_; }
    [[nodiscard]] std::int64_t row_floats() const { return row_floats_; }
    [[nodiscard]] std::uint64_t n_calls() const { return n_calls_; }
    void begin_anew() { n_calls_ = 0; }

private:
    void sum(cuda::CudaStream& stream, const TensorView& rows);
    void gather(cuda::CudaStream& stream, const TensorView& rows);
    void meet(cuda::CudaStream& stream, const TensorView& rows, float* to, Way way);

    NcclSums& all_;
    const std::size_t index_;
    CudaDevice& card_;
    Buffer gathered_;  // [ranks][rows gathered at once, d]; only for three or more ranks
    // Arguments of this rank in the running call, which the rank that enqueues for all ranks reads.
    cuda::RankPart part_{};
    std::int64_t n_rows_ = 0;
    std::int64_t row_floats_ = 0;
    std::atomic<std::uint64_t> n_calls_{0};
};

void NcclSums::Rank::all_reduce(ExecRef exec, const TensorView& y) {
    auto& stream = static_cast<cuda::CudaStream&>(exec.stream);
    CHECK(y.dtype == DType::F32 && y.packed() && &exec.device == &card_ && stream.capturing() == nullptr);
    CHECK(y.rows() * y.row_stride_bytes <= all_.bytes_, "{} rows of {} bytes in {}", y.rows(), y.row_stride_bytes,
          all_.bytes_);
    if (all_.meeting_.aborted()) RankMeeting::throw_aborted();
    try {
        if (gathered_.size_bytes() == 0) return meet(stream, y, reinterpret_cast<float*>(y.data), Way::Sum);
        const auto at_once =
            static_cast<std::int64_t>(gathered_.size_bytes() / all_.ranks_.size() / y.row_stride_bytes);
        CHECK(at_once > 0, "rows of {} bytes", y.row_stride_bytes);
        for (std::int64_t row = 0; row < y.rows(); row += at_once)
            gather(stream, matrix_view(y.data + row * y.row_stride_bytes, DType::F32, std::min(at_once, y.rows() - row),
                                       y.cols()));
    } catch (const CollectiveAborted&) {
        throw;
    } catch (const Error& error) {
        throw IoError(fmt::format("sums: {}", error.what()));
    }
}

void NcclSums::Rank::meet(cuda::CudaStream& stream, const TensorView& rows, float* to, Way way) {
    part_ = {.place = stream.place(), .from = reinterpret_cast<const float*>(rows.data), .to = to};
    n_rows_ = rows.rows();
    row_floats_ = rows.cols();
    ++n_calls_;
    all_.meet(*this, way);
    card_.count_change();
}

void NcclSums::Rank::gather(cuda::CudaStream& stream, const TensorView& rows) {
    meet(stream, rows, reinterpret_cast<float*>(gathered_.data()), Way::Gather);
    const std::size_t bytes = rows.rows() * rows.row_stride_bytes;
    stream.copy(rows.data, gathered_.data(), bytes);
    for (std::size_t rank = 1; rank < all_.ranks_.size(); ++rank)
        add({card_, stream},
            {.x = matrix_view(gathered_.data() + rank * bytes, DType::F32, rows.rows(), rows.cols()), .y = rows});
}

NcclSums::NcclSums(std::span<CudaDevice* const> cards, std::size_t bytes, std::chrono::nanoseconds lost_after)
    : module_(&cards.front()->table()), bytes_(bytes), meeting_(lost_after) {
    for (CudaDevice* card : cards) {
        CHECK(&card->table() == module_, "sums between GPUs of several modules");
        ranks_.push_back(std::make_unique<Rank>(*this, ranks_.size(), *card, device_bytes(cards.size(), bytes)));
    }
    make_communicators();
    try {
        try_one();
    } catch (...) {
        abort();
        throw;
    }
}

NcclSums::~NcclSums() {
    cuda::ErrorText ignored{};
    for (std::size_t rank = 0; rank < communicators_.size(); ++rank)
        module_->free_communicator(ranks_[rank]->card().ordinal(), communicators_[rank], &ignored);
}

std::size_t NcclSums::device_bytes(std::size_t n_ranks, std::size_t bytes) {
    return n_ranks <= 2 ? 0 : n_ranks * std::min(bytes, kGatherBytes);
}

Collective& NcclSums::rank(std::size_t rank) {
    return *ranks_.at(rank);
}

void NcclSums::make_communicators() {
    std::vector<std::int32_t> ordinals;
    for (const auto& rank : ranks_) ordinals.push_back(rank->card().ordinal());
    std::vector<void*> made(ranks_.size());
    cuda::ErrorText error{};
    if (module_->make_communicators(static_cast<std::int32_t>(made.size()), ordinals.data(), made.data(), &error) !=
        cuda::Status::Ok)
        throw CudaError(error.text);
    const std::scoped_lock lock(mutex_);
    communicators_ = std::move(made);
    none_.clear();
}

// Runs a first sum, for which NCCL allocates what it needs.
void NcclSums::try_one() {
    constexpr std::size_t kFloats = 64;
    const std::size_t part_bytes = kFloats * sizeof(float);
    std::vector<Buffer> memory;
    std::vector<std::unique_ptr<Stream>> streams;
    std::vector<cuda::RankPart> parts;
    for (const auto& rank : ranks_) {
        CudaDevice& card = rank->card();
        memory.push_back(card.allocate((1 + ranks_.size()) * part_bytes, MemoryTag::Activations, "a first sum"));
        streams.push_back(card.make_stream(StreamKind::Compute));
        auto* from = reinterpret_cast<float*>(memory.back().data());
        parts.push_back({.place = static_cast<cuda::CudaStream&>(*streams.back()).place(),
                         .communicator = communicators_[rank->index()],
                         .from = from,
                         .to = from + kFloats});
    }
    std::int32_t failed = -1;
    cuda::ErrorText error{};
    if (function_of(ranks_.size() <= 2 ? Way::Sum : Way::Gather)(static_cast<std::int32_t>(parts.size()), parts.data(),
                                                                 kFloats, &failed, &error) != cuda::Status::Ok)
        throw CudaError(failure_text(failed, error));
    for (const auto& stream : streams) stream->synchronize();
}

std::string NcclSums::failure_text(std::int32_t rank, const cuda::ErrorText& error) const {
    if (rank < 0) return error.text;
    return fmt::format("{} (rank {}): {}", ranks_[rank]->card().name(), rank, error.text);
}

NcclSums::Function NcclSums::function_of(Way way) const {
    return way == Way::Sum ? module_->sum_parts : module_->gather_parts;
}

std::string NcclSums::missing(std::uint64_t call) const {
    for (const auto& rank : ranks_)
        if (rank->n_calls() < call) return fmt::format("{} has not arrived", rank->card().name());
    return "NCCL has not enqueued a sum";
}

void NcclSums::meet(const Rank& rank, Way way) {
    const std::uint64_t call = rank.n_calls();
    const auto own = static_cast<int>(rank.index());
    if (++n_arrivals_ == call * ranks_.size()) enqueue(rank, way);
    // If another rank's part has failed, this waits for that rank's abort().
    meeting_.await([&] { return enqueued_ >= call || failed_ == own; }, [&] { return missing(call); });
    if (failed_ == own) throw CudaError(failure_);
}

void NcclSums::enqueue(const Rank& last, Way way) {
    const std::scoped_lock call(call_);
    if (meeting_.aborted()) RankMeeting::throw_aborted();
    std::vector<cuda::RankPart> parts;
    for (const auto& rank : ranks_) {
        CHECK(rank->n_rows() == last.n_rows() && rank->row_floats() == last.row_floats(),
              "call {}: [{}, {}] of {}, [{}, {}] of {}: out of step", last.n_calls(), last.n_rows(), last.row_floats(),
              last.card().name(), rank->n_rows(), rank->row_floats(), rank->card().name());
        parts.push_back(rank->part());
    }
    {
        const std::scoped_lock lock(mutex_);
        if (communicators_.empty()) throw CudaError(none_);
        for (std::size_t rank = 0; rank < parts.size(); ++rank) parts[rank].communicator = communicators_[rank];
    }
    const auto n_floats = static_cast<std::size_t>(last.n_rows() * last.row_floats());
    std::int32_t failed = -1;
    cuda::ErrorText error{};
    if (function_of(way)(static_cast<std::int32_t>(parts.size()), parts.data(), n_floats, &failed, &error) ==
        cuda::Status::Ok) {
        enqueued_ = last.n_calls();
    } else {
        failure_ = failure_text(failed, error);
        failed_ = failed >= 0 ? failed : static_cast<int>(last.index());
    }
    meeting_.announce();
}

void NcclSums::abort() noexcept {
    meeting_.abort();  // from now on no rank starts a call of NCCL; one may still be in a call
    const std::unique_lock call(call_, kCallStands);
    std::vector<void*> ended;
    {
        const std::scoped_lock lock(mutex_);
        ended.swap(communicators_);
    }
    cuda::ErrorText ignored{};
    for (std::size_t rank = 0; rank < ended.size(); ++rank)
        module_->abort_communicator(ranks_[rank]->card().ordinal(), ended[rank], &ignored);
}

// Makes sums possible again after abort(). If new communicators cannot be made, the next sum throws the reason.
void NcclSums::restart() {
    const std::scoped_lock call(call_);
    meeting_.restart();
    for (const auto& rank : ranks_) rank->begin_anew();
    n_arrivals_ = 0;
    enqueued_ = 0;
    failed_ = -1;
    {
        const std::scoped_lock lock(mutex_);
        if (!communicators_.empty()) return;
    }
    try {
        make_communicators();
    } catch (const CudaError& error) {
        const std::scoped_lock lock(mutex_);
        none_ = error.what();
    }
}

}  // namespace slipstream
