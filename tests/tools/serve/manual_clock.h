// A clock that stands still until a test moves it. Any thread may use it.
#pragma once

#include <atomic>
#include <chrono>

#include "tools/serve/http_server.h"

namespace slipstream::tools {

class ManualClock {
public:
    void advance(std::chrono::milliseconds by) { now_ += by.count(); }
    [[nodiscard]] std::function<ServerTime()> reader() {
        return [this] { return ServerTime(std::chrono::milliseconds(now_.load())); };
    }

private:
    std::atomic<std::int64_t> now_{1'000'000};  // milliseconds
};

}  // namespace slipstream::tools
