// The memory of an emulated card: first fit between guard bands, poisoned when it is allocated and freed, and closed to
// the host but while work runs.
#pragma once

#include <cstddef>
#include <map>

namespace slipstream::emulation {

inline constexpr std::byte kPoison{0xff};  // NaN as F32, F16 and BF16; -1 as an index

class CardMemory {
public:
    explicit CardMemory(std::size_t bytes);
    ~CardMemory();
    CardMemory(const CardMemory&) = delete;
    CardMemory& operator=(const CardMemory&) = delete;

    [[nodiscard]] bool holds(const void* address) const {
        const auto* at = static_cast<const std::byte*>(address);
        return at >= data_ && at < data_ + bytes_;
    }
    /// To the host: PROT_NONE, or PROT_READ | PROT_WRITE.
    void open(int protection) const;
    [[nodiscard]] std::size_t size_bytes() const { return bytes_; }
    [[nodiscard]] std::size_t allocated_bytes() const { return allocated_; }
    /// Whether [at, at + bytes) lies inside one allocation.
    [[nodiscard]] bool is_allocated(const void* at, std::size_t bytes) const;

    /// With the memory open; null where it is full.
    [[nodiscard]] std::byte* allocate(std::size_t bytes);
    /// With the memory open; CHECKs that nothing wrote beside the allocation.
    void free(std::byte* data);

private:
    std::byte* data_ = nullptr;
    std::size_t bytes_;
    std::size_t top_ = 0;  // nothing above was ever used
    std::size_t allocated_ = 0;
    std::map<std::size_t, std::size_t> blocks_;  // bytes by offset
};

}  // namespace slipstream::emulation
