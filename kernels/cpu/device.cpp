// CpuDevice: which form the machine runs, and host memory under a budget.
#include <sys/mman.h>
#include <time.h>

#include <cstdlib>
#include <new>

#include <fmt/format.h>

#include "kernels/base/check.h"
#include "kernels/base/checked_math.h"
#include "kernels/base/error.h"
#include "kernels/cpu/op_table.h"
#include "kernels/cpu/stream.h"
#include "kernels/cpu_device.h"

namespace slipstream {

namespace {

constexpr std::size_t kAlignBytes = 64;          // a cache line, and an AVX-512 register
constexpr std::size_t kMapFromBytes = 1U << 20;  // from here on whole mappings: zero pages until touched
constexpr std::size_t kHugePageBytes = 2U << 20;

// Where memory is fragmented the kernel tidies up before it hands out a huge page: 3 s a GB were measured on a busy
// machine, against 0.4 with small pages. Weights are touched whole anyway, so the first of them tell.
constexpr std::size_t kProbeBytes = 16 * kHugePageBytes;
constexpr double kMaxProbeSeconds = 16 * 0.4e-3;  // twice what clearing 2 MiB takes: 0.2 s a GB

// Seconds of this thread's CPU time, the system's share included, until every page of [data, data + bytes) is there.
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

void release_heap(std::byte* data, std::size_t) noexcept {
    std::free(data);
}
void release_mapping(std::byte* data, std::size_t bytes) noexcept {
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
    }
    return "?";
}

CpuForm best_cpu_form() {
#if defined(__x86_64__)
    // Every CPU with AVX2 has F16C; clang 14 cannot ask for it.
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        return __builtin_cpu_supports("avx512vnni") ? CpuForm::Avx512Vnni : CpuForm::Avx512;
    if (avx2) return CpuForm::Avx2;
#endif
    return CpuForm::Scalar;
}

CpuDevice::CpuDevice(const CpuDeviceOptions& options)
    : form_(options.form.value_or(best_cpu_form())),
      budget_("cpu", options.memory_bytes),
      pool_(options.n_threads),
      ops_(&cpu::op_table(form_)) {
    CHECK(form_ <= best_cpu_form(), "form {} on a machine with {}", cpu_form_name(form_),
          cpu_form_name(best_cpu_form()));
}

Buffer CpuDevice::allocate(std::size_t bytes, MemoryTag tag, std::string_view what) {
    Reservation reservation = budget_.reserve(bytes, tag, what);
    void* data = nullptr;
    const bool map = bytes >= kMapFromBytes;
    if (map) {
        data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (data == MAP_FAILED) data = nullptr;
        // Advice: without huge pages everything works, a little slower.
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
        throw OutOfBudget(
            fmt::format("the system has no {} bytes for {}; close other programs, or ask for less", bytes, what));
    return {static_cast<std::byte*>(data), bytes, std::move(reservation), map ? release_mapping : release_heap};
}

void CpuDevice::reserve_thread_scratch(std::size_t bytes) {
    if (bytes <= scratch_bytes_) return;
    scratch_ = Buffer();
    scratch_bytes_ = 0;
    bytes = round_up(bytes, kAlignBytes);
    scratch_ = allocate(bytes * static_cast<std::size_t>(pool_.n_threads()), MemoryTag::Workspace, "kernel scratch");
    scratch_bytes_ = bytes;
}

void CpuDevice::reserve_shared_scratch(std::size_t bytes) {
    if (bytes <= shared_scratch_.size_bytes()) return;
    shared_scratch_ = Buffer();
    shared_scratch_ = allocate(bytes, MemoryTag::Workspace, "kernel scratch");
}

std::unique_ptr<Stream> CpuDevice::make_stream(StreamKind kind) {
    return cpu::make_stream(kind);
}
std::unique_ptr<Event> CpuDevice::make_event() {
    return cpu::make_event();
}

}  // namespace slipstream
