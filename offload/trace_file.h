// A trace of a run: Chrome's trace-event format as a JSON array, which Perfetto (ui.perfetto.dev) and chrome://tracing
// open.
//
// Threads that compute add spans to a buffer in memory; one thread of this object formats them and writes the file, so
// computing never waits for the file. Each write is one page of whole events, filled up with white space: a program
// that is killed leaves an array that lacks its end, which the format allows, and never half an event. The file has its
// own name from the start, since a trace of a run that was killed is wanted, too.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "offload/file_handle.h"

namespace slipstream {

/// A span of time on a track. Names and categories must be string literals without characters that JSON escapes.
struct TraceSpan {
    const char* name = "";
    const char* category = "";
    std::uint32_t track = 0;  // as add_track() returned it
    std::chrono::steady_clock::time_point begin{};
    std::chrono::steady_clock::time_point end{};
    // Arguments of the event; those below 0 are left out.
    std::int64_t layer = -1;
    std::int64_t tokens = -1;
    std::int64_t bytes = -1;
};

class TraceFile {
public:
    using Clock = std::chrono::steady_clock;

    /// Most bytes of a trace; of a longer run only the beginning is recorded.
    static constexpr std::uint64_t kMostBytes = std::uint64_t{256} << 20;

    /// Opens the file, or makes it; what it holds stays until begin(). Throws IoError if it cannot be written, or if it
    /// is neither a regular file nor a device. Times in the file count from now on.
    explicit TraceFile(std::filesystem::path path, std::uint64_t most_bytes = kMostBytes);
    /// Writes what is in the buffer and the end of the array. If begin() was never called, a file that the constructor
    /// made is removed again.
    ~TraceFile();
    TraceFile(const TraceFile&) = delete;
    TraceFile& operator=(const TraceFile&) = delete;

    /// Empties the file; spans may follow. Later calls do nothing.
    void begin();
    /// Adds a row of the display, named `name`, and returns its number. Calls begin().
    [[nodiscard]] std::uint32_t add_track(std::string_view name);
    /// Records a span. Thread-safe; does not wait for the file: if its buffer is full, the span is lost and counted.
    void add(const TraceSpan& span) noexcept;
    /// Writes what is in the buffer and the end of the array; later spans are ignored.
    void complete();
    /// Returns a line for the user if recording ended early (size limit, full disk) or spans were lost, once for each
    /// of these reasons. The run goes on.
    [[nodiscard]] std::optional<std::string> take_note();

private:
    // Bytes of each write, one page. Of a killed program, the system has copied it whole or not at all.
    static constexpr std::size_t kPageBytes = 4096;

    void run();
    void write_span(const TraceSpan& span);
    void write_event(std::string_view event);
    void write_page();
    void stop_recording(std::string_view why);

    std::filesystem::path path_;
    std::uint64_t most_bytes_;
    Clock::time_point start_ = Clock::now();
    FileHandle file_;
    bool is_new_ = false;  // the constructor made the file
    std::mutex mutex_;     // guards what follows, up to the members of the writing thread
    std::condition_variable wake_;
    std::vector<TraceSpan> spans_;         // spans that the writing thread has not taken yet
    std::vector<std::string> new_tracks_;  // names of tracks that the writing thread has not taken yet, by number
    std::uint32_t n_tracks_ = 0;           // the number of the latest track
    std::uint64_t n_lost_ = 0;
    bool recording_ = false;
    bool completing_ = false;
    std::optional<std::string> note_;
    bool loss_noted_ = false;
    // The members from here on are used by the writing thread, and by begin() and complete() while it does not run.
    std::vector<TraceSpan> taken_;  // spans that the writing thread took from spans_
    std::array<char, kPageBytes> page_;
    std::size_t in_page_ = 0;
    std::uint64_t written_bytes_ = 0;
    std::uint32_t n_named_tracks_ = 0;
    bool first_event_ = true;
    bool stopped_ = false;  // the size limit is reached: only the end of the array is still written
    bool failed_ = false;   // nothing more is written
    std::thread thread_;
};

}  // namespace slipstream
