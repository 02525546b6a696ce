// How much a rendering may take: templates come with models, from anywhere, and one that loops for ever or multiplies
// text must end with a message. Counted, not timed: the same template and input end the same way on every machine.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace slipstream {

struct TemplateLimits {
    /// Nodes evaluated, items iterated over, pieces of text walked over. 20 million take a second or two; a
    /// conversation of a thousand messages takes some hundred thousand.
    std::int64_t max_steps = 20'000'000;
    std::size_t max_output_bytes = std::size_t{64} << 20U;
    /// Of any one text made on the way.
    std::size_t max_text_bytes = std::size_t{64} << 20U;
    /// Of all texts and containers made on the way, also of those that are gone again.
    std::size_t max_allocated_bytes = std::size_t{1} << 30U;
    /// Looked at every few thousand steps: a rendering ends with a TemplateError once it is true.
    const std::atomic<bool>* cancel = nullptr;
};

/// Of a template's source, in bytes.
inline constexpr std::size_t kMaxTemplateBytes = std::size_t{1} << 20U;

}  // namespace slipstream
