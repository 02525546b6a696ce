// The program on small files of random weights with the layers of several families: sessions that are killed and
// resumed give the text of one run, and `inspect --json` describes the layers.
#include <signal.h>

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/tools/run_program.h"
#include "tests/tools/temporary_folder.h"
#include "tools/lab/random_model/random_model_file.h"
#include "tools/plan/model_shapes.h"

namespace slipstream::tools {
namespace {

struct Case {
    const char* name;
    const char* shape;
    std::int64_t n_layers;
    const char* layers;  // as `inspect` describes them
};

void PrintTo(const Case& which, std::ostream* out) {
    *out << which.name;
}

class FamilyProgram : public testing::TestWithParam<Case> {
protected:
    FamilyProgram() {
        RandomModelOptions options{.config = *find_shape(GetParam().shape, GetParam().n_layers),
                                   .quantisation = Quantisation::Q4_0};
        options.config.vocab = 512;
        options.config.d_model = 64;
        options.config.context_tokens = 2048;
        for (LayerConfig& layer : options.config.layers) {
            layer.feed_forward.d_ff = 96;
            if (layer.attention().window > 0) layer.attention().window = 100;
        }
        write_random_model(model_, options);
    }
    [[nodiscard]] static ProgramRun run_of(const std::vector<std::string>& arguments) {
        ProgramRun run;
        run.arguments = arguments;
        return run;
    }
    [[nodiscard]] std::string at(const char* name) const { return (folder_.path() / name).string(); }

    TemporaryFolder folder_;
    std::string model_ = at("model.gguf");
};

TEST_P(FamilyProgram, KilledSessionsGiveTheTextOfOneRun) {
    const std::vector<std::string> command{"generate", "-m",       model_,         "--prompt", "Once upon a time",
                                           "--seed",   "3",        "--max-tokens", "800",      "--draft",
                                           "context",  "--tables", "off",          "-t",       "1"};
    const ProgramResult whole = run_program(run_of(command));
    ASSERT_EQ(whole.code, 0) << whole.err;
    std::vector<std::string> with_session = command;
    with_session.insert(with_session.end(), {"--session", at("session")});
    // A resumed run first prints the text so far, so each run goes on past the point of the last kill.
    for (const std::size_t n_bytes : {whole.out.size() / 8, whole.out.size() / 4}) {
        RunningProgram program(run_of(with_session));
        program.wait_for_output(n_bytes);
        program.send(SIGKILL);
        ASSERT_EQ(program.finish().code, -1 - SIGKILL);
    }
    with_session.insert(with_session.end(), {"--stats", at("stats")});
    const ProgramResult last = run_program(run_of(with_session));
    EXPECT_EQ(last.code, 0) << last.err;
    EXPECT_EQ(last.out, whole.out);
    const auto stats = nlohmann::json::parse(file_text(at("stats")));
    EXPECT_GT(stats["resumed_tokens"], 100);
}

TEST_P(FamilyProgram, InspectDescribesTheLayers) {
    const ProgramResult found = run_program(run_of({"inspect", "-m", model_, "--json"}));
    ASSERT_EQ(found.code, 0) << found.err;
    EXPECT_EQ(nlohmann::json::parse(found.out)["layers"], GetParam().layers);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, FamilyProgram,
    testing::Values(Case{"Gemma4", "gemma4-12b", 7,
                         "5: window 100, 16/8 heads of 256, theta 10000; 2: full, 16/1 heads of 512, theta 1000000, "
                         "values from keys"},
                    Case{"Granite", "granite3.3-2b", 2, "2: full, 32/8 heads of 64"},
                    Case{"Ministral3", "ministral3-3b", 2, "2: full, 32/8 heads of 128"},
                    Case{"Muse", "muse-glimmer-30b", 6,
                         "1: window 100, 32/2 heads of 128; 1: full, 32/2 heads of 128, no rope; 3: window 100, 32/2 "
                         "heads of 128; 1: full, 32/2 heads of 128, no rope"},
                    Case{"Phi4Mini", "phi4-mini", 2, "2: full, 24/8 heads of 128"},
                    Case{"SmolLm3", "smollm3-3b", 6,
                         "3: full, 16/4 heads of 128; 1: full, 16/4 heads of 128, no rope; 2: full, 16/4 heads of "
                         "128"}),
    [](const auto& which) { return std::string(which.param.name); });

}  // namespace
}  // namespace slipstream::tools
