// The program `slipstream`.
#include "tools/cli/program.h"

int main(int argc, char** argv) {
    using namespace slipstream::tools;
    return program_main(
        {.name = "slipstream",
         .purpose = "Slipstream runs language models that do not fit into GPU memory, and gives exactly the text that "
                    "the model itself would give.",
         .first_steps = "  slipstream generate \"Once upon a time\"     the bundled model tells a tale\n"
                        "  slipstream models                          what else is on this machine\n"
                        "  slipstream chat -m NAME                    talk with one of them\n",
         .audience = Audience::Users,
         .commands = {generate_command(), chat_command(), bench_command(), inspect_command(), models_command(),
                      perplexity_command(), plan_command(), serve_command(), tables_command(), tokenize_command(),
                      version_command()}},
        argc, argv);
}
