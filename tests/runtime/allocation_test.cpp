// Steady-state decoding allocates nothing, on the heap or on the device. Every operator new of this program is counted
// while a step runs, in all threads; device memory shows in the device's budget.
#include <gtest/gtest.h>

#include "kernels/cpu_device.h"
#include "runtime/cache/cache_fill.h"
#include "runtime/loop/generation_loop.h"
#include "runtime/loop/loop_needs.h"
#include "runtime/pass/pass_stream.h"
#include "runtime/ranks/rank_target.h"
#include "tests/support/allocation_counter.h"
#include "tests/support/device_self_check.h"
#include "tests/support/scripted_proposer.h"
#include "tests/support/tensor_engine.h"
#include "tests/support/tiny_model.h"

namespace slipstream {
namespace {

struct Setting {
    std::int64_t n_prompt;
    std::int64_t budget;  // 1: no proposer
    int n_threads;
    SamplerOptions sampling;
    DType weight_type;
    bool self_check = false;
};

std::vector<TokenId> prompt_of(std::int64_t n) {
    std::vector<TokenId> prompt(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<TokenId>((i * 31 + 7) % 97);
    return prompt;
}

/// What a call of `work` allocated, as a message; empty where nothing.
template <typename Work>
std::string allocated_by(CpuDevice& device, Work&& work) {
    const std::int64_t n_before = allocations().n;
    const std::size_t used_before = device.budget().used_bytes();
    const std::size_t peak_before = device.budget().peak_bytes();
    work();
    const std::int64_t n = allocations().n - n_before;
    if (n == 0 && device.budget().used_bytes() == used_before && device.budget().peak_bytes() == peak_before) return "";
    return fmt::format("{} heap allocations; device memory from {} (peak {}) to {} (peak {})", n, used_before,
                       peak_before, device.budget().used_bytes(), device.budget().peak_bytes());
}

/// Steps through 600 tokens behind the prompt, over two borders of chunks; each but the first must allocate nothing.
void expect_quiet(const Setting& setting, std::vector<TokenId> future = {}) {
    SCOPED_TRACE(testing::Message() << "prompt " << setting.n_prompt << ", budget " << setting.budget << ", "
                                    << setting.n_threads << " threads, " << dtype_name(setting.weight_type));
    const auto files = make_tiny_model({.weight_type = setting.weight_type});
    CpuDevice device({.n_threads = setting.n_threads});
    const Model model(*files, device, {});
    KvCache cache(
        device, model.kv_layouts(), 2048,
        setting.self_check ? SelfCheck::scratch_nodes_for(setting.budget) : scratch_nodes_for(setting.budget));
    Forward forward(model, forward_limits_for(setting.budget));
    Sampler sampler(setting.sampling, model.config().vocab);
    NoProposer none;
    ScriptedProposer scripted(std::move(future), 0.7, 5);
    ExactVerifier verifier(sampler);
    RankTarget target(forward, cache);
    Sequence sequence(target);
    GenerationLoop loop(sequence, verifier, setting.budget > 1 ? static_cast<Proposer&>(scripted) : none,
                        {.budget = setting.budget, .end_tokens = {}});
    DeviceSelfCheck self_check(model, cache);
    if (setting.self_check) loop.check_with(self_check);
    loop.begin(prompt_of(setting.n_prompt));
    ASSERT_FALSE(loop.step(1000).empty());  // the prompt and the first token: scratch of the kernels is taken here
    const auto end = static_cast<std::size_t>(setting.n_prompt + 600);
    while (loop.text().size() < end) {
        bool stepped = false;
        ASSERT_EQ(allocated_by(device, [&] { stepped = !loop.step(1000).empty(); }), "")
            << "at position " << loop.text().size();
        ASSERT_TRUE(stepped);
    }
}

TEST(Allocation, IsSeenWhereItHappens) {
    CpuDevice device({.n_threads = 1});
    EXPECT_NE(allocated_by(device, [] { std::vector<int>(100).shrink_to_fit(); }), "");
    EXPECT_NE(allocated_by(device, [&] { const Buffer buffer = device.allocate(64, MemoryTag::Workspace, "a test"); }),
              "");
    EXPECT_EQ(allocated_by(device, [] {}), "");
}

TEST(Allocation, DecodingAllocatesNothing) {
    const SamplerOptions filtered{.temperature = 0.9, .top_k = 0, .top_p = 0.9, .min_p = 0.01, .repeat_penalty = 1.1};
    for (const DType type : {DType::F32, DType::Q8_0})
        for (const int n_threads : {1, 2}) expect_quiet({5, 1, n_threads, {.temperature = 0.0}, type});
    expect_quiet({700, 1, 2, filtered, DType::BF16});
    expect_quiet({250, 1, 1, {.temperature = 1.0, .top_k = 50}, DType::F32});
}

TEST(Allocation, DecodingWithGuessesAllocatesNothing) {
    // What plain decoding says, so that guesses are accepted and paths are long.
    const auto files = make_tiny_model({});
    CpuDevice device({.n_threads = 1});
    const Model model(*files, device, {});
    for (const std::int64_t n_prompt : {5, 700}) {
        KvCache cache(device, model.kv_layouts(), 2048, scratch_nodes_for(1));
        Forward forward(model, forward_limits_for(1));
        Sampler sampler({.temperature = 0.0}, model.config().vocab);
        NoProposer none;
        ExactVerifier verifier(sampler);
        RankTarget target(forward, cache);
        Sequence sequence(target);
        GenerationLoop loop(sequence, verifier, none, {.budget = 1, .end_tokens = {}});
        loop.begin(prompt_of(n_prompt));
        while (std::ssize(loop.text()) < n_prompt + 700) ASSERT_FALSE(loop.step(1).empty());
        for (const std::int64_t budget : {4, 32})
            for (const int n_threads : {1, 2})
                expect_quiet({n_prompt, budget, n_threads, {.temperature = 0.0}, DType::F32}, loop.text());
        expect_quiet({n_prompt, 16, 1, {.temperature = 0.0}, DType::F32, true}, loop.text());
    }
}

TEST(Allocation, PrefillChunksAllocateNothingAfterTheFirst) {
    for (const int n_threads : {1, 2}) {
        const auto files = make_tiny_model({});
        CpuDevice device({.n_threads = n_threads});
        const Model model(*files, device, {});
        KvCache cache(device, model.kv_layouts(), 2048, scratch_nodes_for(1));
        Forward forward(model, forward_limits_for(1));
        Sampler sampler({.temperature = 0.0}, model.config().vocab);
        NoProposer none;
        ExactVerifier verifier(sampler);
        RankTarget target(forward, cache);
        Sequence sequence(target);
        GenerationLoop loop(sequence, verifier, none, {.budget = 1, .end_tokens = {}});
        loop.begin(prompt_of(520));
        ASSERT_FALSE(loop.step(1).empty());
        cache.truncate(0);
        loop.begin(prompt_of(1600));
        EXPECT_EQ(allocated_by(device, [&] { static_cast<void>(loop.prefill()); }), "");
        EXPECT_EQ(cache.n_committed(), 1536);
        EXPECT_EQ(allocated_by(device, [&] { static_cast<void>(loop.step(1)); }), "");
    }
}

// Weights and KV that stream, all of them: 600 tokens over two borders of chunks, whose rows go to the host and come
// back; at the beginning of a text, and behind more tokens than one piece of the host's memory used to hold.
// With `slots` some experts have slots.
void expect_streamed_passes_allocate_nothing(const TinyModelOptions& options, std::int32_t slots = 0) {
    for (const auto& [budget, n_before] : {std::pair<std::int64_t, std::int64_t>{1, 0}, {32, 0}, {1, 3600}}) {
        const auto files = make_tiny_model(options);
        PinnedArena arena({.limit_bytes = std::size_t{256} << 20, .page_lock = PageLock::Pageable});
        CpuDevice device({.n_threads = 2});
        const std::size_t n_items = cut_weight_items(files->weights(), WeightRounding::None, 16384).size();
        const Model model(
            *files, device,
            {.context_tokens = n_before + 2048,
             .placement = {.max_item_bytes = 16384, .streams = std::vector<bool>(n_items, true), .arena = &arena}});
        KvCache cache(device, model.kv_layouts(), n_before + 2048, scratch_nodes_for(budget),
                      {.resident_chunks = {0, 1}, .arena = &arena});
        std::vector<std::int32_t> expert_slots;
        for (const LayerConfig& layer : model.config().layers)
            expert_slots.push_back(layer.feed_forward.experts.empty() ? 0 : slots);
        PassStream pass(std::vector{PassReads{&model, &cache}}, arena, std::size_t{200} << 10, expert_slots);
        Forward forward(model, forward_limits_for(budget), &pass);
        Sampler sampler({.temperature = 0.0}, model.config().vocab);
        NoProposer none;
        ScriptedProposer scripted(prompt_of(1200), 0.2, 5);
        ExactVerifier verifier(sampler);
        RankTarget target(forward, cache);
        Sequence sequence(target);
        GenerationLoop loop(sequence, verifier, budget > 1 ? static_cast<Proposer&>(scripted) : none,
                            {.budget = budget, .end_tokens = {}});
        if (n_before > 0) fill_cache(cache, forward.exec(), n_before, 3);
        loop.begin(prompt_of(n_before + 500));
        const auto n_text = [&] { return std::ssize(loop.text()) - n_before; };
        while (n_text() < 530) ASSERT_FALSE(loop.step(1000).empty());  // the first chunks are on the host
        const std::size_t host_bytes = arena.used_bytes();
        while (n_text() < 1100) {
            bool stepped = false;
            ASSERT_EQ(allocated_by(device, [&] { stepped = !loop.step(1000).empty(); }), "")
                << "at position " << loop.text().size() << ", budget " << budget;
            ASSERT_TRUE(stepped);
        }
        EXPECT_EQ(arena.used_bytes(), host_bytes);
        EXPECT_GT(pass.figures().kv_bytes, 0U);
    }
}

TEST(Allocation, StreamedPassesAllocateNothing) {
    expect_streamed_passes_allocate_nothing({});
}

TEST(Allocation, StreamedPassesOfAMixtureAllocateNothing) {
    for (const std::int32_t slots : {0, 3, 7})
        expect_streamed_passes_allocate_nothing({.n_experts = 7, .n_chosen = 3}, slots);
}

// Ranks on threads of their own, sums between them, weights that stream.
TEST(Allocation, PassesOverSeveralDevicesAllocateNothing) {
    const auto files = make_tiny_model({.n_q_heads = 6, .n_kv_heads = 3});
    TensorEngine engine(*files, {2, 1}, Streams::Both);
    Sampler sampler({.temperature = 0.0}, files->config().vocab);
    NoProposer none;
    ExactVerifier verifier(sampler);
    Sequence sequence(*engine.target);
    GenerationLoop loop(sequence, verifier, none, {.budget = 1, .end_tokens = {}});
    loop.begin(prompt_of(500));
    while (std::ssize(loop.text()) < 530) ASSERT_FALSE(loop.step(1000).empty());  // the first chunks are on the host
    while (std::ssize(loop.text()) < 900) {
        for (const auto& each : engine.own) {
            ASSERT_EQ(allocated_by(each->device, [&] { static_cast<void>(loop.step(1)); }), "")
                << "at position " << loop.text().size();
        }
    }
}

}  // namespace
}  // namespace slipstream
