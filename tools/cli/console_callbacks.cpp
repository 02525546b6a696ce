#include "tools/cli/console_callbacks.h"

#include <memory>
#include <string_view>

#include "tools/options/command.h"
#include "tools/options/settings.h"
#include "tools/terminal/console.h"
#include "tools/terminal/signals.h"

namespace slipstream::tools {

EngineCallbacks console_callbacks(CommandContext& context) {
    Console& console = context.console;
    const Settings& settings = context.settings;
    return {.on_note = [&console](std::string_view line) { console.note(line); },
            .on_detail = [&console](std::string_view line) { console.detail(line); },
            .on_choice =
                [&console, &settings](std::string_view option, std::string_view value, std::string_view otherwise) {
                    console.detail(settings.describe(option, value, otherwise));
                },
            .on_work =
                [&console](std::string_view work) {
                    return
                        [bar = std::make_shared<ProgressBar>(console, work)](
                            double done, double total, std::string_view figures) { bar->update(done, total, figures); };
                },
            .cancel = &cancel_flag()};
}

}  // namespace slipstream::tools
