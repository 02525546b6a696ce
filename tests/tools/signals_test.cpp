// Signal handlers whose races a whole program meets too rarely.
#include "tools/terminal/signals.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/tools/temporary_folder.h"

namespace slipstream::tools {
namespace {

constexpr std::size_t kPage = 4096;

// The line is written to a pipe that is full until all threads have met the missing page.
TEST(BusError, OfSeveralThreadsIsSaidOnce) {
    const TemporaryFolder folder;
    const std::string path = (folder.path() / "f").string();
    std::array<int, 2> pipe_ends{};
    ASSERT_EQ(pipe(pipe_ends.data()), 0);
    const int capacity = fcntl(pipe_ends[1], F_SETPIPE_SZ, kPage);
    ASSERT_GT(capacity, 0);
    const std::string filling(static_cast<std::size_t>(capacity), '.');
    ASSERT_EQ(write(pipe_ends[1], filling.data(), filling.size()), capacity);

    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        dup2(pipe_ends[1], STDERR_FILENO);
        close(pipe_ends[0]);
        close(pipe_ends[1]);
        watch_signals();
        const int file = open(path.c_str(), O_RDWR | O_CREAT, 0600);
        if (file < 0 || ftruncate(file, kPage) != 0) _exit(2);
        void* page = mmap(nullptr, kPage, PROT_READ, MAP_SHARED, file, 0);
        if (page == MAP_FAILED || ftruncate(file, 0) != 0) _exit(3);
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; ++i)
            threads.emplace_back([page] { static_cast<void>(*static_cast<volatile char*>(page)); });
        for (std::thread& thread : threads) thread.join();
        _exit(4);
    }
    close(pipe_ends[1]);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    std::string text;
    std::array<char, kPage> part{};
    for (ssize_t n = 0; (n = read(pipe_ends[0], part.data(), part.size())) > 0;)
        text.append(part.data(), static_cast<std::size_t>(n));
    close(pipe_ends[0]);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 1);
    const std::string line = "slipstream: a model file was changed or cut short";
    const std::size_t first = text.find(line);
    ASSERT_NE(first, std::string::npos) << text;
    EXPECT_EQ(text.find(line, first + 1), std::string::npos) << text;
}

}  // namespace
}  // namespace slipstream::tools
