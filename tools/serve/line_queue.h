// Lines for the console from several threads: it is written by one thread alone.
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace slipstream::tools {

class LineQueue {
public:
    enum class Level : unsigned char { Note, Detail };

    void add(Level level, std::string_view line) {
        const std::lock_guard lock(mutex_);
        if (lines_.size() < kMostLines) lines_.emplace_back(level, line);
    }
    [[nodiscard]] std::vector<std::pair<Level, std::string>> take() {
        const std::lock_guard lock(mutex_);
        return std::exchange(lines_, {});
    }

private:
    static constexpr std::size_t kMostLines = 10'000;  // lines kept between two calls of take(); further lines are lost
    std::mutex mutex_;
    std::vector<std::pair<Level, std::string>> lines_;
};

}  // namespace slipstream::tools
