#include "tests/cuda_emulation/fiber.h"

#include <sys/mman.h>

#include <new>

#ifndef __x86_64__
#include <ucontext.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#define SLIPSTREAM_EMULATION_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SLIPSTREAM_EMULATION_ASAN 1
#endif
#endif
#ifdef SLIPSTREAM_EMULATION_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#include "kernels/base/check.h"

#ifdef __x86_64__
// Saves what a call must keep, swaps stack pointers, restores. rdi: where to put the old one, rsi: the new one.
extern "C" void slipstream_fiber_switch(void** save, void* load);
asm(R"(
.text
.globl slipstream_fiber_switch
.type slipstream_fiber_switch,@function
slipstream_fiber_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size slipstream_fiber_switch, .-slipstream_fiber_switch
)");
#endif

namespace slipstream::emulation {

struct FiberContext {
#ifdef __x86_64__
    void* stack_pointer = nullptr;
#else
    ucontext_t place{};
#endif
    void* stack = nullptr;  // kFiberStackBytes; null: the thread's own
    void (*entry)() = nullptr;
    void* fake_stack = nullptr;  // AddressSanitizer's
    const void* bottom = nullptr;
    std::size_t bytes = 0;
};

namespace {

constinit thread_local FiberContext* arriving = nullptr;  // who is switched to
constinit thread_local FiberContext* departed = nullptr;  // who was left

void report_switch([[maybe_unused]] FiberContext& from, [[maybe_unused]] const FiberContext& to,
                   [[maybe_unused]] Fiber::Leave leave) {
#ifdef SLIPSTREAM_EMULATION_ASAN
    __sanitizer_start_switch_fiber(leave == Fiber::Leave::ForGood ? nullptr : &from.fake_stack, to.bottom, to.bytes);
#endif
}

/// Clears the marks that dropped frames have left. AddressSanitizer of gcc 12 clears them neither when memory is
/// unmapped nor when the same addresses are mapped again.
void unpoison([[maybe_unused]] const FiberContext& context) {
#ifdef SLIPSTREAM_EMULATION_ASAN
    __asan_unpoison_memory_region(context.stack, kFiberStackBytes);
#endif
}

/// On the stack that was switched to: the bounds of the one left are learnt, which the thread's own needs once.
void report_switched([[maybe_unused]] void* fake_stack) {
#ifdef SLIPSTREAM_EMULATION_ASAN
    const void* bottom = nullptr;
    std::size_t bytes = 0;
    __sanitizer_finish_switch_fiber(fake_stack, &bottom, &bytes);
    if (departed->stack == nullptr) {
        departed->bottom = bottom;
        departed->bytes = bytes;
    }
#endif
}

}  // namespace

Fiber::Fiber() : context_(std::make_unique<FiberContext>()) {}

Fiber::~Fiber() {
    if (context_->stack == nullptr) return;
    unpoison(*context_);
    munmap(context_->stack, kFiberStackBytes);
}

void Fiber::run_entry() {
    report_switched(nullptr);
    arriving->entry();
    CHECK(false, "a fiber's entry returned");
}

void Fiber::start_at(void (*entry)()) {
    FiberContext& c = *context_;
    if (c.stack == nullptr) {
        c.stack =
            mmap(nullptr, kFiberStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (c.stack == MAP_FAILED) throw std::bad_alloc();
        c.bottom = c.stack;
        c.bytes = kFiberStackBytes;
    }
    c.entry = entry;
    c.fake_stack = nullptr;
    unpoison(c);
#ifdef __x86_64__
    auto** top = reinterpret_cast<void**>(static_cast<char*>(c.stack) + kFiberStackBytes);
    *--top = nullptr;  // keeps the stack aligned as after a call
    *--top = reinterpret_cast<void*>(&Fiber::run_entry);
    for (int saved = 0; saved < 6; ++saved) *--top = nullptr;
    c.stack_pointer = top;
#else
    getcontext(&c.place);
    c.place.uc_stack.ss_sp = c.stack;
    c.place.uc_stack.ss_size = kFiberStackBytes;
    c.place.uc_link = nullptr;
    makecontext(&c.place, &Fiber::run_entry, 0);
#endif
}

void Fiber::switch_to(Fiber& from, Fiber& to, Leave leave) {
    FiberContext& me = *from.context_;
    FiberContext& next = *to.context_;
    departed = &me;
    arriving = &next;
    report_switch(me, next, leave);
#ifdef __x86_64__
    slipstream_fiber_switch(&me.stack_pointer, next.stack_pointer);
#else
    swapcontext(&me.place, &next.place);
#endif
    report_switched(me.fake_stack);
}

}  // namespace slipstream::emulation
