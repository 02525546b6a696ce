#include "tools/machine/compute_device.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "kernels/cpu_device.h"
#include "kernels/cuda/host/cuda_device.h"
#include "tools/base/text_parts.h"
#include "tools/base/usage_error.h"
#include "tools/machine/host.h"

namespace slipstream::tools {

namespace {

constexpr std::string_view kCardPrefix = "cuda:";
constexpr std::uint64_t kLeastFreeBytes = kCardMarginBytes + (std::uint64_t{512} << 20);

// Returns the ordinal of a GPU's name, "cuda:0" to "cuda:999"; nothing for any other text.
std::optional<int> card_number(std::string_view device) {
    if (!device.starts_with(kCardPrefix)) return std::nullopt;
    const std::string_view digits = device.substr(kCardPrefix.size());
    if (digits.empty() || digits.size() > 3 || digits.find_first_not_of("0123456789") != std::string_view::npos)
        return std::nullopt;
    int number = 0;
    for (const char digit : digits) number = 10 * number + (digit - '0');
    return number;
}

DeviceChoice the_cpu(std::string why) {
    return {.card = std::nullopt,
            .module = nullptr,
            .why = std::move(why),
            .form = std::string(cpu_form_name(best_cpu_form()))};
}

DeviceChoice the_card(const CudaCards& found, int card) {
    const cuda::DeviceProperties& properties = found.cards[card];
    return {.card = card,
            .module = found.module,
            .why = fmt::format("the first usable GPU: {}", properties.name),
            .form = card_form(*found.module, card, properties)};
}

DeviceChoice named_card(std::string_view list, std::string_view where, int card) {
    const CudaCards found = cuda_cards();
    const auto refuse = [&](std::string_view why) {
        throw RequestError(fmt::format("{} {}: {}; use --devices cpu", where, list, why));
    };
    if (found.module == nullptr) refuse(found.why_not);
    if (!found.serves(card)) refuse(found.why_not_card(card));
    return the_card(found, card);
}

// Returns the first GPU that can be used and has at least kLeastFreeBytes free, else the CPU. Other GPUs are skipped,
// since other programs may fill them or have exclusive use of them; `why` of the CPU says why the last one was skipped.
DeviceChoice automatic_device() {
    const CudaCards found = cuda_cards();
    std::string why = found.why_not;
    for (std::size_t card = 0; card < found.cards.size(); ++card) {
        if (!found.serves(card)) continue;
        std::uint64_t free_bytes = 0;
        std::uint64_t total_bytes = 0;
        cuda::ErrorText error{};
        const auto ordinal = static_cast<std::int32_t>(card);
        if (found.module->memory_info(ordinal, &free_bytes, &total_bytes, &error) != cuda::Status::Ok)
            why = fmt::format("{}{} cannot be used: {}", kCardPrefix, card, error.text);
        else if (free_bytes < kLeastFreeBytes)
            why = fmt::format("{}{} has {} MiB free", kCardPrefix, card, free_bytes >> 20);
        else
            return the_card(found, ordinal);
    }
    return the_cpu(why);
}

}  // namespace

CudaCards cuda_cards() {
    const std::filesystem::path beside = program_folder();
    const std::array folders{beside, beside.parent_path() / "lib" / "slipstream", beside.parent_path() / "lib"};
    return find_cuda_cards(folders);
}

std::string DeviceChoice::name() const {
    return card ? fmt::format("{}{}", kCardPrefix, *card) : std::string("cpu");
}

std::string_view device_kind_name(DeviceKind kind) {
    return kind == DeviceKind::Cuda ? "cuda" : "cpu";
}

DeviceForms device_forms(const std::vector<DeviceChoice>& devices) {
    const DeviceChoice& first = devices.front();
    DeviceForms all{.kinds = std::string(device_kind_name(first.kind())), .forms = first.form};
    all.is_one = std::ranges::all_of(
        devices, [&](const DeviceChoice& each) { return each.kind() == first.kind() && each.form == first.form; });
    if (all.is_one) return all;
    for (const DeviceChoice& each : std::span(devices).subspan(1)) {
        all.kinds += fmt::format(",{}", device_kind_name(each.kind()));
        all.forms += fmt::format(",{}", each.form);
    }
    return all;
}

std::vector<DeviceChoice> choose_devices(std::string_view list, std::string_view where) {
    if (list == "auto") return {automatic_device()};
    std::vector<std::optional<int>> cards;
    for (const std::string_view device : split_list(list)) {
        const std::optional<int> card = card_number(device);
        if (device != "cpu" && !card)
            throw UsageError(
                fmt::format("{}: auto, cpu or cuda:N (such as cuda:0) expected, found '{}'", where, device));
        if (card && std::ranges::find(cards, card) != cards.end())
            throw UsageError(fmt::format("{} {}: {} is named twice; name each GPU once", where, list, device));
        cards.push_back(card);
    }
    std::vector<DeviceChoice> devices;
    for (const std::optional<int>& card : cards) devices.push_back(card ? named_card(list, where, *card) : the_cpu({}));
    return devices;
}

std::unique_ptr<Device> make_compute_device(const DeviceChoice& choice, const DeviceRequest& request) {
    const DeviceLimits& limits = request.limits;
    if (choice.card)
        return std::make_unique<CudaDevice>(*choice.module,
                                            CudaDeviceOptions{.ordinal = *choice.card,
                                                              .memory_bytes = limits.memory_bytes,
                                                              .n_threads = request.n_threads,
                                                              .on_announcement = request.on_announcement,
                                                              .link_bytes_per_second = limits.link_bytes_per_second});
    return std::make_unique<CpuDevice>(
        CpuDeviceOptions{.n_threads = request.n_threads,
                         .memory_bytes = limits.memory_bytes.value_or(Budget::kUnlimited),
                         .name = request.number > 0 ? fmt::format("device {} (cpu)", request.number) : "cpu",
                         .link_bytes_per_second = limits.memory_bytes ? limits.link_bytes_per_second : 0.0,
                         .faults = request.faults});
}

}  // namespace slipstream::tools
