#include "tools/terminal/file_output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/tools/temporary_folder.h"
#include "tools/base/json_object.h"
#include "tools/terminal/console.h"

namespace slipstream::tools {
namespace {

namespace fs = std::filesystem;

std::ptrdiff_t n_files(const fs::path& folder) {
    return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
}

TEST(TextOutput, ResumesBehindTheTextThatIsThere) {
    const TemporaryFolder folder;
    const std::string text = "It was a dark and stormy night";
    const auto resumed = [&](const std::string& before, std::string_view missing) {
        const fs::path path = folder.write("out", before);
        TextOutput output(path);
        EXPECT_EQ(output.resume(text), missing) << before;
        EXPECT_EQ(read_bytes(path), text.substr(0, text.size() - missing.size()));
        output.write(missing);
        EXPECT_EQ(output.bytes(), text.size());
        EXPECT_EQ(output.last_byte(), 't');
        output.write("; the rain");
        EXPECT_EQ(read_bytes(path), text + "; the rain");
    };
    resumed("", text);
    resumed(text, "");
    resumed(text + " fell in torrents", "");
    resumed("It was", " a dark and stormy night");
    resumed("It was the best of times, it was the worst", "a dark and stormy night");
    resumed("Call me Ishmael.", text);
    EXPECT_EQ(TextOutput("/dev/null").resume(text), text);
}

TEST(WholeFile, AppearsOnlyWhenComplete) {
    const TemporaryFolder folder;
    const fs::path path = folder.write("out", "old");
    {
        WholeFile file(path);
        file.write("half");
        EXPECT_EQ(read_bytes(path), "old");
    }
    EXPECT_EQ(read_bytes(path), "old");
    EXPECT_EQ(n_files(folder.path()), 1);
    WholeFile file(path);
    file.write("new");
    file.complete();
    EXPECT_EQ(read_bytes(path), "new");
    EXPECT_EQ(n_files(folder.path()), 1);
}

TEST(WholeFile, ReplacesWhatALinkLeadsTo) {
    const TemporaryFolder folder;
    const fs::path path = folder.write("real", "old");
    fs::create_symlink(path, folder.path() / "link");
    WholeFile file(folder.path() / "link");
    file.write("new");
    file.complete();
    EXPECT_TRUE(fs::is_symlink(folder.path() / "link"));
    EXPECT_EQ(read_bytes(path), "new");
}

TEST(WholeFile, LeavesDevicesInTheirPlace) {
    WholeFile file("/dev/full");
    EXPECT_THROW(file.write("x"), IoError);
    EXPECT_TRUE(fs::is_character_file("/dev/full"));
    WholeFile nothing("/dev/null");
    nothing.write("x");
    nothing.complete();
    EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST(WholeFile, WaitsForAPipesReaderOnlyWhenItWrites) {
    const TemporaryFolder folder;
    const fs::path pipe = folder.path() / "pipe";
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    WholeFile file(pipe);
    std::string text;
    std::thread reader([&] { text = read_bytes(pipe); });
    file.write("through");
    file.complete();
    reader.join();
    EXPECT_EQ(text, "through");
    EXPECT_EQ(n_files(folder.path()), 1);
}

TEST(WholeFile, SaysWhereItCannotBe) {
    EXPECT_THROW(WholeFile("/nonexistent-folder/out"), IoError);
}

// What a program that shares the pipe makes of it: writes that find no room fail with EAGAIN.
TEST(WriteAll, WaitsWhereADescriptorDoesNotBlock) {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_NONBLOCK), 0);
    const std::string text(1 << 20, 'x');  // more than a pipe holds
    std::string read;
    std::thread reader([&] {
        std::string piece(1000, ' ');
        while (read.size() < text.size()) {
            const ssize_t n = read_some(ends[0], piece.data(), piece.size());
            if (n <= 0) break;
            read.append(piece, 0, static_cast<std::size_t>(n));
        }
    });
    std::uint64_t written_bytes = 0;
    EXPECT_EQ(write_all(ends[1], text, written_bytes), 0);
    reader.join();
    EXPECT_EQ(written_bytes, text.size());
    EXPECT_EQ(read, text);
    close(ends[0]);
    auto* const handler = std::signal(SIGPIPE, SIG_IGN);
    EXPECT_EQ(write_all(ends[1], text, written_bytes), EPIPE);
    std::signal(SIGPIPE, handler);
    close(ends[1]);
}

// A log on a pipe whose reader is slow: a signal interrupts the write, and the line is written all the same.
TEST(ConsoleLog, ASignalLosesNoLine) {
    const TemporaryFolder folder;
    const std::string path = (folder.path() / "log").string();
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    const FileHandle reader(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    Console console(Verbosity::Quiet, TerminalUse::NoColors, path);
    {
        const FileHandle filler(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
        while (write(filler.get(), "x", 1) == 1) continue;  // until it is full
    }
    struct sigaction interrupts {};
    struct sigaction before {};
    interrupts.sa_handler = [](int) {};  // without SA_RESTART
    ASSERT_EQ(sigaction(SIGUSR1, &interrupts, &before), 0);
    std::string found;
    std::thread slow([&, writer = pthread_self()] {
        for (int i = 0; i < 5; ++i) {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            pthread_kill(writer, SIGUSR1);
        }
        std::array<char, 65536> piece;
        while (!found.ends_with("two\n")) {
            const ssize_t n = read(reader.get(), piece.data(), piece.size());
            if (n > 0) found.append(piece.data(), static_cast<std::size_t>(n));
            if (n == 0) return;  // the log was closed
            if (n < 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    });
    console.note("one");
    console.note("two");
    slow.join();
    sigaction(SIGUSR1, &before, nullptr);
    EXPECT_EQ(found.substr(std::min(found.find_first_not_of('x'), found.size())), "slipstream: one\nslipstream: two\n");
}

TEST(WholeFile, KeepsModesAndWritesToNothingThatIsPlantedBesideIt) {
    const TemporaryFolder folder;
    const fs::path path = folder.write("out", "old");
    const fs::path victim = folder.write("victim", "precious");
    fs::create_symlink(victim, folder.path() / ("out." + std::to_string(getpid()) + ".part"));
    const auto own = fs::perms::owner_read | fs::perms::owner_write;
    fs::permissions(path, own);
    WholeFile file(path);
    file.write("new");
    file.complete();
    EXPECT_EQ(read_bytes(path), "new");
    EXPECT_EQ(read_bytes(victim), "precious");
    EXPECT_EQ(fs::status(path).permissions(), own);
}

TEST(TextOutput, KeepsAFileUntilItBegins) {
    const TemporaryFolder folder;
    const fs::path path = folder.write("out", "a longer old text");
    TextOutput output(path);
    EXPECT_EQ(read_bytes(path), "a longer old text");
    output.begin();
    output.write("new");
    EXPECT_EQ(read_bytes(path), "new");  // handed over at once
    EXPECT_EQ(output.bytes(), 3U);
    EXPECT_EQ(output.last_byte(), 'w');
}

TEST(TextOutput, AFullDiskIsAnError) {
    TextOutput output("/dev/full");
    output.begin();
    EXPECT_THROW(output.write("x"), IoError);
    EXPECT_THROW(TextOutput("/nonexistent-folder/out"), IoError);
}

TEST(ReadBytes, TakesAnyBytes) {
    const TemporaryFolder folder;
    const std::string bytes("a\0\xff\r\n", 5);
    EXPECT_EQ(read_bytes(folder.write("f", bytes)), bytes);
    EXPECT_THROW(static_cast<void>(read_bytes(folder.path() / "none")), IoError);
    EXPECT_THROW(static_cast<void>(read_bytes(folder.path())), IoError);
}

TEST(JsonObject, KeepsTheBytesOfWhatIsNoText) {
    const std::string json = JsonObject().text("name", "b\xff").text("other", "b").to_text(JsonLayout::OneLine);
    EXPECT_EQ(json, "{\"name\":\"b\xEF\xBF\xBD\",\"name_hex\":\"62ff\",\"other\":\"b\"}\n");
}

}  // namespace
}  // namespace slipstream::tools
