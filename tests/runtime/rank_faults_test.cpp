// A thousand random faults: on any device of two or three that share layers or matrices, at any time, of any kind, as
// often in a prompt as behind it. None hangs, none loses anything: the error names the device, memory comes back whole,
// the session goes on, here and elsewhere, to the text of a run without faults.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <tuple>
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
constexpr std::size_t kRing = std::size_t{1} << 19;  // a prompt goes through layers at once

enum class Kind : std::uint8_t { Allocation, Copy, Stall, Kernel, Rows };
constexpr Kind kKinds[] = {Kind::Allocation, Kind::Copy, Kind::Stall, Kind::Kernel, Kind::Rows};
// A seed decides by its remainder which kind of fault strikes at which of two times.
static_assert(std::gcd(SLIPSTREAM_FAULT_STRIDE, 2 * std::size(kKinds)) == 1, "such a stride leaves out kinds or times");

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

/// Where a fault is planted, and strikes.
enum class When : std::uint8_t { Opening, Prompt, Decoding };

/// A mixture of experts, split by layers; on two devices with slots for some experts, so that texts go on with another
/// number of slots.
struct MixtureEngine : SplitEngine {
    using SplitEngine::SplitEngine;
    MixtureEngine(const ModelFiles& files, const std::vector<std::int64_t>& parts, Streams streams,
                  std::size_t ring_bytes, const std::vector<std::unique_ptr<RankDevice>>& devices)
        : SplitEngine(files, parts, streams, ring_bytes, devices, WindowedKv::Whole, kContext,
                      parts.size() == 2 && (streams == Streams::Weights || streams == Streams::Both)
                          ? std::optional(ExpertSlots(static_cast<std::int32_t>(parts.front())))
                          : std::nullopt) {}
};

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
        const bool early = static_cast<std::size_t>(seed) / std::size(kKinds) % 2 == 0;
        if (kind == Kind::Allocation) {
            when = early ? When::Opening : When::Prompt;
        } else {
            when = early ? When::Prompt : When::Decoding;
        }
        // Those that need something that streams get it.
        const std::vector<Streams> all{Streams::Weights, Streams::Kv, Streams::Both};
        streams = (kind == Kind::Copy || kind == Kind::Stall) || random() % 4 > 0 ? pick(all) : Streams::Nothing;
        rank = random() % split.size();
        n_prompt = pick(when == When::Prompt ? std::vector<std::int64_t>{600, 1100, 1300}
                                             : std::vector<std::int64_t>{20, 245, 500, 1100});
    }
    template <typename T>
    [[nodiscard]] T pick(const std::vector<T>& choices) {
        return choices[random() % choices.size()];
    }

    std::mt19937 random;
    std::vector<std::int64_t> split, other_split;
    Kind kind = Kind::Copy;
    When when = When::Prompt;
    Streams streams = Streams::Nothing;
    std::size_t rank = 0;
    std::int64_t n_prompt = 0;
};

/// Devices that faults are planted into.
struct FaultyDevices {
    explicit FaultyDevices(std::size_t n, std::chrono::nanoseconds stall_after = std::chrono::milliseconds(300))
        : faults(n) {
        for (std::size_t i = 0; i < n; ++i) {
            faults[i].stall_after = stall_after;
            devices.push_back(std::make_unique<RankDevice>(
                CpuDeviceOptions{.name = "device " + std::to_string(i + 1), .faults = &faults[i]}));
        }
    }
    std::vector<CpuFaults> faults;
    std::vector<std::unique_ptr<RankDevice>> devices;
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

    /// Generates what a session lacks, over a target that may hold some of it; what a program does. `behind_prompt` is
    /// called once the first token is there.
    static std::vector<TokenId> generate(
        Target& target, SessionFile& session, const std::function<void()>& behind_prompt = [] {}) {
        SessionKv kv(session, target, kNoLimit);
        std::vector<TokenId> text = session.begin().prompt;
        text.insert(text.end(), session.tokens().begin(), session.tokens().end());
        if (target.n_committed() == 0) kv.restore();
        Sampler sampler(session.begin().sampling, kTinyVocab);
        ExactVerifier verifier(sampler);
        NoProposer nothing;
        Sequence sequence(target);
        GenerationLoop loop(sequence, verifier, nothing, {.budget = 1, .end_tokens = {}});
        loop.resume(std::move(text), std::ssize(session.begin().prompt));
        while (std::ssize(session.tokens()) < kTokens) {
            const auto fresh = loop.step(kTokens - std::ssize(session.tokens()));
            CHECK(!fresh.empty());
            if (session.tokens().empty()) behind_prompt();
            session.append_tokens(fresh);
            EXPECT_EQ(kv.save(), std::nullopt);
        }
        return session.tokens();
    }

    SessionFile begin_session(const std::filesystem::path& path, std::int64_t n_prompt, const Target& target) {
        SessionBegin begin;
        begin.program_version = "1.2.3";
        begin.model_path = "tiny";
        begin.device_kind = "cpu";
        begin.instruction_form = "avx2";
        begin.context_tokens = SplitEngine::kContext;
        begin.kv_bytes = session_kv_bytes(target.shape().kv);
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

    // How often a run without faults comes by that fault, then.
    const std::map<When, std::int64_t>& passings(const Scene& scene) {
        Passings& all = passings_[{scene.n_prompt, scene.streams, scene.split}];
        if (all.empty()) {
            FaultyDevices on(scene.split.size());
            const std::int64_t never = std::int64_t{1} << 40;
            const auto count = [&](When when) {
                for (std::size_t rank = 0; rank < on.faults.size(); ++rank) {
                    for (const Kind kind : kKinds) {
                        const std::int64_t before = countdown(on.faults[rank], kind).exchange(never);
                        all[{rank, kind}][when] = never - before;
                    }
                }
            };
            count(When::Opening);
            std::optional<Engine> engine;
            engine.emplace(*files_, scene.split, scene.streams, kRing, on.devices);
            if constexpr (!kSplitDecides) {
                EXPECT_TRUE(engine->target->takes_prompt(512));
            }
            count(When::Opening);
            SessionFile session = begin_session(folder_.path() / "counted", scene.n_prompt, *engine->target);
            generate(*engine->target, session, [&] { count(When::Prompt); });
            count(When::Decoding);
            std::filesystem::remove(session.path());
        }
        return all[{scene.rank, scene.kind}];
    }

    // One fault; where it has struck.
    std::optional<When> strike(Scene& scene) {
        FaultyDevices on(scene.split.size());
        const auto& devices = on.devices;
        std::atomic<std::int64_t>& left = countdown(on.faults[scene.rank], scene.kind);
        const std::string name = "device " + std::to_string(scene.rank + 1);
        const std::int64_t n_passings = passings(scene).at(scene.when);
        const std::int64_t nth = 1 + static_cast<std::int64_t>(scene.random()) % std::max<std::int64_t>(n_passings, 1);
        bool planted = false;
        std::optional<When> struck;
        const auto look = [&](When when) {
            if (planted && !struck && left == 0) struck = when;
        };
        const auto plant = [&](When when) {
            if (when != scene.when || planted) return;
            planted = true;
            left = nth;
        };
        Attempts attempt;

        plant(When::Opening);
        std::optional<Engine> engine;
        const auto open = [&] { engine.emplace(*files_, scene.split, scene.streams, kRing, devices); };
        if (!attempt(open)) {
            for (const auto& device : devices) expect_whole(*device);
            EXPECT_TRUE(attempt(open));
        }
        look(When::Opening);
        const std::filesystem::path path = folder_.path() / "session";
        const std::filesystem::path copy = folder_.path() / "copy";
        {
            SessionFile session = begin_session(path, scene.n_prompt, *engine->target);
            plant(When::Prompt);
            const bool done = attempt([&] {
                generate(*engine->target, session, [&] {
                    look(When::Prompt);
                    plant(When::Decoding);
                });
            });
            look(session.tokens().empty() ? When::Prompt : When::Decoding);
            std::filesystem::copy_file(path, copy, std::filesystem::copy_options::overwrite_existing);
            // Here, over the same devices; what failed behind the last pass is told by the next one.
            if (!done) attempt([&] { static_cast<void>(generate(*engine->target, session)); });
            EXPECT_EQ(session.tokens(), undisturbed(scene));
        }
        // Another run on the same devices, from nothing.
        look(When::Decoding);
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

    using Passings = std::map<std::pair<std::size_t, Kind>, std::map<When, std::int64_t>>;  // by rank and kind

    static void expect_whole(RankDevice& device) {
        Budget& budget = device.device.budget();  // scratch of kernels is the device's own
        EXPECT_EQ(budget.used_bytes(), budget.used_bytes(MemoryTag::Workspace)) << device.device.name();
        EXPECT_EQ(device.arena.used_bytes(), 0U) << device.device.name();
    }

    std::unique_ptr<ModelFiles> files_ = make_tiny_model({.n_layers = 4,
                                                          .n_q_heads = 6,
                                                          .n_kv_heads = 3,
                                                          .weight_type = DType::BF16,
                                                          .n_experts = std::is_same_v<Engine, MixtureEngine> ? 5 : 0});
    TempFolder folder_;
    std::map<std::pair<std::int64_t, std::vector<std::int64_t>>, std::vector<TokenId>> texts_;  // by prompt and split
    std::map<std::tuple<std::int64_t, Streams, std::vector<std::int64_t>>, Passings> passings_;
};

using Engines = testing::Types<SplitEngine, TensorEngine, MixtureEngine>;
TYPED_TEST_SUITE(RankFaults, Engines);

TYPED_TEST(RankFaults, NoneHangsAndNothingIsLost) {
    std::map<Kind, std::map<When, int>> n_struck;
    for (int seed = 0; seed < kFaults && !this->HasFailure(); seed += SLIPSTREAM_FAULT_STRIDE) {
        Scene scene(seed, kSplits<TypeParam>);
        SCOPED_TRACE("seed " + std::to_string(seed));
        if (const std::optional<When> when = this->strike(scene)) ++n_struck[scene.kind][*when];
    }
    // A tenth of all faults are of a kind and a time; some pass by what the split has none of.
    const int few = std::max(1, kFaults / SLIPSTREAM_FAULT_STRIDE / 20);
    for (const Kind kind : kKinds) {
        EXPECT_GE(n_struck[kind][When::Prompt], few) << static_cast<int>(kind);
        EXPECT_GE(n_struck[kind][kind == Kind::Allocation ? When::Opening : When::Decoding], few)
            << static_cast<int>(kind);
    }
}

// All at once cost the time of one, and the text nothing.
TYPED_TEST(RankFaults, DevicesThatStandStillTogetherAreWaitedForOnce) {
    Scene scene(0, kSplits<TypeParam>);
    scene.split = kSplits<TypeParam>[2];
    scene.n_prompt = 20;
    FaultyDevices on(scene.split.size(), std::chrono::seconds(2));
    TypeParam engine(*this->files_, scene.split, Streams::Weights, kRing, on.devices);
    SessionFile session = this->begin_session(this->folder_.path() / "session", scene.n_prompt, *engine.target);
    for (CpuFaults& faults : on.faults) faults.copies_until_stall = 3;
    const auto began = std::chrono::steady_clock::now();
    EXPECT_THROW(this->generate(*engine.target, session), RankFailed);
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(4));
    for (const CpuFaults& faults : on.faults) EXPECT_EQ(faults.copies_until_stall, 0);
    EXPECT_EQ(this->generate(*engine.target, session), this->undisturbed(scene));
}

}  // namespace
}  // namespace slipstream
