// A thousand random faults: on any device of two or three that share layers or matrices, at any time, of any kind. None
// hangs, none loses anything: the error names the device, memory comes back whole, the session goes on, here and
// elsewhere, to the text of a run without faults.
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <type_traits>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/cpu_faults.h"
#include "runtime/loop/generation_loop.h"
#include "runtime/session/session_kv.h"
#include "tests/support/split_engine.h"
#include "tests/support/target_texts.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tensor_engine.h"
#include "tests/support/tiny_model.h"

namespace slipstream {
namespace {

constexpr std::int64_t kTokens = 30;
constexpr std::size_t kNoLimit = std::size_t{1} << 40;
constexpr int kFaults = 1000;

enum class Kind : std::uint8_t { Allocation, Copy, Stall, Kernel, Rows };
constexpr Kind kKinds[] = {Kind::Allocation, Kind::Copy, Kind::Stall, Kind::Kernel, Kind::Rows};

std::atomic<std::int64_t>& countdown(CpuFaults& faults, Kind kind) {
    switch (kind) {
        case Kind::Allocation:
            return faults.allocations_until_failure;
        case Kind::Copy:
            return faults.copies_until_failure;
        case Kind::Stall:
            return faults.copies_until_stall;
        case Kind::Kernel:
            return faults.ops_until_failure;
        case Kind::Rows:
            break;
    }
    return faults.rows_until_failure;
}

/// How a model of four layers and three kv heads may be shared out.
template <typename Engine>
const std::vector<std::vector<std::int64_t>> kSplits{{2, 2}, {3, 1}, {2, 1, 1}, {1, 1, 2}};
template <>
const std::vector<std::vector<std::int64_t>> kSplits<TensorEngine>{{2, 1}, {1, 2}, {1, 1, 1}};

/// What one fault is planted into.
struct Scene {
    Scene(int seed, const std::vector<std::vector<std::int64_t>>& splits) : random(static_cast<unsigned>(seed)) {
        split = pick(splits);
        other_split = pick(splits);
        kind = kKinds[static_cast<std::size_t>(seed) % std::size(kKinds)];
        // Those that need something that streams get it.
        const std::vector<Streams> all{Streams::Weights, Streams::Kv, Streams::Both};
        streams = (kind == Kind::Copy || kind == Kind::Stall) || random() % 4 > 0 ? pick(all) : Streams::Nothing;
        rank = random() % split.size();
        n_prompt = pick(std::vector<std::int64_t>{20, 245, 500, 1100});
        // Evenly over magnitudes: early ones, and ones late in the run.
        const double most = kind == Kind::Kernel ? 3000 : kind == Kind::Allocation ? 60 : 300;
        nth = static_cast<std::int64_t>(std::pow(most, std::uniform_real_distribution(0.0, 1.0)(random)));
    }
    template <typename T>
    [[nodiscard]] T pick(const std::vector<T>& choices) {
        return choices[random() % choices.size()];
    }

    std::mt19937 random;
    std::vector<std::int64_t> split, other_split;
    Kind kind = Kind::Copy;
    Streams streams = Streams::Nothing;
    std::size_t rank = 0;
    std::int64_t n_prompt = 0;
    std::int64_t nth = 1;
};

/// Calls that may fail once, and soon.
struct Attempts {
    /// Whether `call` came through.
    template <typename Call>
    bool operator()(const Call& call) {
        const auto began = std::chrono::steady_clock::now();
        const std::size_t n_told = told.size();
        try {
            call();
        } catch (const Error& error) {
            told.emplace_back(error.what());
        }
        EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
        return told.size() == n_told;
    }
    std::vector<std::string> told;
};

template <typename Engine>
class RankFaults : public testing::Test {
protected:
    // Matrices decide the bits: such a text goes on on its own split alone.
    static constexpr bool kSplitDecides = std::is_same_v<Engine, TensorEngine>;

    /// Generates what a session lacks, over a target that may hold some of it; what a program does.
    static std::vector<TokenId> generate(Target& target, SessionFile& session) {
        SessionKv kv(session, target, kNoLimit);
        std::vector<TokenId> text = session.begin().prompt;
        text.insert(text.end(), session.tokens().begin(), session.tokens().end());
        if (target.n_committed() == 0) kv.restore();
        Sampler sampler(session.begin().sampling, kTinyVocab);
        ExactVerifier verifier(sampler);
        NoGuesser nothing;
        GenerationLoop loop(target, verifier, nothing, {.budget = 1, .end_tokens = {}});
        loop.resume(std::move(text), std::ssize(session.begin().prompt));
        while (std::ssize(session.tokens()) < kTokens) {
            const auto fresh = loop.step(kTokens - std::ssize(session.tokens()));
            CHECK(!fresh.empty());
            session.append_tokens(fresh);
            kv.save();
        }
        return session.tokens();
    }

    SessionFile begin_session(const std::filesystem::path& path, std::int64_t n_prompt, const Target& target) {
        SessionBegin begin;
        begin.program_version = "1.2.3";
        begin.model_path = "tiny";
        begin.device_kind = "cpu";
        begin.instruction_form = "avx2";
        begin.context_tokens = RankEngine::kContext;
        begin.n_layers = target.shape().n_layers;
        begin.kv_chunk_bytes = target.shape().kv.chunk_bytes();
        begin.vocab = kTinyVocab;
        begin.sampling.temperature = 0.9;
        begin.sampling.seed = 4;
        begin.prompt = prompt_of(n_prompt);
        return SessionFile::create(path, std::move(begin));
    }

    std::vector<TokenId> undisturbed(const Scene& scene) {
        const std::vector<std::int64_t>& split = kSplitDecides ? scene.split : kSplits<Engine>.front();
        std::vector<TokenId>& text = texts_[{scene.n_prompt, split}];
        if (!text.empty()) return text;
        Engine engine(*files_, split, Streams::Nothing);
        SessionFile session = begin_session(folder_.path() / "plain", scene.n_prompt, *engine.target);
        text = generate(*engine.target, session);
        std::filesystem::remove(session.path());
        return text;
    }

    // One fault; true where it has struck.
    bool strike(const Scene& scene) {
        std::vector<CpuFaults> faults(scene.split.size());
        std::vector<std::unique_ptr<RankDevice>> devices;
        for (std::size_t i = 0; i < faults.size(); ++i) {
            faults[i].stall_after = std::chrono::milliseconds(300);
            devices.push_back(std::make_unique<RankDevice>(
                CpuDeviceOptions{.name = "device " + std::to_string(i + 1), .faults = &faults[i]}));
        }
        std::atomic<std::int64_t>& left = countdown(faults[scene.rank], scene.kind);
        const std::string name = "device " + std::to_string(scene.rank + 1);
        Attempts attempt;

        left = scene.nth;
        std::optional<Engine> engine;
        const auto open = [&] { engine.emplace(*files_, scene.split, scene.streams, devices); };
        if (!attempt(open)) {
            for (const auto& device : devices) expect_whole(*device);
            EXPECT_TRUE(attempt(open));
        }
        const std::filesystem::path path = folder_.path() / "session";
        const std::filesystem::path copy = folder_.path() / "copy";
        {
            SessionFile session = begin_session(path, scene.n_prompt, *engine->target);
            const bool done = attempt([&] { static_cast<void>(generate(*engine->target, session)); });
            std::filesystem::copy_file(path, copy, std::filesystem::copy_options::overwrite_existing);
            // Here, over the same devices; what failed behind the last pass is told by the next one.
            if (!done) attempt([&] { static_cast<void>(generate(*engine->target, session)); });
            EXPECT_EQ(session.tokens(), undisturbed(scene));
        }
        // Another run on the same devices, from nothing.
        const bool struck = left == 0;
        left = 0;
        std::filesystem::remove(path);
        {
            SessionFile session = begin_session(path, scene.n_prompt, *engine->target);
            const auto run = [&] {
                engine->target->forget();
                engine->target->truncate(0);
                static_cast<void>(generate(*engine->target, session));
            };
            if (!attempt(run)) {
                EXPECT_TRUE(attempt(run));
            }
            EXPECT_EQ(session.tokens(), undisturbed(scene));
        }
        engine.reset();
        for (const auto& device : devices) expect_whole(*device);
        // Elsewhere, from the file as the fault left it.
        Engine elsewhere(*files_, kSplitDecides ? scene.split : scene.other_split, Streams::Both);
        {
            std::optional<SessionFile> session = SessionFile::open(copy);
            EXPECT_EQ(generate(*elsewhere.target, session.value()), undisturbed(scene));
        }
        std::filesystem::remove(path);
        EXPECT_LE(attempt.told.size(), struck ? 1U : 0U) << testing::PrintToString(attempt.told);
        for (const std::string& error : attempt.told) EXPECT_THAT(error, testing::StartsWith(name));
        return struck;
    }

    static void expect_whole(RankDevice& device) {
        Budget& budget = device.device.budget();  // scratch of kernels is the device's own
        EXPECT_EQ(budget.used_bytes(), budget.used_bytes(MemoryTag::Workspace)) << device.device.name();
        EXPECT_EQ(device.arena.used_bytes(), 0U) << device.device.name();
    }

    std::unique_ptr<ModelFiles> files_ =
        make_tiny_model({.n_layers = 4, .n_q_heads = 6, .n_kv_heads = 3, .weight_type = DType::BF16});
    TempFolder folder_;
    std::map<std::pair<std::int64_t, std::vector<std::int64_t>>, std::vector<TokenId>> texts_;  // by prompt and split
};

using Engines = testing::Types<SplitEngine, TensorEngine>;
TYPED_TEST_SUITE(RankFaults, Engines);

TYPED_TEST(RankFaults, NoneHangsAndNothingIsLost) {
    std::map<Kind, int> n_struck;
    for (int seed = 0; seed < kFaults && !this->HasFailure(); seed += SLIPSTREAM_FAULT_STRIDE) {
        const Scene scene(seed, kSplits<TypeParam>);
        SCOPED_TRACE("seed " + std::to_string(seed));
        if (this->strike(scene)) ++n_struck[scene.kind];
    }
    for (const Kind kind : kKinds) EXPECT_GT(n_struck[kind], kFaults / SLIPSTREAM_FAULT_STRIDE / 20);
}

}  // namespace
}  // namespace slipstream
