#include "kernels/rank_sums.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "kernels/cuda/host/cuda_device.h"
#include "kernels/cuda/host/nccl_sums.h"
#include "kernels/host_collective.h"

namespace slipstream {

namespace {

ChosenSums by_host(std::span<Device* const> devices, std::size_t bytes, std::chrono::nanoseconds lost_after,
                   const std::string& why) {
    return {.sums = std::make_unique<HostCollective>(devices, bytes, lost_after),
            .way = why.empty() ? std::string("host memory") : fmt::format("host memory ({})", why),
            .trouble = {}};
}

// Returns a message about the first pair of GPUs that cannot access each other's memory; empty if all can.
std::string pair_without_way(std::span<CudaDevice* const> cards) {
    for (const CudaDevice* card : cards)
        for (const CudaDevice* peer : cards) {
            if (card == peer) continue;
            bool can = false;
            cuda::ErrorText error{};
            const cuda::Status status = card->table().can_access_peer(card->ordinal(), peer->ordinal(), &can, &error);
            if (status != cuda::Status::Ok)
                return fmt::format("{} does not report whether it reaches {}: {}", card->name(), peer->name(),
                                   error.text);
            if (!can) return fmt::format("{} does not reach the memory of {}", card->name(), peer->name());
        }
    return {};
}

}  // namespace

ChosenSums choose_rank_sums(std::span<Device* const> devices, std::size_t bytes, std::chrono::nanoseconds lost_after) {
    std::vector<CudaDevice*> cards;
    for (Device* device : devices)
        if (auto* card = dynamic_cast<CudaDevice*>(device); card != nullptr) cards.push_back(card);
    if (cards.size() < 2 || cards.size() < devices.size()) return by_host(devices, bytes, lost_after, {});
    if (const std::string why = pair_without_way(cards); !why.empty()) return by_host(devices, bytes, lost_after, why);

    std::int64_t version = 0;
    cuda::ErrorText error{};
    const cuda::Status status = cards.front()->table().nccl_version(&version, &error);
    if (status == cuda::Status::NotInstalled) return by_host(devices, bytes, lost_after, "NCCL is not installed");
    std::string trouble = error.text;
    if (status == cuda::Status::Ok) {
        try {
            return {.sums = std::make_unique<NcclSums>(cards, bytes, lost_after),
                    .way = fmt::format("NCCL {}", nccl_version_text(version)),
                    .trouble = {}};
        } catch (const Error& failure) {
            trouble = failure.what();
        }
    }
    ChosenSums chosen = by_host(devices, bytes, lost_after, {});
    chosen.trouble = fmt::format("NCCL cannot be used ({}): sums between the GPUs go through host memory", trouble);
    return chosen;
}

std::size_t rank_sums_bytes(DeviceKind kind, std::size_t n_devices, std::size_t bytes) {
    if (n_devices < 2) return 0;
    return kind == DeviceKind::Cuda ? NcclSums::device_bytes(n_devices, bytes) : HostCollective::device_bytes(bytes);
}

}  // namespace slipstream
