// Byte budgets of devices. Code reserves bytes before it allocates them; the destructor of the Reservation returns
// them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace slipstream {

/// Purpose of reserved bytes. Every Reservation has one.
enum class MemoryTag : std::uint8_t { Weights, Kv, Ring, Draft, Activations, Workspace };
inline constexpr int kMemoryTagCount = 6;
[[nodiscard]] std::string_view memory_tag_name(MemoryTag tag);

/// Bytes that count as used in a Budget until this handle is destroyed. Move-only. The Budget must outlive it. Move
/// assignment swaps the two handles, so the bytes of the left one are returned when the right one is destroyed.
class Reservation {
public:
    Reservation() = default;
    Reservation(Reservation&& other) noexcept;
    Reservation& operator=(Reservation&& other) noexcept;
    ~Reservation();
    [[nodiscard]] std::size_t bytes() const { return bytes_; }

private:
    friend class Budget;
    Reservation(class Budget* budget, std::size_t bytes, MemoryTag tag) : budget_(budget), bytes_(bytes), tag_(tag) {}
    class Budget* budget_ = nullptr;
    std::size_t bytes_ = 0;
    MemoryTag tag_ = MemoryTag::Weights;
};

/// Counts the reserved bytes of one device and limits them. Thread-safe.
class Budget {
public:
    static constexpr std::size_t kUnlimited = static_cast<std::size_t>(-1);

    /// `owner` is the name of the device in messages ("cpu", "cuda:0").
    explicit Budget(std::string owner, std::size_t limit_bytes = kUnlimited);
    Budget(const Budget&) = delete;
    Budget& operator=(const Budget&) = delete;

    /// Reserves `bytes`. If the limit does not allow it, throws OutOfBudget; the message names `what` (the purpose, in
    /// words), the bytes requested, the bytes left, and the remedy.
    [[nodiscard]] Reservation reserve(std::size_t bytes, MemoryTag tag, std::string_view what);

    [[nodiscard]] std::size_t limit_bytes() const { return limit_bytes_; }
    [[nodiscard]] std::size_t used_bytes() const;
    [[nodiscard]] std::size_t used_bytes(MemoryTag tag) const;
    [[nodiscard]] std::size_t peak_bytes() const;

private:
    friend class Reservation;
    void give_back(std::size_t bytes, MemoryTag tag) noexcept;

    std::string owner_;
    std::size_t limit_bytes_;
    mutable std::mutex mutex_;
    std::size_t used_bytes_ = 0;
    std::size_t peak_bytes_ = 0;
    std::array<std::size_t, kMemoryTagCount> used_by_tag_{};
};

}  // namespace slipstream
