// The lock on a chat's file: it moves to each file that replaces it, and whoever comes second is told.
#include "tools/chat/chat_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/tools/temporary_folder.h"

namespace slipstream::tools {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr const char* kTaken = "another program has this session open";

ChatSession with_message(const std::string& text) {
    return {.model = "m", .system = {}, .settings = {}, .messages = {{"user", text}, {"assistant", "yes"}}};
}

// What is said to somebody who opens the file; "" if it opens.
std::string refusal(const fs::path& path) {
    try {
        const ChatFile file(path);
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

class ChatFileLock : public testing::Test {
protected:
    [[nodiscard]] fs::path at(const char* name) const { return folder_.path() / name; }
    [[nodiscard]] std::string first_message(const char* name) const {
        return load_chat_session(at(name), {}).messages.at(0).content;
    }
    TemporaryFolder folder_;
};

TEST_F(ChatFileLock, HoldsFromBeforeTheFirstSaveToTheEnd) {
    {
        ChatFile file(at("chat"));
        EXPECT_EQ(file.load({}), std::nullopt);
        EXPECT_THAT(refusal(at("chat")), HasSubstr(at("chat").string() + ": " + kTaken));
        for (const char* text : {"one", "two"}) {
            file.save(with_message(text));
            EXPECT_THAT(refusal(at("chat")), HasSubstr(kTaken)) << text;
        }
        EXPECT_EQ(first_message("chat"), "two") << "others may read";
    }
    EXPECT_EQ(refusal(at("chat")), "");
    EXPECT_EQ(first_message("chat"), "two");
}

TEST_F(ChatFileLock, IsThatOfTheFileUnderAllItsNames) {
    ChatFile(at("chat")).save(with_message("one"));
    fs::create_symlink(at("chat"), at("link"));
    fs::create_symlink(at("later"), at("dangling"));
    ChatFile by_link(at("link"));
    EXPECT_THAT(refusal(at("chat")), HasSubstr(kTaken));
    by_link.save(with_message("two"));
    EXPECT_THAT(refusal(at("chat")), HasSubstr(kTaken));
    EXPECT_TRUE(fs::is_symlink(at("link")));
    EXPECT_EQ(first_message("chat"), "two");
    const ChatFile of_nothing_yet(at("dangling"));
    EXPECT_THAT(refusal(at("later")), HasSubstr(kTaken));
}

TEST_F(ChatFileLock, LeavesNothingWhereNothingWasSaved) {
    EXPECT_EQ(refusal(at("chat")), "");
    EXPECT_FALSE(fs::exists(at("chat")));
    folder_.write("empty", "");
    EXPECT_EQ(refusal(at("empty")), "");
    EXPECT_TRUE(fs::exists(at("empty"))) << "it was there before";
}

TEST_F(ChatFileLock, AFileThatWasRemovedIsMadeAgain) {
    ChatFile first(at("chat"));
    first.save(with_message("one"));
    fs::remove(at("chat"));
    first.save(with_message("two"));
    EXPECT_EQ(first_message("chat"), "two");
    EXPECT_THAT(refusal(at("chat")), HasSubstr(kTaken));
    // Where another program has begun a chat of that name meanwhile, that one stays, however often it is tried.
    fs::remove(at("chat"));
    std::optional<ChatFile> second(at("chat"));
    second->save(with_message("of the second"));
    for (int i = 0; i < 2; ++i) {
        EXPECT_THROW(first.save(with_message("three")), RequestError);
        EXPECT_EQ(first_message("chat"), "of the second");
    }
    second.reset();
    first.save(with_message("three"));
    EXPECT_EQ(first_message("chat"), "three");
}

TEST_F(ChatFileLock, IsOfNoFileThatMayNotBeWritten) {
    ChatFile(at("chat")).save(with_message("one"));
    ASSERT_EQ(chmod(at("chat").c_str(), 0444), 0);
    EXPECT_THAT(refusal(at("chat")), HasSubstr("the chat is write-protected; allow writing (chmod u+w)"));
    EXPECT_EQ(first_message("chat"), "one");
    ASSERT_EQ(chmod(at("chat").c_str(), 0600), 0);
    ChatFile file(at("chat"));
    ASSERT_EQ(chmod(at("chat").c_str(), 0444), 0);
    EXPECT_THROW(file.save(with_message("two")), IoError);  // protected meanwhile
    EXPECT_EQ(first_message("chat"), "one");
}

TEST_F(ChatFileLock, IsOfRegularFilesAlone) {
    ASSERT_EQ(mkfifo(at("pipe").c_str(), 0600), 0);
    EXPECT_THAT(refusal(at("pipe")), HasSubstr("a chat must be a regular file"));
    EXPECT_THAT(refusal("/dev/null"), HasSubstr("a chat must be a regular file"));
    EXPECT_THAT(refusal(folder_.path()), HasSubstr("cannot be opened"));
    EXPECT_THAT(refusal(at("none") / "chat"), HasSubstr("cannot be opened"));
}

// A lock belongs to a descriptor, so threads that open the file are to one another what programs are. Each adds a
// message as often as it gets the file: none is lost.
TEST_F(ChatFileLock, NoneOfManyWritersLosesAMessage) {
    constexpr int kWriters = 8;
    constexpr int kMessages = 60;
    std::atomic<int> n_saved{0};
    std::atomic<int> n_refused{0};
    std::vector<std::thread> writers;
    for (int i = 0; i < kWriters; ++i)
        writers.emplace_back([&] {
            while (n_saved.load() < kMessages) try {
                    ChatFile file(at("chat"));
                    ChatSession session = file.load({}).value_or(ChatSession{.model = "m"});
                    for (const char* role : {"user", "assistant"}) session.messages.push_back({role, "text"});
                    file.save(session);
                    ++n_saved;
                } catch (const RequestError&) {
                    ++n_refused;
                }
        });
    for (std::thread& writer : writers) writer.join();
    EXPECT_EQ(std::ssize(load_chat_session(at("chat"), {}).messages), 2 * n_saved.load());
    EXPECT_GT(n_refused.load(), 0);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()), 1);
}

}  // namespace
}  // namespace slipstream::tools
