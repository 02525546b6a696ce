#include "tools/engine/engine_callbacks.h"

#include <utility>

#include "kernels/base/interrupted.h"

namespace slipstream::tools {

void EngineCallbacks::note(std::string_view line) const {
    if (on_note) on_note(line);
}

void EngineCallbacks::detail(std::string_view line) const {
    if (on_detail) on_detail(line);
}

void EngineCallbacks::choice(std::string_view option, std::string_view value, std::string_view otherwise) const {
    if (on_choice) on_choice(option, value, otherwise);
}

WorkProgress EngineCallbacks::work(std::string what) const {
    return [own = *this, progress = on_work ? on_work(std::move(what)) : WorkProgress()](double done, double total,
                                                                                         std::string_view figures) {
        own.throw_if_cancelled();
        if (progress) progress(done, total, figures);
    };
}

void EngineCallbacks::throw_if_cancelled() const {
    slipstream::throw_if_cancelled(cancel);
}

}  // namespace slipstream::tools
