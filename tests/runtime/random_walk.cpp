// Random walks over targets (random_views.cpp, random_splits.cpp), seed after seed; every other seed with faults.
//
//   random_walk views|splits --first SEED --seconds N   processor time of this process, at least one seed of each kind
//   random_walk views|splits --first SEED --seeds N
//
// Each broken seed is told in a line. The exit code is 0 only if there is none.
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string_view>

#include <fmt/format.h>

#include "tests/runtime/random_walk.h"

namespace {

[[noreturn]] void refuse(std::string_view text) {
    fmt::print(stderr, "random_walk: {}\n", text);
    std::exit(2);
}

std::int64_t number_of(std::string_view text) {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size() || number < 0)
        refuse(fmt::format("'{}' is not a number of 0 or more", text));
    return number;
}

volatile std::sig_atomic_t running_seed = 0;

// A failed CHECK or a crash ends the walks: says of which seed.
void on_end(int signal) {
    char text[64];
    const int n = std::snprintf(text, sizeof(text), "seed %ld ended the process\n", static_cast<long>(running_seed));
    static_cast<void>(!::write(STDERR_FILENO, text, static_cast<std::size_t>(n)));
    std::signal(signal, SIG_DFL);
    std::raise(signal);
}

}  // namespace

int main(int argc, char** argv) {
    using namespace slipstream;
    if (argc < 2 || argc % 2 != 0) refuse("usage: random_walk views|splits [--first SEED] [--seconds N] [--seeds N]");
    const std::string_view kind = argv[1];
    if (kind != "views" && kind != "splits") refuse(fmt::format("unknown walk '{}'; known walks: views, splits", kind));
    std::int64_t first = 0, n_seeds = 2, seconds = 0;
    for (int i = 2; i < argc; i += 2) {
        const std::string_view option = argv[i];
        if (option != "--first" && option != "--seconds" && option != "--seeds")
            refuse(fmt::format("unknown option '{}'; known options: --first, --seconds, --seeds", option));
        (option == "--first" ? first : option == "--seeds" ? n_seeds : seconds) = number_of(argv[i + 1]);
    }
    for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE}) std::signal(signal, on_end);
    WalkFigures figures;
    std::int64_t n_broken = 0;
    std::int64_t seed = first;
    const auto processor_seconds = [] { return static_cast<std::int64_t>(std::clock() / CLOCKS_PER_SEC); };
    for (; seed < first + n_seeds || processor_seconds() < seconds; ++seed) {
        running_seed = static_cast<std::sig_atomic_t>(seed);
        try {
            (kind == "views" ? walk_views : walk_splits)(static_cast<std::uint32_t>(seed), seed % 2 == 1, figures);
        } catch (const Broken& broken) {
            ++n_broken;
            fmt::print("seed {}: {}\n", seed, broken.text);
            std::fflush(stdout);
        }
    }
    fmt::print("{}: seeds {} to {}: {} steps, {} prompts by layers, {} checked, {} failures told, {} broken\n", kind,
               first, seed - 1, figures.n_steps, figures.n_prompts, figures.n_checked, figures.n_failures, n_broken);
    if (figures.n_checked == 0) refuse("nothing was checked");
    return n_broken == 0 ? 0 : 1;
}
