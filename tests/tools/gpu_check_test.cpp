// tools/gpu_check where there is no card: programs of a few lines stand in for the driver's tool, the sanitizer and all
// that was built, and do what a file in their folder says. What is tested is the script's own: that every step runs and
// is told of whatever becomes of the others, that limits and signals leave a whole report, that nothing passes by
// standing still.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/tools/run_program.h"
#include "tests/tools/temporary_folder.h"

namespace slipstream::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kNvidiaSmi = R"sh(
if [ -e "$WISH/no_card" ]; then echo "NVIDIA-SMI has failed because it could not reach the driver."; exit 9; fi
case $* in
    *compute_cap*)
        capability=9.0
        if [ -e "$WISH/old_card" ]; then capability=7.5; fi
        name='NVIDIA "Test" Card'
        if [[ $* = *"-i 2" ]]; then name='The third'; fi
        echo "$name, 580.1, $capability, 143771, 1980, 3201, 5, 16, 700.00" ;;
    *) echo "1980 MHz, 3201 MHz, 40, 99.5 W, 5" ;;
esac
)sh";

constexpr const char* kSanitizer = R"sh(
tool=$2
echo "$*" >>"$WISH/sanitized"
if [ -e "$WISH/dirty" ] && [[ $* = *Rope* ]]; then echo "========= Invalid write of size 4"; exit 9; fi
while [ "${1##*/}" != cuda_card_tests ]; do shift; done
"$@" || exit
if [ "$tool" = memcheck ]; then echo "========= ERROR SUMMARY: 0 errors"; fi
if [ "$tool" = racecheck ]; then echo "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"; fi
)sh";

constexpr const char* kCardTests = R"sh(
if [ "${1:-}" = --gtest_list_tests ]; then
    printf 'Running main() from main.cc\nCudaElementwise.\n  RmsNorm\n  Rope\nCudaLargeMatmul.\n  Sum\nCudaMatmul.\n  Sum\n'
    exit 0
fi
if [ -e "$WISH/hang" ]; then touch "$WISH/hangs"; sleep 300; fi
if [ -e "$WISH/skip" ]; then printf '[  PASSED  ] 2 tests.\n[  SKIPPED ] 1 test, listed below:\n'; exit 0; fi
if [ -e "$WISH/fail" ] && [[ ${1:-} = *filter=-CudaElementwise* ]]; then
    printf 'wrong "value"\tat\\3\n[  PASSED  ] 2 tests.\n[  FAILED  ] 1 test, listed below:\n'; exit 1
fi
printf '[  PASSED  ] 3 tests.\n'
)sh";

constexpr const char* kLab = R"sh(
command=$1
shift
if [ "$command" = random-model ]; then
    while [ $# -gt 0 ]; do if [ "$1" = --output ]; then echo model >"$2"; fi; shift; done
    exit 0
fi
while [ $# -gt 0 ]; do if [ "$1" = --json ]; then json=$2; fi; shift; done
echo "what n time"; echo "Q4_K [4096, 14336] 1 7 us"
echo '{"bench":"memory","what":"copy of 512 MiB within the card","n":4,"seconds":1e-3,"bytes_per_second":1e+12}' >"$json"
echo '{"bench":"copy","what":"64 MiB to the card","n":8,"seconds":2.7e-3,"bytes_per_second":25000000000}' >>"$json"
echo '{"bench":"matmul","what":"Q4_K","n":1,"seconds":7e-6,"memory_share":0.8}' >>"$json"
if [ -e "$WISH/bench_breaks" ]; then printf '{"bench":"matmul","wh' >>"$json"; echo "slipstream: cuda:0: broken" >&2; exit 3; fi
)sh";

// A model of 600000 bytes of weights and 300000 of KV, which needs 200000 of the device at least.
constexpr const char* kSlipstream = R"sh(
command=$1 cap='' ids='' stats='' draft='' greedy=0
shift
if [ "$command" = version ]; then echo "slipstream 0.1.0 (stub)"; exit 0; fi
while [ $# -gt 0 ]; do
    case $1 in
        --device-memory) cap=$2; shift ;;
        --draft) draft=$2; shift ;;
        --token-ids) ids=$2; shift ;;
        --stats) stats=$2; shift ;;
        --temperature) [ "$2" = 0 ] && greedy=1; shift ;;
    esac
    shift
done
if [ "$command" = bench ]; then
    echo "tokens ms"
    # Streamed passes take 1.02 of what 10 GB take over the link, resident ones read 8 GB at 0.8 of the memory's rate.
    streamed=0 one=0.01 large=0.012
    if [ -n "$cap" ]; then streamed=10000000000 one=0.408 large=0.412; fi
    if [ -n "$cap" ] && [ -e "$WISH/slow" ]; then large=0.6; fi
    pass() { printf '  {\n "tokens": %d,\n "seconds": %s,\n "weight_bytes": 7900000000.0,\n "kv_bytes": 100000000.0,\n "streamed_bytes": %d\n }' "$1" "$2" "$streamed"; }
    { printf '{\n "runs": [ {\n "passes": [\n'; pass 1 $one; echo ,; pass 64 $one; echo ,; pass 512 $large; printf ' ]\n } ]\n}\n'; } >"$stats"
    exit 0
fi
weights=0 kv=0
if [[ $cap =~ ^[0-9]+$ ]]; then
    if [ "$cap" -lt 200000 ]; then echo "slipstream: too small: use --device-memory 196K or more" >&2; exit 1; fi
    weights=$((1000000 - cap))
    if [ "$weights" -gt 600000 ]; then kv=$((weights - 600000)) weights=600000; fi
fi
if [ -n "$ids" ]; then
    seq $((100 - 99 * greedy)) 120 >"$ids"
    if [ -e "$WISH/other_tokens" ] && [ "$kv" -gt 0 ]; then echo 7 >>"$ids"; fi
fi
printf '{\n "plan": {\n "weights_bytes": 600000,\n "kv_bytes": 300000,\n "device_bytes": 1000000,\n' >"$stats"
printf ' "streamed_weights_bytes": %d,\n "streamed_kv_bytes": %d\n },\n "tokens_per_second": 5.5,\n' "$weights" "$kv" >>"$stats"
offered=7
if [ -e "$WISH/idle_head" ] || { [ -e "$WISH/idle_in_auto" ] && [ "$draft" = auto ]; }; then offered=0; fi
printf ' "sources": {"mtp": {"offered": %d}},\n' $offered >>"$stats"
printf ' "exact": true,\n "streamed": {"link_busy_fraction": [\n 0.97\n ]}\n}\n' >>"$stats"
)sh";

// Runs a command, and ends it as soon as the tests on the card hang.
constexpr const char* kEndWhatHangs = R"sh(
"$@" &
until [ -e "$WISH/hangs" ] || ! kill -0 $!; do sleep 0.05; done
kill -TERM $!
wait $!
)sh";

class GpuCheck : public testing::Test {
protected:
    void SetUp() override {
        program("bin/nvidia-smi", kNvidiaSmi);
        program("bin/end_what_hangs", kEndWhatHangs);
        program("bin/compute-sanitizer", kSanitizer);
        program("built/cuda_card_tests", kCardTests);
        program("built/slipstream-lab", kLab);
        program("built/slipstream", kSlipstream);
        folder_.write("built/libslipstream_cuda.so", "");
        for (const char* folder : {"scratch", "wish"}) std::filesystem::create_directories(path(folder));
    }

    [[nodiscard]] std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
    void wish(const std::string& name) const { file("wish/" + name); }
    void file(const std::string& name) const { folder_.write(name, ""); }

    [[nodiscard]] ProgramResult check(const std::string& options, const std::string& before = "") const {
        ProgramRun run;
        run.shell = fmt::format("PATH={}:$PATH exec {} {} --prebuilt {} --out {} --scratch {} {}", path("bin"), before,
                                source_path("tools/gpu_check"), path("built"), path("out"), path("scratch"), options);
        return run_program(run);
    }

    // The one report of a kind.
    [[nodiscard]] std::string report(const std::string& extension) const {
        std::string found;
        for (const auto& entry : std::filesystem::directory_iterator(path("out"))) {
            EXPECT_NE(entry.path().extension(), ".part");
            if (entry.path().extension() != extension) continue;
            EXPECT_EQ(found, "") << "two reports";
            found = file_text(entry.path().string());
        }
        return found;
    }
    [[nodiscard]] nlohmann::json json() const {
        const nlohmann::json parsed = nlohmann::json::parse(report(".json"), nullptr, false);
        EXPECT_FALSE(parsed.is_discarded()) << report(".json");
        return parsed;
    }
    [[nodiscard]] static std::string outcome(const nlohmann::json& report, const std::string& step) {
        for (const nlohmann::json& entry : report.at("steps"))
            if (entry.at("name") == step) return entry.at("outcome");
        return "absent";
    }
    [[nodiscard]] static nlohmann::json step(const nlohmann::json& report, const std::string& name) {
        for (const nlohmann::json& entry : report.at("steps"))
            if (entry.at("name") == name) return entry;
        return {};
    }
    void expect_scratch_is_empty() const { EXPECT_TRUE(std::filesystem::is_empty(path("scratch"))); }

    void program(const std::string& name, const std::string& text) const {
        const std::filesystem::path file =
            folder_.write(name, fmt::format("#!/usr/bin/env bash\nWISH={}\n{}", path("wish"), text));
        std::filesystem::permissions(file, std::filesystem::perms::owner_all);
    }

private:
    TemporaryFolder folder_;
};

TEST_F(GpuCheck, PassesWhereEveryStepDoes) {
    const ProgramResult result = check("--seconds 110");
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("all steps of part 1 passed"));
    const nlohmann::json all = json();
    std::vector<std::string> names;
    for (const nlohmann::json& entry : all.at("steps")) {
        names.push_back(entry.at("name"));
        EXPECT_EQ(entry.at("outcome"), "passed") << entry.dump();
    }
    EXPECT_THAT(names,
                testing::ElementsAre("facts", "tests", "demo", "bench-card", "streamed", "decode", "exact-demo"));
    EXPECT_EQ(all.at("program"), "slipstream 0.1.0 (stub)");
    EXPECT_EQ(all.at("card").at("name"), "NVIDIA \"Test\" Card");
    EXPECT_EQ(all.at("card").at("sm"), 90);
    EXPECT_EQ(all.at("card").at("max_sm_mhz"), 1980);
    EXPECT_EQ(step(all, "tests").at("figures").at("passed"), 12);  // small ones, a graph, the others, whole matrices
    EXPECT_EQ(step(all, "bench-card").at("figures").at(2).at("seconds"), 7e-6);
    EXPECT_THAT(std::string(step(all, "streamed").at("line")), HasSubstr("the link busy 0.97"));
    const std::string text = report(".md");
    EXPECT_THAT(text, HasSubstr("| bench-card | passed |"));
    EXPECT_THAT(text, HasSubstr("Q4_K [4096, 14336] 1 7 us"));
    expect_scratch_is_empty();
}

// Each figure beside its floor: on the terminal, in the JSON, and in a file that is written as they come.
TEST_F(GpuCheck, JudgesFiguresByTheirFloors) {
    wish("slow");
    const ProgramResult result = check("--seconds 110 --only bench-card,streamed,decode");
    EXPECT_EQ(result.code, 1);
    EXPECT_THAT(result.err, HasSubstr("a streamed pass of 1 over its bytes on the link: 1.020 (wanted <= 1.05): pass"));
    EXPECT_THAT(result.err,
                HasSubstr("a streamed pass of 512 over its bytes on the link: 1.500 (wanted <= 1.05): FAIL"));
    EXPECT_THAT(result.err, HasSubstr("a streamed pass of 512 over one of 1: 1.471 (wanted <= 1.10): FAIL"));
    EXPECT_THAT(result.err, HasSubstr("link is busy: 0.97 (wanted >= 0.95): pass"));
    EXPECT_THAT(result.err,
                HasSubstr("8B Q4_K_M: a pass of one token, share of the memory's rate: 0.800 (wanted >= 0.75): pass"));
    const std::string figures = report(".figures");
    EXPECT_THAT(figures, HasSubstr("the card's memory, GB/s read and written: 1000.000"));
    EXPECT_THAT(figures,
                HasSubstr("8B BF16: a pass of one token, share of the memory's rate: 0.800 (wanted >= 0.75): pass"));
    const nlohmann::json all = json();
    EXPECT_EQ(outcome(all, "streamed"), "failed");
    EXPECT_EQ(outcome(all, "decode"), "passed");
    int n_failed = 0;
    const nlohmann::json streamed = step(all, "streamed");
    for (const nlohmann::json& figure : streamed.at("figures"))
        if (figure.contains("pass") && figure.at("pass") == false) ++n_failed;
    EXPECT_EQ(n_failed, 2);
}

TEST_F(GpuCheck, WithoutARateNothingIsJudgedToBeFastEnough) {
    EXPECT_EQ(check("--seconds 60 --only decode").code, 1);
    EXPECT_THAT(report(".figures"), HasSubstr("no rate of the memory to judge it by"));
}

TEST_F(GpuCheck, ThePartTwoLooksCloser) {
    program("bin/ncu", "echo 'matmul_ring  dram 81 %'");
    const ProgramResult result = check("--part 2 --seconds 160");
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("all steps of part 2 passed"));
    const nlohmann::json all = json();
    std::vector<std::string> names;
    for (const nlohmann::json& entry : all.at("steps")) {
        names.push_back(entry.at("name"));
        EXPECT_EQ(entry.at("outcome"), "passed") << entry.dump();
    }
    EXPECT_THAT(names, testing::ElementsAre("memcheck", "racecheck", "profile", "long-context", "exact-1b", "exact-q8",
                                            "exact-windows", "exact-experts", "exact-recurrent", "resident-q4",
                                            "resident-bf16"));
    EXPECT_EQ(step(all, "memcheck").at("figures").at("clean"), 3);
    EXPECT_THAT(std::string(step(all, "profile").at("line")), HasSubstr("4 of 4 kernels"));
}

// Ten minutes each, whatever the machine.
TEST_F(GpuCheck, LimitsOfAPartSumToTenMinutes) {
    std::istringstream text(file_text(source_path("tools/gpu_check")));
    std::map<int, int> seconds;
    bool on = false;
    for (std::string line; std::getline(text, line);) {
        if (on && line == ")") break;
        if (on) {
            std::istringstream words(line.substr(line.find('"') + 1));
            std::string name;
            int part = 0;
            int limit = 0;
            words >> name >> part >> limit;
            seconds[part] += limit;
        }
        on = on || line == "STEPS=(";
    }
    EXPECT_EQ(seconds, (std::map<int, int>{{1, 600}, {2, 600}}));
}

TEST_F(GpuCheck, ExactnessRunsStreamWeightsAndKvAndGuess) {
    EXPECT_EQ(check("--seconds 60 --only exact-1b").code, 0);
    const nlohmann::json all = json();
    ASSERT_EQ(all.at("steps").size(), 1U);
    std::set<std::string> kinds;
    std::int64_t least_cap = 1000000;
    const nlohmann::json ran = step(all, "exact-1b");
    for (const nlohmann::json& run : ran.at("figures")) {
        EXPECT_EQ(run.at("equal"), true) << run.dump();
        const std::string cap = run.at("cap");
        if (cap.find_first_not_of("0123456789") == std::string::npos) least_cap = std::min(least_cap, std::stol(cap));
        const bool weights = run.at("streamed_weights_bytes") > 0;
        const bool kv = run.at("streamed_kv_bytes") > 0;
        kinds.insert(fmt::format("{} {} {}",
                                 kv        ? "kv"
                                 : weights ? "weights"
                                           : "resident",
                                 run.at("sampling").get<std::string>(), run.at("draft").get<std::string>()));
    }
    EXPECT_EQ(kinds.size(), 13U);  // three placements, two samplings, with draft tokens and without; one over a view
    EXPECT_LT(least_cap, 210000);  // the least that the refusal names, 196K, and a little
}

// Of a recurrent model the MTP head drafts, by name, where all is resident and where weights stream.
TEST_F(GpuCheck, TheHeadOfARecurrentModelIsAskedInEachPlacement) {
    EXPECT_EQ(check("--seconds 60 --only exact-recurrent").code, 0);
    std::set<std::string> runs;
    const nlohmann::json ran = step(json(), "exact-recurrent");
    for (const nlohmann::json& run : ran.at("figures"))
        if (run.at("draft").get<std::string>().starts_with("mtp"))
            runs.insert(fmt::format("{} {} {}", run.at("placement").get<std::string>(),
                                    run.at("sampling").get<std::string>(), run.at("draft").get<std::string>()));
    EXPECT_THAT(runs,
                testing::ElementsAre("resident greedy mtp", "resident seeded mtp", "some-streams seeded mtp,context"));
}

TEST_F(GpuCheck, AHeadThatProposesNothingIsToldOf) {
    wish("idle_head");
    EXPECT_EQ(check("--seconds 60 --only exact-recurrent").code, 1);
    EXPECT_THAT(std::string(step(json(), "exact-recurrent").at("line")), HasSubstr("the MTP head proposed nothing"));
}

TEST_F(GpuCheck, AHeadThatProposesNothingInAutoIsToldOf) {
    wish("idle_in_auto");
    EXPECT_EQ(check("--seconds 60 --only exact-recurrent").code, 1);
    EXPECT_THAT(std::string(step(json(), "exact-recurrent").at("line")),
                HasSubstr("greedy, draft auto: the MTP head proposed nothing"));
}

TEST_F(GpuCheck, KeepsWhatFailsAndGoesOn) {
    for (const char* name : {"fail", "dirty", "other_tokens", "bench_breaks"}) wish(name);
    const ProgramResult result = check(
        "--seconds 110 --only tests,memcheck,racecheck,exact-demo,exact-1b,bench-card,resident-q4,decode,streamed");
    EXPECT_EQ(result.code, 1);
    EXPECT_THAT(result.err, HasSubstr("NOT all steps of part 1 passed"));
    const nlohmann::json all = json();
    for (const char* failed : {"tests", "memcheck", "racecheck", "exact-demo", "exact-1b", "bench-card"})
        EXPECT_EQ(outcome(all, failed), "failed") << failed;
    for (const char* passed : {"resident-q4", "decode", "streamed"})
        EXPECT_EQ(outcome(all, passed), "passed") << passed;
    EXPECT_THAT(std::string(step(all, "tests").at("last_lines")), HasSubstr("wrong \"value\"\tat\\3"));
    EXPECT_THAT(std::string(step(all, "memcheck").at("line")),
                AllOf(HasSubstr("2 of 3 tests clean"), HasSubstr("not clean: CudaElementwise.Rope")));
    EXPECT_THAT(file_text(path("wish/sanitized")), Not(HasSubstr("Large")));
    EXPECT_THAT(std::string(step(all, "exact-demo").at("line")), HasSubstr("other tokens"));
    // Its three lines and what is told of them; the line that was cut is left out.
    EXPECT_EQ(step(all, "bench-card").at("figures").size(), 6U);
    EXPECT_THAT(report(".md"), HasSubstr("slipstream: cuda:0: broken"));
    expect_scratch_is_empty();
}

TEST_F(GpuCheck, ASkippedTestIsNoPassedOne) {
    wish("skip");
    EXPECT_EQ(check("--seconds 60 --only tests,memcheck").code, 1);
    const nlohmann::json all = json();
    EXPECT_EQ(outcome(all, "tests"), "failed");
    EXPECT_EQ(outcome(all, "memcheck"), "failed");
}

TEST_F(GpuCheck, EndsWhatHangsAndSaysWhatTimeWasLackingFor) {
    wish("hang");
    const ProgramResult result = check("--seconds 9");
    EXPECT_EQ(result.code, 1);
    const nlohmann::json all = json();
    EXPECT_EQ(outcome(all, "tests"), "out of time");
    EXPECT_EQ(outcome(all, "streamed"), "not run");
    EXPECT_THAT(std::string(step(all, "streamed").at("line")), HasSubstr("no time"));
    EXPECT_LE(all.at("seconds").get<int>(), 12);
    expect_scratch_is_empty();
}

// A step may take what is left beyond the limits of those that follow: none follow here.
TEST_F(GpuCheck, TheLastStepHasAllThatIsLeft) {
    program("built/slipstream-lab",
            "while [ $# -gt 0 ]; do if [ \"$1\" = --seconds ]; then echo \"given $2\"; fi; shift; done");
    EXPECT_EQ(check("--minutes 9 --only tests,bench-card").code, 0);
    const std::string text = report(".md");
    const std::size_t given = text.find("given ");
    ASSERT_NE(given, std::string::npos) << text;
    EXPECT_GT(std::stoi(text.substr(given + 6)), 500);
}

TEST_F(GpuCheck, TellsOfTheCardThatProgramsAreShown) {
    EXPECT_EQ(check("--seconds 60 --only tests", "env CUDA_VISIBLE_DEVICES=2,1").code, 0);
    EXPECT_EQ(json().at("card").at("name"), "The third");
}

TEST_F(GpuCheck, FindsTheToolkitsLibraries) {
    program("bin/nvcc", "echo Cuda compilation tools, release 13.0");
    program("built/cuda_card_tests", R"sh(echo "$LD_LIBRARY_PATH" >"$WISH/libraries"; echo "[  PASSED  ] 3 tests.")sh");
    EXPECT_EQ(check("--seconds 60 --only tests").code, 0);
    EXPECT_THAT(file_text(path("wish/libraries")), Not(HasSubstr(path("lib64"))));
    file("lib64/libcublasLt.so.13");
    EXPECT_EQ(check("--seconds 60 --only tests").code, 0);
    EXPECT_THAT(file_text(path("wish/libraries")), HasSubstr(path("lib64")));
}

TEST_F(GpuCheck, LeavesAReportWhenItIsEnded) {
    wish("hang");
    const ProgramResult result = check("--seconds 60", path("bin/end_what_hangs"));
    EXPECT_EQ(result.code, 143);
    EXPECT_EQ(outcome(json(), "tests"), "interrupted");
    expect_scratch_is_empty();
}

TEST_F(GpuCheck, SaysInALineWhatIsLacking) {
    const auto refused = [&](const std::string& options, int code, const std::string& words) {
        const ProgramResult result = check(options);
        EXPECT_EQ(result.code, code) << result.err;
        EXPECT_THAT(result.err, HasSubstr(words));
        EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    };
    refused("--minutes soon", 2, "--minutes requires a number, found 'soon'");
    refused("--part 3", 2, "--part requires 1 or 2, found '3'");
    refused("--only everything", 2, "unknown step 'everything'");
    refused("--wrong x", 2, "unknown option '--wrong'");
    refused("--prefix /nowhere/at/all", 1, "--prefix /nowhere/at/all: there is no such folder");
    wish("no_card");
    refused("", 1, "nvidia-smi shows no usable GPU: NVIDIA-SMI has failed");
    std::filesystem::remove(path("wish/no_card"));
    wish("old_card");
    refused("", 1, "the GPU (NVIDIA \"Test\" Card, sm_75) is too old: sm_80 and newer are served");
    std::filesystem::remove(path("wish/old_card"));
    std::filesystem::remove(path("built/slipstream-lab"));
    refused("", 1, "slipstream-lab is not there");
    std::filesystem::remove(path("bin/nvidia-smi"));
    if (access("/usr/bin/nvidia-smi", X_OK) != 0) refused("", 1, "there is no nvidia-smi");
}

TEST_F(GpuCheck, WithoutASanitizerItsStepsAreNotRun) {
    if (access("/usr/bin/compute-sanitizer", X_OK) == 0 || access("/usr/local/cuda/bin/compute-sanitizer", X_OK) == 0)
        GTEST_SKIP() << "this machine has a compute-sanitizer of its own";
    std::filesystem::remove(path("bin/compute-sanitizer"));
    EXPECT_EQ(check("--seconds 60 --only tests,memcheck").code, 1);
    const nlohmann::json all = json();
    EXPECT_EQ(outcome(all, "tests"), "passed");
    EXPECT_EQ(outcome(all, "memcheck"), "not run");
    EXPECT_THAT(report(".md"), Not(HasSubstr("tests | failed")));
}

}  // namespace
}  // namespace slipstream::tools
