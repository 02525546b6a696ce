#include "tests/cuda_emulation/emulated_machine.h"

#include <signal.h>
#include <unistd.h>

#include "kernels/base/check.h"
#include "tests/cuda_emulation/machine_state.h"

namespace slipstream::emulation {

Machine::State* machine = nullptr;

namespace {

struct sigaction before;  // of SIGSEGV

// An access to closed memory of a card says so; whatever else comes goes to who was there before.
void on_fault(int signal, siginfo_t* info, void*) {
    if (machine != nullptr && machine->card_of(info->si_addr) != nullptr) {
        constexpr char kText[] =
            "the host touches memory of a GPU: only work on its streams may (kernels/device.h, shares_host_memory)\n";
        static_cast<void>(!::write(STDERR_FILENO, kText, sizeof(kText) - 1));
    }
    ::sigaction(signal, &before, nullptr);  // the access is made once more, and ends as it would have
}

}  // namespace

Machine::Machine(const MachineOptions& options) : state_(std::make_unique<State>(options)) {
    CHECK(machine == nullptr, "one machine at a time");
    machine = state_.get();
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    CHECK(::sigaction(SIGSEGV, &action, &before) == 0);
}

Machine::~Machine() {
    CHECK(state_->streams.empty() && state_->n_events == 0 && state_->n_graphs == 0 && state_->locked.empty() &&
              allocated_bytes() == 0 && state_->n_blas == 0 && state_->n_communicators == 0,
          "{} streams, {} events, {} graphs, {} host ranges, {} bytes, {} of cuBLASLt and {} of NCCL outlive their "
          "machine",
          state_->streams.size(), state_->n_events, state_->n_graphs, state_->locked.size(), allocated_bytes(),
          state_->n_blas, state_->n_communicators);
    ::sigaction(SIGSEGV, &before, nullptr);
    machine = nullptr;
}

std::int64_t Machine::n_done() const {
    return state_->n_done;
}
std::int64_t Machine::n_waiting() const {
    std::int64_t n = 0;
    for (const auto& stream : state_->streams) n += std::ssize(stream->tasks);
    return n;
}
std::int64_t Machine::n_pageable_copies() const {
    return state_->n_pageable_copies;
}
std::int64_t Machine::n_kernels() const {
    return state_->n_kernels;
}
std::size_t Machine::locked_bytes() const {
    return state_->locked_bytes;
}
std::int32_t Machine::locking_card() const {
    return state_->locking_card;
}
std::int64_t Machine::n_waits() const {
    return state_->n_waits;
}
std::int64_t Machine::n_copies() const {
    return state_->n_copies;
}
std::int64_t Machine::n_graph_launches() const {
    return state_->n_graph_launches;
}
std::int64_t Machine::n_graphs() const {
    return state_->n_graphs;
}
void Machine::refuse_graphs(bool refuses) {
    state_->refuses_graphs = refuses;
}
std::int64_t Machine::n_prompt_products() const {
    return state_->n_prompt_products;
}
std::size_t Machine::allocated_bytes() const {
    std::size_t bytes = 0;
    for (const auto& card : state_->cards) bytes += card->allocated_bytes();
    return bytes;
}
void Machine::fail_in(std::int64_t n) {
    const std::scoped_lock guard(state_->calls_mutex);
    state_->fail_in = n;
    state_->failing_kinds = State::bit(Call::Copy) | State::bit(Call::Kernel);
}
void Machine::fail_in(std::int64_t n, Call kind) {
    const std::scoped_lock guard(state_->calls_mutex);
    state_->fail_in = n;
    state_->failing_kinds = State::bit(kind);
}
std::int64_t Machine::n_calls(Call kind) const {
    return state_->n_calls[static_cast<std::size_t>(kind)];
}
std::int64_t Machine::n_sums() const {
    return state_->n_sums;
}
std::int64_t Machine::n_communicators() const {
    return state_->n_communicators;
}
void Machine::fail_sum_of(std::int32_t rank) {
    state_->failing_sum = rank;
}
void Machine::refuse_communicators(bool refuses) {
    state_->refuses_communicators = refuses;
}

Machine::Window::Window() {
    machine->open();
}
Machine::Window::~Window() {
    machine->close();
}

}  // namespace slipstream::emulation
