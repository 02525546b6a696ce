// The program `slipstream-lab`.
#include "tools/cli/program.h"
#include "tools/lab/lab.h"

int main(int argc, char** argv) {
    using namespace slipstream::tools;
    return program_main(lab_program(), argc, argv);
}
