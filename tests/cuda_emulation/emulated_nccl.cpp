#include "emulated_nccl.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "emulated_machine.h"
#include "machine_state.h"

namespace slipstream::emulation {

namespace {

using cuda::ErrorText;
using cuda::RankPart;
using cuda::Status;

/// One of `n_ranks`; its kernels look at `aborted` while they wait.
struct Communicator {
    std::int32_t rank = 0;
    std::int32_t n_ranks = 0;
    std::int32_t device = 0;
    std::shared_ptr<bool> aborted = std::make_shared<bool>(false);
};

Status fail(ErrorText* error, const std::string& text) {
    std::snprintf(error->text, sizeof(error->text), "%s", text.c_str());
    return Status::Failed;
}

std::vector<float> sum_of(const std::vector<RankPart>& parts, std::size_t n_floats) {
    std::vector<float> sum(n_floats, 0.0F);
    const std::size_t first = parts.size() == 1 ? 0 : 1 + n_floats % (parts.size() - 1);
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const float* part = parts[(first + i) % parts.size()].from;
        for (std::size_t at = 0; at < n_floats; ++at) sum[at] = i == 0 ? part[at] : sum[at] + part[at];
    }
    return sum;
}

std::vector<float> all_of(const std::vector<RankPart>& parts, std::size_t n_floats) {
    std::vector<float> all;
    for (const RankPart& part : parts) all.insert(all.end(), part.from, part.from + n_floats);
    return all;
}

bool is_on_card(const void* data, std::size_t bytes, std::int32_t device) {
    const CardMemory* card = machine->card_of(data);
    return card == machine->cards[device].get() && card->is_allocated(data, bytes);
}

using Combine = std::vector<float> (*)(const std::vector<RankPart>& parts, std::size_t n_floats);

Status enqueue_for_all(std::span<const RankPart> given, std::size_t n_floats, std::size_t n_out, Combine combine,
                       std::int32_t* failed, ErrorText* error) {
    const std::scoped_lock guard(machine->calls_mutex);
    if (machine->fails(Call::Sum)) return fail(error, "an emulated call: an injected fault");
    const std::vector<RankPart> parts(given.begin(), given.end());
    auto meeting = std::make_shared<Meeting>();
    for (*failed = 0; *failed < std::ssize(parts); ++*failed) {
        const RankPart& part = parts[*failed];
        const auto& own = *static_cast<const Communicator*>(part.communicator);
        auto& stream = *static_cast<Stream*>(part.place.stream);
        if (own.rank != *failed || own.n_ranks != std::ssize(parts) || own.device != part.place.device ||
            *own.aborted || stream.capture != nullptr || !is_on_card(part.from, n_floats * 4, own.device) ||
            !is_on_card(part.to, n_out * 4, own.device))
            return fail(error, "an emulated call: invalid argument");
        if (machine->failing_sum == *failed) {
            machine->failing_sum = -1;
            return fail(error, "an emulated call: unhandled cuda error");
        }
        meeting->sides.push_back({.stream = &stream, .aborted = own.aborted, .to = part.to, .n_floats = n_out});
    }
    *failed = -1;
    meeting->work = [parts, n_floats, combine] {
        const std::vector<float> out = combine(parts, n_floats);
        for (const RankPart& part : parts) std::memcpy(part.to, out.data(), out.size() * sizeof(float));
    };
    for (const Meeting::Side& side : meeting->sides) side.stream->tasks.push_back({.meeting = meeting});
    ++machine->n_sums;
    machine->go_on();
    return Status::Ok;
}

}  // namespace

Status can_access_peer(std::int32_t device, std::int32_t peer, bool* can, ErrorText*) {
    *can = device != peer && machine->options.has_peers;
    return Status::Ok;
}

Status nccl_version(std::int64_t* version, ErrorText* error) {
    *version = 22809;
    if (machine->options.nccl == Nccl::Serves) return Status::Ok;
    fail(error, machine->options.nccl == Nccl::None ? "the machine has none" : "libnccl.so.2: file too short");
    return machine->options.nccl == Nccl::None ? Status::NotInstalled : Status::Failed;
}

Status make_communicators(std::int32_t n_ranks, const std::int32_t* devices, void** communicators, ErrorText* error) {
    const std::scoped_lock guard(machine->calls_mutex);
    if (machine->refuses_communicators || machine->fails(Call::Sum))
        return fail(error, "an emulated call: unhandled system error");
    for (std::int32_t rank = 0; rank < n_ranks; ++rank)
        if (std::count(devices, devices + n_ranks, devices[rank]) > 1)
            return fail(error, "an emulated call: Duplicate GPU detected");
    for (std::int32_t rank = 0; rank < n_ranks; ++rank)
        communicators[rank] = new Communicator{.rank = rank, .n_ranks = n_ranks, .device = devices[rank]};
    machine->n_communicators += n_ranks;
    return Status::Ok;
}

Status free_communicator(std::int32_t, void* communicator, ErrorText*) {
    const std::scoped_lock guard(machine->calls_mutex);
    delete static_cast<Communicator*>(communicator);
    --machine->n_communicators;
    return Status::Ok;
}

Status abort_communicator(std::int32_t device, void* communicator, ErrorText* error) {
    const std::scoped_lock guard(machine->calls_mutex);
    *static_cast<Communicator*>(communicator)->aborted = true;
    return free_communicator(device, communicator, error);
}

Status sum_parts(std::int32_t n_ranks, const RankPart* parts, std::size_t n_floats, std::int32_t* failed,
                 ErrorText* error) {
    return enqueue_for_all({parts, static_cast<std::size_t>(n_ranks)}, n_floats, n_floats, sum_of, failed, error);
}

Status gather_parts(std::int32_t n_ranks, const RankPart* parts, std::size_t n_floats, std::int32_t* failed,
                    ErrorText* error) {
    return enqueue_for_all({parts, static_cast<std::size_t>(n_ranks)}, n_floats,
                           static_cast<std::size_t>(n_ranks) * n_floats, all_of, failed, error);
}

}  // namespace slipstream::emulation
