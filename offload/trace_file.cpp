#include "offload/trace_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/check.h"
#include "kernels/base/error.h"
#include "kernels/base/size_text.h"

namespace slipstream {

namespace {

// Most spans in memory: a pass of a model of 100 layers has about 1500, and the writing thread wakes up when the buffer
// is half full.
constexpr std::size_t kBufferSpans = std::size_t{1} << 16;
// Longest time that a span stays in memory, which is what a killed program loses of its trace.
constexpr auto kFlushEvery = std::chrono::milliseconds(250);
constexpr std::size_t kMostTrackName = 200;  // most bytes of a name: an event must fit into a page

char* append(char* to, std::string_view text) {
    return std::copy(text.begin(), text.end(), to);
}

char* append(char* to, std::int64_t value) {
    return std::to_chars(to, to + 24, value).ptr;
}

// Appends `time` in microseconds with three decimals, as the format requires, and returns the end of the text.
char* append_time(char* to, std::chrono::nanoseconds time) {
    const std::int64_t nanoseconds = std::max<std::int64_t>(time.count(), 0);
    to = append(to, nanoseconds / 1000);
    const auto rest = static_cast<int>(nanoseconds % 1000);
    *to++ = '.';
    *to++ = static_cast<char>('0' + rest / 100);
    *to++ = static_cast<char>('0' + rest / 10 % 10);
    *to++ = static_cast<char>('0' + rest % 10);
    return to;
}

// Returns the name of a track, cut to kMostTrackName bytes, with '?' for each character that JSON would escape: names
// come from devices.
std::string plain_name(std::string_view name) {
    std::string plain(name.substr(0, kMostTrackName));
    for (char& c : plain)
        if (c < ' ' || c > '~' || c == '"' || c == '\\') c = '?';
    return plain;
}

}  // namespace

TraceFile::TraceFile(std::filesystem::path path, std::uint64_t most_bytes)
    : path_(std::move(path)), most_bytes_(most_bytes) {
    const auto refuse = [this](std::string_view why) {
        throw IoError(fmt::format("{}: cannot be written: {}", path_.string(), why));
    };
    // O_NONBLOCK: the open of a named pipe does not wait for its reader.
    constexpr int kFlags = O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    file_ = FileHandle(retry_interrupted([&] { return ::open(path_.c_str(), kFlags); }));
    if (file_.get() < 0 && errno == ENOENT) {
        file_ = FileHandle(retry_interrupted([&] { return ::open(path_.c_str(), kFlags | O_CREAT | O_EXCL, 0666); }));
        is_new_ = file_.get() >= 0;
    }
    if (file_.get() < 0) refuse(errno == ENXIO ? "it is a pipe or a socket; name a file" : std::strerror(errno));
    struct stat status {};
    if (::fstat(file_.get(), &status) != 0) refuse(std::strerror(errno));
    if (!S_ISREG(status.st_mode) && !S_ISCHR(status.st_mode)) refuse("it is not a regular file; name a file");
    spans_.reserve(kBufferSpans);
    taken_.reserve(kBufferSpans);
}

TraceFile::~TraceFile() {
    if (thread_.joinable()) {
        complete();
    } else if (is_new_ && written_bytes_ == 0) {
        static_cast<void>(::unlink(path_.c_str()));
    }
}

void TraceFile::begin() {
    const std::scoped_lock lock(mutex_);
    if (thread_.joinable() || completing_) return;
    // A device cannot be emptied, which is no error.
    if (::ftruncate(file_.get(), 0) != 0 && errno != EINVAL)
        throw IoError(fmt::format("{}: cannot be written: {}", path_.string(), std::strerror(errno)));
    page_[in_page_++] = '[';
    page_[in_page_++] = '\n';
    recording_ = true;
    thread_ = std::thread([this] { run(); });
}

std::uint32_t TraceFile::add_track(std::string_view name) {
    begin();
    const std::scoped_lock lock(mutex_);
    new_tracks_.push_back(plain_name(name));
    return ++n_tracks_;
}

void TraceFile::add(const TraceSpan& span) noexcept {
    bool wake = false;
    {
        const std::scoped_lock lock(mutex_);
        if (!recording_) return;
        if (spans_.size() == kBufferSpans) {
            ++n_lost_;
            return;
        }
        spans_.push_back(span);
        wake = spans_.size() == kBufferSpans / 2;
    }
    if (wake) wake_.notify_one();
}

void TraceFile::complete() {
    begin();
    {
        const std::scoped_lock lock(mutex_);
        if (completing_) return;
        completing_ = true;
        recording_ = false;
    }
    wake_.notify_one();
    thread_.join();
}

std::optional<std::string> TraceFile::take_note() {
    const std::scoped_lock lock(mutex_);
    if (note_) return std::exchange(note_, std::nullopt);
    if (n_lost_ == 0 || loss_noted_) return std::nullopt;
    loss_noted_ = true;
    return fmt::format("the trace {} has gaps: the disk is slower than spans come", path_.string());
}

// The function of the writing thread: writes new tracks and spans until complete() was called.
void TraceFile::run() {
    write_event(R"({"name":"process_name","ph":"M","pid":1,"args":{"name":"slipstream"}})");
    for (bool last = false; !last;) {
        std::vector<std::string> tracks;
        {
            std::unique_lock lock(mutex_);
            wake_.wait_for(lock, kFlushEvery, [this] { return completing_ || spans_.size() >= kBufferSpans / 2; });
            last = completing_;
            std::swap(spans_, taken_);
            std::swap(new_tracks_, tracks);
        }
        for (const std::string& name : tracks)
            write_event(fmt::format(R"({{"name":"thread_name","ph":"M","pid":1,"tid":{},"args":{{"name":"{}"}}}})",
                                    ++n_named_tracks_, name));
        for (const TraceSpan& span : taken_) write_span(span);
        taken_.clear();
        if (last) {
            if (in_page_ + 3 > kPageBytes) write_page();
            if (!failed_) in_page_ = static_cast<std::size_t>(append(page_.data() + in_page_, "\n]\n") - page_.data());
        }
        write_page();
    }
}

void TraceFile::write_span(const TraceSpan& span) {
    std::array<char, 512> text;
    char* to = append(text.data(), R"({"name":")");
    to = append(append(append(to, span.name), R"(","cat":")"), span.category);
    to = append_time(append(to, R"(","ph":"X","ts":)"), span.begin - start_);
    to = append_time(append(to, R"(,"dur":)"), span.end - span.begin);
    to = append(append(to, R"(,"pid":1,"tid":)"), std::int64_t{span.track});
    to = append(to, R"(,"args":{)");
    const char* comma = "";
    const auto argument = [&](std::string_view name, std::int64_t value) {
        if (value < 0) return;
        to = append(append(append(to, std::exchange(comma, ",")), name), value);
    };
    argument(R"("layer":)", span.layer);
    argument(R"("tokens":)", span.tokens);
    argument(R"("bytes":)", span.bytes);
    to = append(to, "}}");
    write_event({text.data(), static_cast<std::size_t>(to - text.data())});
}

// Adds an event to the page, or begins a new page with it.
void TraceFile::write_event(std::string_view event) {
    const std::size_t bytes = event.size() + 2;  // the event with its separator
    CHECK(bytes <= kPageBytes, "a trace event of {} bytes", bytes);
    if (in_page_ + bytes > kPageBytes) write_page();
    if (failed_ || stopped_) return;
    // Two pages are left: for what comes after this check, and for the end of the array.
    if (written_bytes_ + 2 * kPageBytes > most_bytes_) {
        stopped_ = true;
        stop_recording(fmt::format("it has reached {}, the most that is kept", size_text(most_bytes_)));
        return;
    }
    char* to = page_.data() + in_page_;
    if (!std::exchange(first_event_, false)) to = append(to, ",\n");
    in_page_ = static_cast<std::size_t>(append(to, event) - page_.data());
}

// Fills the page up with white space and writes it, if there is anything in it.
void TraceFile::write_page() {
    if (in_page_ == 0 || failed_) return;
    std::fill(page_.begin() + static_cast<std::ptrdiff_t>(in_page_), page_.end(), ' ');
    in_page_ = 0;
    std::size_t done = 0;
    while (done < kPageBytes) {
        const ssize_t n =
            retry_interrupted([&] { return ::write(file_.get(), page_.data() + done, kPageBytes - done); });
        if (n <= 0) {
            failed_ = true;
            const int error = n < 0 ? errno : ENOSPC;
            // Cuts off a page written in part.
            static_cast<void>(::ftruncate(file_.get(), static_cast<off_t>(written_bytes_)));
            stop_recording(std::strerror(error));
            return;
        }
        done += static_cast<std::size_t>(n);
    }
    written_bytes_ += kPageBytes;
}

void TraceFile::stop_recording(std::string_view why) {
    const std::scoped_lock lock(mutex_);
    recording_ = false;
    note_ = fmt::format("the trace {} ends here: {}; the run goes on", path_.string(), why);
}

}  // namespace slipstream
