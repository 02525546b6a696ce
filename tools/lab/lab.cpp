#include "tools/lab/lab.h"

namespace slipstream::tools {

ProgramSpec lab_program() {
    return {
        .name = "slipstream-lab",
        .purpose =
            "Instruments for developers and researchers of Slipstream: what draft sources, KV views, ops and GPUs are "
            "worth, each measured by itself.",
        .first_steps = {},
        .audience = Audience::Researchers,
        .commands = {replay_command(), views_command(), drafts_command(), routes_command(), tokenizers_command(),
                     ops_command(), card_command(), random_model_command()}};
}

}  // namespace slipstream::tools
