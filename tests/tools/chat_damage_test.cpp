// Damaged chats: each class of bytes flipped, cut, zeroed and doubled. A chat is a text that a person may edit, without
// checksums: it is read with all of its messages, of which at most those that were hit say something else, or refused
// in one line and left as it is. A part of the matrix runs with the other tests, all of it as the test damage_matrix.
#include <cstring>

#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/support/damage.h"
#include "tests/tools/temporary_folder.h"
#include "tools/chat/chat_file.h"
#include "tools/chat/chat_session.h"
#include "tools/terminal/file_output.h"

namespace slipstream::tools {
namespace {

ChatSession talk() {
    ChatSession made{.model = "models/tales", .system = "Answer in few words.", .settings = {}, .messages = {}};
    made.settings.sampling.seed = 12345;
    made.settings.sampling.temperature = 0.7;
    made.settings.text.stops = {"END"};
    for (int i = 0; i < 8; ++i) {
        made.messages.push_back({"user", "Question " + std::to_string(i) + ": what says the wolf? \xe2\x82\xac"});
        made.messages.push_back({"assistant", "Answer " + std::to_string(i) + ".\nThe wolf says \"no\"\tand goes."});
    }
    return made;
}

class ChatDamage : public testing::Test {
protected:
    ChatDamage() {
        ChatFile(path_).save(made_);
        text_ = read_bytes(path_);
    }

    // Places of `part`, or of what is between `begin` and `end`.
    [[nodiscard]] ByteClass class_of(const std::string& name, std::string_view part) const {
        ByteClass one{.name = name, .places = {}};
        for (std::size_t at = text_.find(part); at != std::string::npos; at = text_.find(part, at + 1))
            one.places.push_back({at, part.size()});
        return one;
    }
    [[nodiscard]] std::vector<ByteClass> classes() const {
        std::vector<ByteClass> all{class_of("structure", "},"),       class_of("quotes", "\""),
                                   class_of("colons", ": "),          class_of("keys", "\"content\""),
                                   class_of("roles", "assistant"),    class_of("texts", "The wolf says"),
                                   class_of("signs", "\xe2\x82\xac"), class_of("escapes", "\\n"),
                                   class_of("numbers", "12345"),      class_of("format", "slipstream chat")};
        all.push_back({"tail", {{text_.size() - 12, 12}}});
        all.push_back({"anything", {{0, text_.size()}}});
        return all;
    }

    void expect_it_is_read_or_refused(const DamagedFile& file) {
        SCOPED_TRACE(file.name);
        const std::string damaged(reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size());
        folder_.write("chat.json", damaged);
        try {
            const ChatSession read = load_chat_session(path_, {});
            // What was hit is at most one message more or less, or some that say something else.
            std::size_t n_same = 0;
            for (const Message& message : made_.messages)
                n_same +=
                    static_cast<std::size_t>(std::ranges::count_if(read.messages, [&](const Message& other) {
                                                 return other.role == message.role && other.content == message.content;
                                             }) > 0);
            const std::size_t n_hit = messages_in(file.where);
            EXPECT_GE(n_same + n_hit, made_.messages.size());
            EXPECT_EQ(read.messages.size() % 2, 0U);
            ++n_read_;
        } catch (const Error& error) {
            const std::string line = error.what();
            EXPECT_NE(line.find(path_.string()), std::string::npos) << line;
            EXPECT_EQ(line.find('\n'), std::string::npos) << line;
            ++n_refused_;
        }
        EXPECT_EQ(read_bytes(path_), damaged);
    }
    // Messages that those bytes are of: each has one "role", and what is before the first counts for none.
    [[nodiscard]] std::size_t messages_in(ByteRange where) const {
        std::size_t n = 1;
        for (std::size_t at = text_.find("\"role\"", where.begin);
             at != std::string::npos && at < where.begin + where.n_bytes; at = text_.find("\"role\"", at + 1))
            ++n;
        return n;
    }

    void run(std::size_t n_each, std::size_t stride) {
        const auto bytes = std::as_bytes(std::span(text_));
        const std::size_t n = for_each_damage(bytes, classes(), n_each, stride,
                                              [&](const DamagedFile& file) { expect_it_is_read_or_refused(file); });
        std::printf("%zu damaged chats: %zu are read, %zu are refused\n", n, n_read_, n_refused_);
    }

    const ChatSession made_ = talk();
    TemporaryFolder folder_;
    const std::filesystem::path path_ = folder_.path() / "chat.json";
    std::string text_;
    std::size_t n_read_ = 0;
    std::size_t n_refused_ = 0;
};

TEST_F(ChatDamage, APartOfTheMatrix) {
    run(10, 5);
}
TEST_F(ChatDamage, DISABLED_TheWholeMatrix) {
    run(10, 1);
}

}  // namespace
}  // namespace slipstream::tools
