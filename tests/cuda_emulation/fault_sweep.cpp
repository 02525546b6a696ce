// Whole texts on emulated cards in which one call fails: each copy, kernel, event, allocation, graph and sum, one at a
// time. After each fault the error must be one line, and the same target must make the same text again.
//
//   fault_sweep                      every point of every case
//   fault_sweep --points N           N points of each case and kind of call, spread evenly
//   fault_sweep --case NAME          that case alone; --from K: from its K-th point on (to go on with a sweep)
//   fault_sweep --timing 0, 1 or 2   with that timing of streams alone (emulated_machine.h)
//   fault_sweep --seed N             where the spread points begin
//
// A process of its own makes the texts, so that a point that ends the process is told and the sweep goes on. The exit
// code is 0 only if no point failed.
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "fault_engine.h"
#include "kernels/base/error.h"
#include "tests/support/tiny_model.h"

namespace slipstream::emulation {
namespace {

constexpr const char* kCallNames[kCallKinds] = {"copy", "kernel", "graph", "event", "allocation", "sum"};

struct Point {
    Timing timing;
    Call kind;
    std::int64_t nth;
};

std::string name_of(const Point& point) {
    return fmt::format("timing {}, {} {}", static_cast<int>(point.timing), kCallNames[static_cast<int>(point.kind)],
                       point.nth);
}

struct SweepOptions {
    std::int64_t n_points = 0;  // of each kind of call; 0: all
    std::string_view only{};
    std::int64_t from = 0;
    std::int64_t timing = -1;  // all
    std::uint32_t seed = 1;
};

/// What has become of points.
struct Counts {
    std::map<std::string, std::int64_t> n;
    std::int64_t n_bad = 0;
    void add(std::string_view outcome, std::string_view text, std::int64_t index, const Point& point) {
        ++n[std::string(outcome)];
        if (outcome == "told" || outcome == "undisturbed") return;
        ++n_bad;
        fmt::print("  point {} ({}): {}: {}\n", index, name_of(point), outcome, text);
    }
};

std::unique_ptr<ModelFiles> small_model(const FaultCase& of) {
    if (of.recurs)
        return make_tiny_model({.n_layers = 3, .weight_type = DType::BF16, .head_norms = true, .delta_nets = true});
    return make_tiny_model({.n_layers = 3,
                            .n_q_heads = 6,
                            .n_kv_heads = 3,
                            .weight_type = DType::BF16,
                            .biases = true,
                            .output_bias = true,
                            .n_experts = of.n_experts});
}

/// All points of a case, those of one timing and kind one after the other. Calls are counted of a text of the kind that
/// faults are injected into: one that another text was made before.
std::vector<Point> points_of(const ModelFiles& files, const FaultCase& of, const SweepOptions& options) {
    std::mt19937 random(options.seed);
    std::vector<Point> points;
    for (const Timing timing : kTimings) {
        if (options.timing >= 0 && timing != static_cast<Timing>(options.timing)) continue;
        FaultEngine engine(files, of, timing);
        static_cast<void>(engine.generate());
        std::int64_t before[kCallKinds];
        for (int kind = 0; kind < kCallKinds; ++kind) before[kind] = engine.machine.n_calls(static_cast<Call>(kind));
        static_cast<void>(engine.generate());
        for (int kind = 0; kind < kCallKinds; ++kind) {
            const std::int64_t n = engine.machine.n_calls(static_cast<Call>(kind)) - before[kind];
            const std::int64_t n_taken = options.n_points == 0 ? n : std::min(n, options.n_points);
            const double offset = std::uniform_real_distribution<double>()(random);
            for (std::int64_t i = 0; i < n_taken; ++i) {
                const auto at = static_cast<std::int64_t>((static_cast<double>(i) + offset) * static_cast<double>(n) /
                                                          static_cast<double>(n_taken));
                points.push_back({timing, static_cast<Call>(kind), 1 + std::min(at, n - 1)});
            }
        }
        if (of.streams == Streams::Kv) CHECK(engine.n_guessed() > 0, "{}: no view was ready", of.name);
        if (of.has_head) CHECK(engine.n_guessed() > 0, "{}: the head has not guessed", of.name);
    }
    return points;
}

std::string one_point(FaultEngine& engine, const Point& point, const Generated& expected) {
    std::string told;
    engine.machine.fail_in(point.nth, point.kind);
    try {
        if (!(engine.generate() == expected)) return "wrong: the text with the fault differs";
    } catch (const Error& error) {
        told = error.what();
    }
    engine.machine.fail_in(0);
    if (told.find('\n') != std::string::npos) {
        std::ranges::replace(told, '\n', '|');
        return fmt::format("wrong: more than a line: {}", told);
    }
    try {
        if (!(engine.generate() == expected)) return fmt::format("wrong: the text after the fault differs: {}", told);
    } catch (const Error& error) {
        return fmt::format("told twice: {} | {}", told, error.what());
    }
    return told.empty() ? "undisturbed: " : fmt::format("told: {}", told);
}

/// In a process of its own: tries points from `first` on, and writes "INDEX OUTCOME: TEXT" for each.
[[noreturn]] void try_points(const ModelFiles& files, const FaultCase& of, std::span<const Point> points,
                             std::size_t first, int out) {
    std::FILE* to = fdopen(out, "w");
    std::optional<FaultEngine> engine;
    std::optional<Generated> expected;
    std::size_t at = first;
    for (; at < points.size() && points[at].timing == points[first].timing; ++at) {
        if (!engine) {
            engine.emplace(files, of, points[at].timing);
            expected = engine->generate();
        }
        const std::string outcome = one_point(*engine, points[at], *expected);
        fmt::print(to, "{} {}\n", at, outcome);
        std::fflush(to);
        if (!outcome.starts_with("told: ") && !outcome.starts_with("undisturbed")) break;  // a fresh engine
    }
    std::fflush(to);
    _exit(0);
}

/// Lines of a pipe until its end.
std::vector<std::string> lines_of(int from) {
    std::string all;
    char buffer[4096];
    for (ssize_t n = 0; (n = ::read(from, buffer, sizeof(buffer))) > 0;)
        all.append(buffer, static_cast<std::size_t>(n));
    std::vector<std::string> lines;
    for (std::size_t begin = 0, end = 0; (end = all.find('\n', begin)) != std::string::npos; begin = end + 1)
        lines.push_back(all.substr(begin, end - begin));
    return lines;
}

Counts sweep(const FaultCase& of, const SweepOptions& options) {
    const auto files = small_model(of);
    const std::vector<Point> points = points_of(*files, of, options);
    Counts counts;
    for (auto next = static_cast<std::size_t>(options.from); next < points.size();) {
        int ends[2];
        CHECK(::pipe(ends) == 0);
        std::fflush(stdout);
        const pid_t child = ::fork();
        CHECK(child >= 0);
        if (child == 0) {
            ::close(ends[0]);
            try_points(*files, of, points, next, ends[1]);
        }
        ::close(ends[1]);
        for (const std::string& line : lines_of(ends[0])) {
            const std::size_t blank = line.find(' ');
            const std::size_t colon = line.find(": ", blank);
            next = std::stoul(line);
            counts.add(line.substr(blank + 1, colon - blank - 1), line.substr(colon + 2),
                       static_cast<std::int64_t>(next), points[next]);
            ++next;
        }
        ::close(ends[0]);
        int status = 0;
        CHECK(::waitpid(child, &status, 0) == child);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
        counts.add("ended the process", "its words are above", static_cast<std::int64_t>(next), points[next]);
        ++next;
    }
    fmt::print("{}: {} points from {}", of.name, std::ssize(points) - options.from, options.from);
    for (const auto& [outcome, n] : counts.n) fmt::print(", {} {}", n, outcome);
    fmt::print("\n");
    std::fflush(stdout);
    return counts;
}

[[noreturn]] void refuse(std::string_view text) {
    fmt::print(stderr, "fault_sweep: {}\n", text);
    std::exit(2);
}

std::int64_t number_of(std::string_view text) {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size() || number < 0)
        refuse(fmt::format("'{}' is not a number of 0 or more", text));
    return number;
}

}  // namespace
}  // namespace slipstream::emulation

int main(int argc, char** argv) {
    using namespace slipstream::emulation;
    SweepOptions options;
    for (int i = 1; i < argc; i += 2) {
        const std::string_view option = argv[i];
        if (i + 1 == argc) refuse(fmt::format("{} requires a value", option));
        if (option == "--points") {
            options.n_points = number_of(argv[i + 1]);
        } else if (option == "--case") {
            options.only = argv[i + 1];
        } else if (option == "--from") {
            options.from = number_of(argv[i + 1]);
        } else if (option == "--timing") {
            options.timing = number_of(argv[i + 1]);
            if (options.timing >= std::ssize(kTimings)) refuse("--timing: 0 (at once), 1 (latest) or 2 (copies early)");
        } else if (option == "--seed") {
            options.seed = static_cast<std::uint32_t>(number_of(argv[i + 1]));
        } else {
            refuse(
                fmt::format("unknown option '{}'; known options: --points, --case, --from, --timing, --seed", option));
        }
    }
    std::int64_t n_cases = 0;
    std::int64_t n_bad = 0;
    fmt::print("seed {}\n", options.seed);
    for (const FaultCase& each : kFaultCases) {
        if (!options.only.empty() && options.only != each.name) continue;
        ++n_cases;
        n_bad += sweep(each, options).n_bad;
    }
    if (n_cases == 0) refuse(fmt::format("unknown case '{}'; known cases: see fault_engine.h", options.only));
    return n_bad == 0 ? 0 : 1;
}
