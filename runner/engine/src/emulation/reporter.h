// Reports the progress of a rank from a separate thread, because the receiver of a report could delay
// the rank.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace chakrascope::emulation {

// The progress of a rank: ns since the start, whether the rank has finished, whether the rank has sent
// all its messages and only waits to receive, and the numbers of sent and received messages.
struct Progress {
    std::int64_t now_ns = 0;
    bool finished = false;
    bool waiting = false;
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
};

class Reporter {
  public:
    using Tell = std::function<bool(const Progress&)>;

    // Call `tell` about fifty times a second, until `tell` returns false or raises an exception.
    explicit Reporter(Tell tell);
    ~Reporter();
    Reporter(const Reporter&) = delete;
    Reporter& operator=(const Reporter&) = delete;

    // Store the progress of the rank, and return immediately. The result false means that the rank must
    // stop.
    bool note(const Progress& progress);
    // End the thread, and rethrow an exception of `tell`.
    void finish();

  private:
    void run();
    void end();

    const Tell tell_;
    std::atomic<bool> stopped_ = false;
    std::exception_ptr error_;  // written by the thread, read after the thread has ended
    std::mutex lock_;           // protects the following members
    std::condition_variable wake_;
    bool over_ = false;
    Progress progress_;
    std::thread thread_;  // last member, because the thread uses all members above
};

}  // namespace chakrascope::emulation
