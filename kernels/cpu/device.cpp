// CpuDevice: which kernel variant the machine runs, and host memory under a budget.
#include <sys/mman.h>
#include <time.h>

#include <cmath>
#include <cstdlib>
#include <new>

#include <fmt/format.h>

#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"
#include "kernels/base/error.h"
#include "kernels/cpu/event.h"
#include "kernels/cpu/link_clock.h"
#include "kernels/cpu/op_table.h"
#include "kernels/cpu/stream.h"
#include "kernels/cpu_device.h"
#include "kernels/cpu_faults.h"

namespace slipstream {

namespace {

constexpr std::size_t kAlignBytes = 64;  // bytes of a cache line, and of an AVX-512 register
// Allocations of at least this many bytes are mappings, without memory until touched.
constexpr std::size_t kMapFromBytes = 1U << 20;
constexpr std::size_t kHugePageBytes = 2U << 20;

// Bytes at the start of an allocation of weights that are touched to measure how fast the system gives huge pages: if
// memory is fragmented it compacts memory first (3 s per GB were measured on a busy machine, 0.4 s with small pages).
// The probe costs nothing more, since all weights are touched later in any case.
constexpr std::size_t kProbeBytes = 16 * kHugePageBytes;
// Most CPU time of the probe, in seconds; if it takes longer, the rest of the weights gets small pages. For each huge
// page it allows twice the time to clear 2 MiB: 0.2 s per GB.
constexpr double kMaxProbeSeconds = 16 * 0.4e-3;

// Touches every page of [data, data + bytes), so that the system provides it. Returns the CPU time in seconds that this
// took the calling thread, time inside the system included.
double touch_seconds(std::byte* data, std::size_t bytes) {
    constexpr std::size_t kPageBytes = 4096;
    const auto now = [] {
        timespec time{};
        ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
        return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    };
    const double began = now();
    for (std::size_t at = 0; at < bytes; at += kPageBytes) {
        volatile std::byte* page = data + at;
        *page = std::byte{0};
    }
    return now() - began;
}

void release_heap(void*, std::byte* data, std::size_t) noexcept {
    std::free(data);
}
void release_mapping(void*, std::byte* data, std::size_t bytes) noexcept {
    ::munmap(data, bytes);
}

}  // namespace

std::string_view cpu_form_name(CpuForm form) {
    switch (form) {
        case CpuForm::Scalar:
            return "scalar";
        case CpuForm::Avx2:
            return "avx2";
        case CpuForm::Avx512:
            return "avx512";
        case CpuForm::Avx512Vnni:
            return "avx512_vnni";
        case CpuForm::Avx512Bf16:
            return "avx512_bf16";
    }
    return "?";
}

bool cpu_has_form(CpuForm form) {
    if (form == CpuForm::Scalar) return true;
#if defined(__x86_64__)
    // F16C is not tested: clang 14 cannot ask for it, and every CPU with AVX2 has it.
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (form == CpuForm::Avx2) return avx2;
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    if (form == CpuForm::Avx512) return avx512;
    const bool vnni = avx512 && __builtin_cpu_supports("avx512vnni");
    return form == CpuForm::Avx512Vnni ? vnni : vnni && __builtin_cpu_supports("avx512bf16");
#else
    return false;
#endif
}

CpuForm best_cpu_form() {
    CpuForm best = CpuForm::Scalar;
    for (const CpuForm form : kCpuForms)
        if (cpu_has_form(form)) best = form;
#if defined(__x86_64__)
    if (best == CpuForm::Avx512Bf16 && !__builtin_cpu_is("amd")) best = CpuForm::Avx512Vnni;
#endif
    return best;
}

CpuDevice::CpuDevice(const CpuDeviceOptions& options)
    : name_(options.name),
      form_(options.form.value_or(best_cpu_form())),
      budget_(options.name, options.memory_bytes),
      pool_(options.n_threads),
      ops_(&cpu::op_table(form_)),
      faults_(options.faults),
      link_in_(std::make_unique<cpu::LinkClock>(options.link_bytes_per_second)),
      link_out_(std::make_unique<cpu::LinkClock>(options.link_bytes_per_second)) {
    CHECK(cpu_has_form(form_), "kernel variant {} on a machine without its instructions", cpu_form_name(form_));
    CHECK(options.link_bytes_per_second >= 0.0 && std::isfinite(options.link_bytes_per_second), "a link of {} bytes/s",
          options.link_bytes_per_second);
}

CpuDevice::~CpuDevice() = default;

Buffer CpuDevice::allocate(std::size_t bytes, MemoryTag tag, std::string_view what) {
    Reservation reservation = budget_.reserve(bytes, tag, what);
    void* data = nullptr;
    const bool map = bytes >= kMapFromBytes;
    const bool refused = faults_ != nullptr && fault_is_due(faults_->allocations_until_failure);
    if (refused) {
        // A fault of a test: data stays null, as if the system had no memory.
    } else if (map) {
        data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (data == MAP_FAILED) data = nullptr;
        // The result is ignored, since this is only advice: without huge pages everything works, a little slower.
        if (data != nullptr && bytes >= 2 * kHugePageBytes && huge_pages_come_quickly_)
            ::madvise(data, bytes, MADV_HUGEPAGE);
        if (data != nullptr && tag == MemoryTag::Weights && bytes > kProbeBytes && huge_pages_come_quickly_) {
            huge_pages_come_quickly_ = touch_seconds(static_cast<std::byte*>(data), kProbeBytes) <= kMaxProbeSeconds;
            if (!huge_pages_come_quickly_)
                ::madvise(static_cast<std::byte*>(data) + kProbeBytes, bytes - kProbeBytes, MADV_NOHUGEPAGE);
        }
    } else {
        data = std::aligned_alloc(kAlignBytes, round_up(bytes == 0 ? 1 : bytes, kAlignBytes));
    }
    if (data == nullptr)
        throw OutOfBudget(fmt::format("{}: the system has no {} bytes for {}; close other programs, or ask for less",
                                      name_, bytes, what));
    return {static_cast<std::byte*>(data), bytes, std::move(reservation), map ? release_mapping : release_heap};
}

std::size_t CpuDevice::scratch_bytes(const CpuScratch& scratch) const {
    return round_up(scratch.thread_bytes, kAlignBytes) * static_cast<std::size_t>(pool_.n_threads()) +
           scratch.shared_bytes;
}

void CpuDevice::reserve_scratch(const CpuScratch& scratch) {
    if (scratch.thread_bytes > thread_scratch_bytes_) {
        thread_scratch_ = Buffer();  // freed first, so that the budget need not hold both
        thread_scratch_bytes_ = 0;
        thread_scratch_ =
            allocate(scratch_bytes({.thread_bytes = scratch.thread_bytes}), MemoryTag::Workspace, "kernel scratch");
        thread_scratch_bytes_ = round_up(scratch.thread_bytes, kAlignBytes);
    }
    if (scratch.shared_bytes > shared_scratch_.size_bytes()) {
        shared_scratch_ = Buffer();
        shared_scratch_ = allocate(scratch.shared_bytes, MemoryTag::Workspace, "kernel scratch");
    }
}

std::unique_ptr<Stream> CpuDevice::make_stream(StreamKind kind) {
    switch (kind) {
        case StreamKind::CopyIn:
            return cpu::make_copy_stream({*link_in_, faults_, fmt::format("{}, copies in", name_)});
        case StreamKind::CopyOut:
            return cpu::make_copy_stream({*link_out_, faults_, fmt::format("{}, copies out", name_)});
        case StreamKind::Compute:
            break;
    }
    return cpu::make_compute_stream(faults_, name_);
}
const OpTable& CpuDevice::ops() const {
    if (faults_ != nullptr && fault_is_due(faults_->ops_until_failure))
        throw IoError(
            fmt::format("{}: a kernel failed, as was asked of this device; take the fault out of its options", name_));
    return *ops_;
}

std::unique_ptr<Event> CpuDevice::make_event() {
    return std::make_unique<cpu::CpuEvent>();
}

LinkFigures CpuDevice::link_in() const {
    return link_in_->figures();
}
LinkFigures CpuDevice::link_out() const {
    return link_out_->figures();
}

}  // namespace slipstream
