// What ThreadSanitizer is told about kernels. Their loops are built without its checks (kernels/CMakeLists.txt), with
// which they take two to nine times as long (tests/NOTES.md).
#pragma once

#include <cstddef>

#if defined(SLIPSTREAM_THREAD_SANITIZER)
extern "C" void __tsan_read1(void* byte);  // of its library: this thread reads the byte
#endif

namespace slipstream {

/// Tells ThreadSanitizer that this thread reads `bytes` bytes at `data` here, by one byte of each cache line. Kernels
/// call it where they read memory that other threads copy to: packed weights, committed KV. Does nothing in other
/// builds.
inline void tell_kernel_reads([[maybe_unused]] const std::byte* data, [[maybe_unused]] std::size_t bytes) {
#if defined(SLIPSTREAM_THREAD_SANITIZER)
    for (std::size_t at = 0; at < bytes; at += 64) __tsan_read1(const_cast<std::byte*>(data) + at);
#endif
}

}  // namespace slipstream
