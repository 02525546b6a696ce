// Stacks of fibers under AddressSanitizer: what it marks there goes with the stack.
#include "fiber.h"

#include <cstdint>
#include <thread>

#include <gtest/gtest.h>

#include "tests/support/sanitizers.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace slipstream::emulation {
namespace {

Fiber* home = nullptr;
Fiber* running = nullptr;
char* in_stack = nullptr;  // an array of the frame that was left for good

[[gnu::noinline]] void leave_for_good() {
    char array[72];
    for (volatile char& each : array) each = 1;
    in_stack = array;
    Fiber::switch_to(*running, *home, Fiber::Leave::ForGood);
}

TEST(Fiber, AStackThatIsGoneLeavesNoMarks) {
    if (!kAddressSanitizer) GTEST_SKIP() << "only AddressSanitizer marks memory";
    std::thread([] {
        Fiber own;
        Fiber other;
        home = &own;
        running = &other;
        other.start_at(&leave_for_good);
        Fiber::switch_to(own, other, Fiber::Leave::ComesBack);
    }).join();
#ifdef __SANITIZE_ADDRESS__
    EXPECT_EQ(__asan_region_is_poisoned(in_stack - 256, 512), nullptr);
#endif
}

}  // namespace
}  // namespace slipstream::emulation
