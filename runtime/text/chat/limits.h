// How much a rendering may take: templates come with models, from anywhere, and one that loops for ever or multiplies
// text must end with a message. Counted, not timed: the same template and input end the same way on every machine.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace slipstream {

struct TemplateLimits {
    /// Nodes evaluated, items walked over, pieces of 64 bytes of text copied or looked through. All of them take less
    /// than a second; a conversation of a thousand messages takes some hundred thousand.
    std::int64_t max_steps = 5'000'000;
    /// Of any one text, the prompt included: two million tokens and more.
    std::size_t max_text_bytes = std::size_t{8} << 20U;
    /// Of all values and variables that are alive at a time.
    std::size_t max_live_bytes = std::size_t{32} << 20U;
    /// Looked at every few thousand steps: a rendering ends with a TemplateError once it is true.
    const std::atomic<bool>* cancel = nullptr;
};

/// Of a template's source, in bytes; the largest published ones have 30 thousand.
inline constexpr std::size_t kMaxTemplateBytes = std::size_t{1} << 18U;

}  // namespace slipstream
