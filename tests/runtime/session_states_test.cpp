// Sessions of models with recurrent layers: a text that is gone on with is that of one run, and only what follows the
// saved states is computed again, after any end, with guesses or none, wherever KV and weights are.
#include "runtime/session/session_states.h"

#include <chrono>
#include <thread>

#include <gmock/gmock.h>

#include "tests/runtime/session_program.h"
#include "tests/support/error_text.h"
#include "tests/support/split_engine.h"
#include "tests/support/target_texts.h"
#include "tests/support/temp_folder.h"

namespace slipstream {
namespace {

using namespace session_program;
namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr std::int64_t kNoCut = std::int64_t{1} << 40;

Case hybrid(std::int64_t n_prompt, std::int64_t n_tokens, std::int64_t budget) {
    return {.n_prompt = n_prompt, .n_tokens = n_tokens, .budget = budget, .delta_nets = true};
}

class SessionStatesTest : public testing::Test {
protected:
    void cut(const Case& made, std::int64_t n, const Expected& expected) const {
        EXPECT_THROW(static_cast<void>(Program(made).tell(path_, n, expected.future)), Program::Cut);
    }
    // Goes on to the end.
    [[nodiscard]] Told finish(const Case& made, const Expected& expected) const {
        Told told = Program(made).tell(path_, kNoCut, expected.future);
        EXPECT_EQ(told.tokens, expected.told.tokens);
        EXPECT_EQ(told.text, expected.told.text);
        EXPECT_EQ(told.reason, expected.told.reason);
        return told;
    }

    // Returns the position of the last whole states, whatever the length of the text.
    [[nodiscard]] std::int64_t states_position() const {
        const std::vector<std::byte> bytes = file_bytes(path_);
        return StatesFile::inspect(path_, read_session(bytes, "s").begin, kNoCut)->position;
    }

    TempFolder folder_;
    const fs::path path_ = folder_.path() / "s";
    const fs::path side_ = folder_.path() / "s.states";
};

TEST_F(SessionStatesTest, ATextGoesOnAfterItsStates) {
    for (const std::int64_t n_prompt : {5, 511, 512, 513, 600, 1100}) {
        for (const std::int64_t budget : {1, 8}) {
            SCOPED_TRACE(testing::Message() << n_prompt << " tokens, budget " << budget);
            const Case made = hybrid(n_prompt, n_prompt == 5 ? 620 : 60, budget);
            const Expected expected = expected_of(made);
            const std::int64_t last = n_prompt == 5 ? 600 : 50;
            fs::remove(path_);
            fs::remove(side_);
            for (const std::int64_t at : {last / 3, last / 2, last}) cut(made, at, expected);
            const Told told = finish(made, expected);
            EXPECT_EQ(told.damage, "");
            // At most what follows the first states: how soon others replace them is a matter of time.
            EXPECT_LE(told.fed_again, n_prompt + last + budget - 512);
            EXPECT_GT(told.fed_again, 0);
        }
    }
}

// Each start begins with the states that those before it saved, across several borders. The first states that a start
// can save are saved at once.
TEST_F(SessionStatesTest, StatesFollowTheText) {
    for (const std::int64_t budget : {1, 8}) {
        fs::remove(path_);
        fs::remove(side_);
        const Case made = hybrid(700, 1200, budget);
        const Expected expected = expected_of(made);
        for (const std::int64_t at : {100, 340, 350, 850, 1150}) cut(made, at, expected);
        const Told told = finish(made, expected);
        EXPECT_LE(told.fed_again, 700 + 1150 + budget - 1536);
        EXPECT_EQ(told.damage, "");
    }
}

TEST_F(SessionStatesTest, OnAnotherPlacement) {
    const Case resident = hybrid(600, 60, 8);
    Case streamed = resident;
    streamed.resident_chunks = {8, 8, 1, 8};
    streamed.weights_stream = true;
    const Expected expected = expected_of(resident);
    for (const auto& [first, second] : {std::pair(resident, streamed), std::pair(streamed, resident)}) {
        fs::remove(path_);
        fs::remove(side_);
        cut(first, 25, expected);
        EXPECT_LE(finish(second, expected).fed_again, 600 + 25 + 8 - 512);
    }
}

TEST_F(SessionStatesTest, DamagedStatesAreComputedAgain) {
    const Case made = hybrid(600, 40, 1);
    const Expected expected = expected_of(made);
    cut(made, 10, expected);
    const std::vector<std::byte> session = file_bytes(path_);
    const std::vector<std::byte> whole = file_bytes(side_);
    // The head; a slot's head; states. The first states are in the second slot.
    for (const std::size_t at : {std::size_t{20}, whole.size() / 2 + 30, whole.size() - 1}) {
        std::vector<std::byte> bytes = whole;
        bytes[at] ^= std::byte{1};
        write_bytes(path_, session);
        write_bytes(side_, bytes);
        const Told told = finish(made, expected);
        EXPECT_EQ(told.fed_again, 610);
        EXPECT_THAT(told.damage, HasSubstr("s.states: "));
        EXPECT_THAT(told.damage, HasSubstr("the text is computed again"));
        // They are saved again.
        EXPECT_EQ(states_position(), 512);
    }
    write_bytes(path_, session);
    write_bytes(side_, std::span(whole).first(100));
    EXPECT_EQ(finish(made, expected).fed_again, 610);
    write_bytes(path_, session);
    write_bytes(side_, whole);
    EXPECT_EQ(finish(made, expected).fed_again, 610 - 512);
}

// States without the KV before them are of no use, and KV without states neither.
TEST_F(SessionStatesTest, StatesAndKvGoTogether) {
    const Case made = hybrid(600, 40, 8);
    const Expected expected = expected_of(made);
    cut(made, 10, expected);
    const std::vector<std::byte> session = file_bytes(path_);
    const std::vector<std::byte> states = file_bytes(side_);
    const SessionContents contents = read_session(session, "s");
    ASSERT_EQ(contents.kv_chunks.size(), 2U);  // of the attention layer alone
    const std::int64_t n_text = 600 + std::ssize(contents.tokens);
    for (const std::int64_t block : {0, 1}) {
        std::vector<std::byte> bytes = session;
        bytes[static_cast<std::size_t>(contents.kv_chunks[block].payload.data() - session.data()) + 100] ^=
            std::byte{1};
        write_bytes(path_, bytes);
        write_bytes(side_, states);
        const Told told = finish(made, expected);
        EXPECT_EQ(told.fed_again, n_text);
        EXPECT_THAT(told.damage, HasSubstr("is damaged"));
    }
    write_bytes(path_, session);
    fs::remove(side_);
    const Told told = finish(made, expected);
    EXPECT_EQ(told.fed_again, n_text);
    EXPECT_THAT(told.damage, HasSubstr("s.states: the states of recurrent layers are missing"));
    EXPECT_THAT(told.damage, HasSubstr("move this file with it"));
}

// Within the limit are the side file and KV; without room for both, nothing is kept but tokens.
TEST_F(SessionStatesTest, ALimitCountsStatesAndKv) {
    Case made = hybrid(900, 40, 1);
    const Expected expected = expected_of(made);
    cut(made, 10, expected);
    const std::uint64_t side_bytes = fs::file_size(side_);
    const std::size_t chunk = KvLayout{2, 16, DType::F16}.chunk_bytes();
    for (const std::size_t n_chunks : {0, 1, 2, 3}) {
        fs::remove(path_);
        fs::remove(side_);
        made.kv_limit = side_bytes + n_chunks * chunk + chunk / 2;
        cut(made, 10, expected);
        EXPECT_EQ(fs::exists(side_), n_chunks >= 2);
        const std::vector<std::byte> session = file_bytes(path_);
        EXPECT_EQ(read_session(session, "s").kv_chunks.size(), n_chunks / 2 * 2);
        EXPECT_EQ(finish(made, expected).fed_again, n_chunks >= 2 ? 910 - 512 : 910) << n_chunks;
    }
    // What is saved is read whatever the limit of the run.
    Case longer = made;
    longer.n_tokens = 50;
    longer.kv_limit = 0;
    EXPECT_EQ(finish(longer, expected_of(longer)).fed_again, 940 - 512);
}

TEST_F(SessionStatesTest, AKvBlockOfARecurrentLayerIsRefused) {
    const Case made = hybrid(300, 20, 1);
    const Expected expected = expected_of(made);
    cut(made, 10, expected);
    std::vector<std::byte> bytes = file_bytes(path_);
    std::uint64_t chain = read_session(bytes, "s").chain;
    const auto head = record_head(RecordKind::KvChunk, kv_record_index(0, 0), {}, chain);
    bytes.insert(bytes.end(), head.begin(), head.end());
    EXPECT_THAT(error_text<FormatError>([&] { static_cast<void>(read_session(bytes, "s")); }),
                HasSubstr("a KV block of a layer that has no KV"));
}

// If states cannot be saved, this is said once, and the text goes on.
TEST_F(SessionStatesTest, WhatCannotBeSavedIsSaidOnce) {
    const auto files = make_tiny_model({.n_layers = 4, .head_norms = true, .delta_nets = true});
    SplitEngine engine(*files, {4}, Streams::Nothing);
    SessionBegin begin = sample_begin();
    begin.context_tokens = SplitEngine::kContext;
    begin.prompt = prompt_of(1100);
    begin.kv_bytes = session_kv_bytes(engine.target->shape().kv);
    SessionFile session = SessionFile::create(path_, begin);
    folder_.write("s.states", "a list of states");
    SessionKv kv(session, *engine.target, kNoLimit);
    EXPECT_THAT(kv.lost_states(), HasSubstr("are damaged or of another session"));
    static_cast<void>(plainly(*engine.target, begin.prompt, 2));
    EXPECT_EQ(kv.save(), std::nullopt);
    const std::optional<std::string> refused = kv.save_states();
    ASSERT_TRUE(refused);
    EXPECT_THAT(
        *refused,
        HasSubstr("s.states: the states of recurrent layers cannot be kept: File exists; remove or rename that file"));
    EXPECT_EQ(kv.save(), std::nullopt);
    EXPECT_EQ(kv.save_states(), std::nullopt);
    EXPECT_EQ(kv.save_last_states(), std::nullopt);
    EXPECT_EQ(kv.n_in_states(), 0);
    EXPECT_EQ(session.n_kv_chunks(), 4);
    fs::remove(side_);
    SessionKv again(session, *engine.target, kNoLimit);
    EXPECT_EQ(again.save(), std::nullopt);
    EXPECT_EQ(again.save_states(), std::nullopt);
    EXPECT_EQ(again.n_in_states(), 1024);
}

// An older copy of a session beside newer states: those after its text are not used.
TEST_F(SessionStatesTest, StatesAfterTheTextAreNotUsed) {
    const Case made = hybrid(600, 480, 1);
    const Expected expected = expected_of(made);
    cut(made, 10, expected);
    const std::vector<std::byte> session = file_bytes(path_);
    cut(made, 450, expected);  // new states are saved at once in a run
    ASSERT_EQ(states_position(), 1024);
    write_bytes(path_, session);
    EXPECT_EQ(finish(made, expected).fed_again, 610 - 512);
}

// What a disk no longer gives is computed again.
TEST_F(SessionStatesTest, StatesThatCannotBeReadAreComputedAgain) {
    const auto files = make_tiny_model({.n_layers = 4, .head_norms = true, .delta_nets = true});
    SessionBegin begin = sample_begin();
    begin.context_tokens = SplitEngine::kContext;
    begin.prompt = prompt_of(1100);
    SplitEngine first(*files, {4}, Streams::Nothing);
    begin.kv_bytes = session_kv_bytes(first.target->shape().kv);
    const SessionFile session = SessionFile::create(path_, begin);
    const Generated expected = plainly(*first.target, begin.prompt, 2);
    EXPECT_EQ(SessionStates(session, *first.target, SessionUse::GoOn).save(1100), std::nullopt);
    SplitEngine second(*files, {4}, Streams::Nothing);
    SessionStates states(session, *second.target, SessionUse::GoOn);
    EXPECT_EQ(states.find(1100), 1024);
    fs::resize_file(side_, fs::file_size(side_) - 1);  // within the last layer of the states
    EXPECT_FALSE(states.restore());
    EXPECT_THAT(states.lost(), HasSubstr("s.states: the states of recurrent layers cannot be read"));
    EXPECT_EQ(states.find(1100), 0);
    const Generated found = plainly(*second.target, begin.prompt, 2);
    EXPECT_EQ(found.text, expected.text);
    EXPECT_TRUE(same_bits(found.logits, expected.logits));
    EXPECT_EQ(states.save(1100), std::nullopt);
    EXPECT_EQ(states.position(), 1024);
}

// Half a minute passes between two saves of a run, but its last states are saved at its end.
TEST_F(SessionStatesTest, SavesWaitForEachOther) {
    const auto files = make_tiny_model({.n_layers = 4, .head_norms = true, .delta_nets = true});
    for (const auto gap : {SessionStates::kLeastGap, SessionStates::Clock::duration(0)}) {
        SplitEngine engine(*files, {4}, Streams::Nothing);
        SessionBegin begin = sample_begin();
        begin.context_tokens = SplitEngine::kContext;
        begin.prompt = prompt_of(1600);
        begin.kv_bytes = session_kv_bytes(engine.target->shape().kv);
        fs::remove(path_);
        StatesFile::remove(path_);
        const SessionFile session = SessionFile::create(path_, begin);
        static_cast<void>(plainly(*engine.target, begin.prompt, 2));
        SessionStates states(session, *engine.target, SessionUse::GoOn, gap);
        EXPECT_EQ(states.save(600), std::nullopt);
        EXPECT_EQ(states.position(), 512);
        // A hundred times the time of a save pass soon; half a minute does not.
        for (int i = 0; i < (gap.count() == 0 ? 600 : 10) && states.position() < 1024; ++i) {
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
            EXPECT_EQ(states.save(1100), std::nullopt);
        }
        EXPECT_EQ(states.position(), gap.count() == 0 ? 1024 : 512);
        EXPECT_EQ(states.save_last(1600), std::nullopt);
        EXPECT_EQ(states.position(), 1536);
    }
}

// Right after a prefill chunk, before there is a checkpoint of its states.
TEST(SessionStates, AreReadFromTheKeptOnesOrACheckpoint) {
    const auto files = make_tiny_model({.n_layers = 4, .head_norms = true, .delta_nets = true});
    SplitEngine engine(*files, {4}, Streams::Nothing);
    RankTarget& target = *engine.target;
    const auto feed = [&](std::int64_t n) {
        std::vector<NodeId> nodes;
        for (std::int64_t i = 0; i < n; ++i)
            nodes.push_back(target.add_node(i == 0 ? kCommittedTip : nodes.back(), NodeKind::Certain));
        static_cast<void>(target.run({.tokens = prompt_of(n), .nodes = nodes}));
        target.commit(nodes);
    };
    const auto states = [&] {
        std::vector<std::vector<std::byte>> all;
        for (const std::int64_t layer : {0, 1, 3}) {
            all.emplace_back(RecurrentStates::state_bytes({&target.shape().kv[layer], 1}));
            target.read_state(layer, 512, all.back().data());
        }
        return all;
    };
    EXPECT_EQ(target.last_state(600, 512), 0);
    feed(512);
    EXPECT_EQ(target.last_state(600, 512), 512);
    EXPECT_EQ(target.last_state(511, 512), 0);
    const auto kept = states();
    feed(3);
    EXPECT_EQ(target.last_state(600, 512), 512);
    EXPECT_EQ(states(), kept);
    EXPECT_NE(kept[0], std::vector<std::byte>(kept[0].size()));
}

// The states of a model that is split are those of one device.
TEST(SessionStates, OfAnySplitAreTheSame) {
    const auto files = make_tiny_model({.n_layers = 4, .head_norms = true, .delta_nets = true});
    const std::vector<TokenId> text = prompt_of(1100);
    SplitEngine whole(*files, {4}, Streams::Nothing);
    const Generated expected = plainly(*whole.target, text, 30);
    for (const std::vector<std::int64_t>& from : {std::vector<std::int64_t>{4}, {1, 3}, {2, 2}}) {
        const TempFolder folder;
        const fs::path path = folder.path() / "s";
        SessionBegin begin = sample_begin();
        begin.context_tokens = SplitEngine::kContext;
        begin.prompt = text;
        {
            SplitEngine engine(*files, from, Streams::Nothing);
            begin.kv_bytes = session_kv_bytes(engine.target->shape().kv);
            SessionFile session = SessionFile::create(path, begin);
            session.append_tokens(std::vector<TokenId>{expected.text[text.size()]});
            SessionKv kv(session, *engine.target, kNoLimit);
            EXPECT_EQ(kv.restore(), 0);
            static_cast<void>(plainly(*engine.target, text, 2));
            EXPECT_EQ(kv.save(), std::nullopt);
            EXPECT_EQ(kv.save_states(), std::nullopt);
            EXPECT_EQ(kv.save_last_states(), std::nullopt);
        }
        for (const std::vector<std::int64_t>& to : {std::vector<std::int64_t>{4}, {3, 1}, {1, 1, 2}}) {
            for (const Streams streams : {Streams::Nothing, Streams::Both}) {
                SplitEngine engine(*files, to, streams);
                auto session = SessionFile::open(path);
                SessionKv kv(*session, *engine.target, kNoLimit);
                EXPECT_EQ(kv.restore(), 1024);
                EXPECT_EQ(engine.target->n_committed(), 1024);
                const Generated found = plainly(*engine.target, text, 30);
                EXPECT_EQ(found.text, expected.text);
                EXPECT_TRUE(same_bits(found.logits, expected.logits));
            }
        }
    }
}

}  // namespace
}  // namespace slipstream
