#include "kernels/cuda/host/cuda_device.h"

#include <algorithm>

#include <fmt/format.h>

#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"
#include "kernels/base/error.h"
#include "kernels/cuda/attention/attention_planner.h"
#include "kernels/cuda/host/cuda_module.h"
#include "kernels/cuda/host/cuda_stream.h"
#include "kernels/cuda/host/link_pace.h"
#include "kernels/cuda/host/memory_regions.h"
#include "kernels/cuda/host/staging.h"
#include "kernels/cuda/matmul/matmul_plan.h"
#include "kernels/cuda/op_table.h"

namespace slipstream {

namespace {

constexpr std::size_t kScratchAlignBytes = 256;

cuda::DeviceProperties properties_of(const cuda::Module& module, std::int32_t ordinal) {
    cuda::DeviceProperties properties{};
    cuda::ErrorText error{};
    if (module.device_properties(ordinal, &properties, &error) != cuda::Status::Ok)
        throw CudaError(fmt::format("cuda:{}: {}", ordinal, error.text));
    if (properties.sm < cuda::kLeastSm)
        throw CudaError(
            fmt::format("cuda:{}: the GPU ({}, sm_{}) is too old: sm_{} and newer are served; use "
                        "--devices cpu",
                        ordinal, properties.name, properties.sm, cuda::kLeastSm));
    return properties;
}

// Returns the bytes of device memory that are free now, less kCardMarginBytes; 0 if fewer are free.
std::size_t free_bytes(const cuda::Module& module, std::int32_t ordinal) {
    std::uint64_t free = 0;
    std::uint64_t total = 0;
    cuda::ErrorText error{};
    if (module.memory_info(ordinal, &free, &total, &error) != cuda::Status::Ok)
        throw CudaError(fmt::format("cuda:{}: {}", ordinal, error.text));
    return static_cast<std::size_t>(free) - std::min<std::size_t>(static_cast<std::size_t>(free), kCardMarginBytes);
}

void release_host(void* owner, std::byte* data, std::size_t) noexcept {
    const auto* device = static_cast<const CudaDevice*>(owner);
    cuda::ErrorText ignored{};
    device->table().free_host(device->ordinal(), data, &ignored);
}

// Opens cuBLASLt and sets *blas. Returns its version; 0 if there is none, with the reason in *why_not and null in
// *blas.
std::int64_t open_blas(const cuda::Module& module, std::int32_t ordinal, void** blas, std::string* why_not) {
    std::int64_t version = 0;
    cuda::ErrorText error{};
    *blas = nullptr;
    if (module.blas_version(&version, &error) != cuda::Status::Ok) {
        *why_not = fmt::format("is not there ({})", error.text);
        return 0;
    }
    if (module.make_blas(ordinal, blas, &error) != cuda::Status::Ok) {
        *blas = nullptr;
        *why_not = fmt::format("does not open ({})", error.text);
        return 0;
    }
    return version;
}

std::string form_text(const cuda::DeviceProperties& card, std::int64_t blas_version) {
    if (blas_version == 0) return fmt::format("sm_{}", card.sm);
    return fmt::format("sm_{}x{}+cublaslt-{}", card.sm, card.n_multiprocessors, blas_version);
}

void check_kernels_run(const cuda::Module& module, std::int32_t ordinal, const cuda::DeviceProperties& card) {
    cuda::ErrorText error{};
    const cuda::Status status = module.try_kernel(ordinal, &error);
    if (status == cuda::Status::Ok) return;
    if (status == cuda::Status::NoImage)
        throw CudaError(fmt::format("cuda:{}: {}", ordinal, no_code_line(module, card)));
    throw CudaError(fmt::format("cuda:{}: the first kernel does not run: {}", ordinal, error.text));
}

}  // namespace

std::string card_form(const cuda::Module& module, std::int32_t ordinal, const cuda::DeviceProperties& card) {
    void* blas = nullptr;
    std::string why_not;
    const std::int64_t version = open_blas(module, ordinal, &blas, &why_not);
    cuda::ErrorText ignored{};
    if (blas != nullptr) module.free_blas(ordinal, blas, &ignored);
    return form_text(card, version);
}

CudaDevice::CudaDevice(const cuda::Module& module, const CudaDeviceOptions& options)
    : module_(&module),
      ordinal_(options.ordinal),
      name_(fmt::format("cuda:{}", options.ordinal)),
      properties_(std::make_unique<cuda::DeviceProperties>(properties_of(module, options.ordinal))),
      budget_(name_, options.memory_bytes ? *options.memory_bytes : free_bytes(module, options.ordinal)),
      on_announcement_(options.on_announcement),
      regions_(std::make_unique<cuda::MemoryRegions>(module, options.ordinal,
                                                     options.allocation_bytes.value_or(properties_->allocation_bytes))),
      pool_(options.n_threads),
      weights_by_registers_(options.weights_by_registers),
      link_in_(std::make_unique<cuda::LinkMeter>(*this)),
      link_out_(std::make_unique<cuda::LinkMeter>(*this)),
      turn_ended_(make_event()),
      staging_(std::make_unique<cuda::Staging>(*this)),
      planner_(std::make_unique<cuda::AttentionPlanner>()) {
    check_kernels_run(module, ordinal_, *properties_);
    std::string why_not;
    form_ = form_text(*properties_, open_blas(module, ordinal_, &blas_, &why_not));
    if (blas_ == nullptr) no_blas_ = fmt::format("cuBLASLt {}: prompts run on slipstream's own kernels", why_not);
    if (options.link_bytes_per_second > 0.0) {
        pace_in_ = std::make_unique<cuda::LinkPace>(*this, options.link_bytes_per_second);
        pace_out_ = std::make_unique<cuda::LinkPace>(*this, options.link_bytes_per_second);
    }
}

CudaDevice::~CudaDevice() {
    cuda::ErrorText ignored{};
    if (blas_ != nullptr) module_->free_blas(ordinal_, blas_, &ignored);
}

void CudaDevice::check(cuda::Status status, const cuda::ErrorText& error, std::string_view what) const {
    if (status == cuda::Status::Ok) return;
    if (status == cuda::Status::OutOfMemory)
        throw OutOfBudget(
            fmt::format("{}: no memory is left for {} ({}), though the budget has some: close other "
                        "programs that use the GPU, or lower --device-memory",
                        name_, what, error.text));
    throw CudaError(fmt::format("{}: {}: {}", name_, what, error.text));
}

Buffer CudaDevice::allocate(std::size_t bytes, MemoryTag tag, std::string_view what) {
    Reservation reservation = budget_.reserve(bytes, tag, what);
    std::byte* data = nullptr;
    cuda::ErrorText error{};
    const std::size_t expected = budget_.limit_bytes() - std::min(budget_.limit_bytes(), budget_.used_bytes()) + bytes;
    const cuda::Status status = regions_->allocate(bytes, expected, &data, &error);
    if (status == cuda::Status::OutOfMemory)
        throw OutOfBudget(
            fmt::format("{}: the GPU has no {} bytes left for {} ({}), though the budget has: {} of {} bytes are used, "
                        "for which the driver gave {}; close other programs that use the GPU, or lower "
                        "--device-memory",
                        name_, bytes, what, error.text, budget_.used_bytes() - bytes, budget_.limit_bytes(),
                        regions_->figures().taken_bytes));
    check(status, error, fmt::format("{} bytes for {}", bytes, what));
    return {data, bytes, std::move(reservation), release, this};
}

void CudaDevice::release(void* owner, std::byte* data, std::size_t) noexcept {
    static_cast<CudaDevice*>(owner)->regions_->free(data);
}

cuda::RegionFigures CudaDevice::memory() const {
    return regions_->figures();
}

Buffer CudaDevice::allocate_host(std::size_t bytes, MemoryTag /*tag*/, std::string_view what) {
    void* data = nullptr;
    cuda::ErrorText error{};
    const cuda::Status status = module_->allocate_host(ordinal_, std::max<std::size_t>(bytes, 1), &data, &error);
    if (status == cuda::Status::OutOfMemory)
        throw OutOfBudget(
            fmt::format("{}: cannot lock {} bytes of host memory for {} ({}); close other "
                        "programs, or raise the limit of locked memory",
                        name_, bytes, what, error.text));
    check(status, error, fmt::format("{} bytes of host memory for {}", bytes, what));
    return {static_cast<std::byte*>(data), bytes, Reservation(), release_host, this};
}

std::string CudaDevice::register_host(std::byte* data, std::size_t bytes) {
    cuda::ErrorText error{};
    if (module_->register_host(ordinal_, data, bytes, &error) == cuda::Status::Ok) return {};
    return error.text;
}

void CudaDevice::unregister_host(std::byte* data) noexcept {
    cuda::ErrorText ignored{};
    module_->unregister_host(ordinal_, data, &ignored);
}

std::unique_ptr<Stream> CudaDevice::make_stream(StreamKind kind) {
    return std::make_unique<cuda::CudaStream>(*this, kind);
}

std::unique_ptr<Event> CudaDevice::make_event() {
    return std::make_unique<cuda::CudaEvent>(*this);
}

LinkFigures CudaDevice::link_in() const {
    return link_in_->figures();
}
LinkFigures CudaDevice::link_out() const {
    return link_out_->figures();
}

const OpTable& CudaDevice::ops() const {
    return cuda::op_table();
}

void CudaDevice::begin_turn(cuda::CudaStream& stream) {
    if (turn_ == &stream) return;
    if (turn_ != nullptr) stream.wait(*turn_ended_, turn_->record(*turn_ended_));
    turn_ = &stream;
}

void CudaDevice::end_turn(const cuda::CudaStream& stream) noexcept {
    if (turn_ == &stream) turn_ = nullptr;
}

std::size_t CudaDevice::scratch_size(std::size_t bytes) {
    return round_up(bytes, kScratchAlignBytes);
}

void CudaDevice::reserve_staging(std::size_t op_bytes) {
    staging_->reserve(turn_, op_bytes);
}

const cuda::PreparedActivations* CudaDevice::find_prepared(const cuda::PreparedActivations& wanted) const {
    const bool found =
        prepared_.x != nullptr && prepared_.x == wanted.x && prepared_.x_stride == wanted.x_stride &&
        prepared_.k == wanted.k && prepared_.n_tokens == wanted.n_tokens &&
        cuda::serves(static_cast<cuda::ScratchKind>(prepared_.kind), static_cast<cuda::ScratchKind>(wanted.kind)) &&
        prepared_.scratch == wanted.scratch && prepared_.change + 1 == wanted.change;
    return found ? &prepared_ : nullptr;
}

void CudaDevice::count_copy(const void* data, std::size_t bytes) {
    if (prepared_.x == nullptr || prepared_.n_tokens == 0) return;
    const auto rows = reinterpret_cast<std::uintptr_t>(prepared_.x);
    const auto rows_bytes = ((prepared_.n_tokens - 1) * prepared_.x_stride + prepared_.k) * sizeof(float);
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    if (begin < rows + rows_bytes && rows < begin + bytes) keep_prepared({});
}

void CudaDevice::reserve_scratch(std::size_t bytes) {
    bytes = scratch_size(bytes);
    if (bytes <= scratch_.size_bytes()) return;
    if (turn_ != nullptr && turn_->capturing() != nullptr)
        throw OutOfBudget(
            fmt::format("{}: an op in a graph needs {} bytes of scratch, {} were reserved before the capture", name_,
                        bytes, scratch_.size_bytes()));
    if (turn_ != nullptr) turn_->synchronize();  // the stream may still use the old region
    count_workspace_move();
    keep_prepared({});
    scratch_ = Buffer();  // freed first, so that the budget need not hold both
    scratch_ = allocate(bytes, MemoryTag::Workspace, "kernel scratch");
}

std::byte* CudaDevice::scratch(std::size_t bytes) {
    reserve_scratch(bytes);
    return scratch_.data();
}

}  // namespace slipstream
