// Tells somebody how far a rank is, from a thread of its own: whom it tells may take longer than a rank may
// be late.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace chakrascope::emulation {

// How far a rank is: ns since the start, whether it has finished, whether it waits for nothing but messages
// and all of its own have left, and how many it has sent and received.
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

    // Call `tell` some fifty times a second, until it returns false or raises.
    explicit Reporter(Tell tell);
    ~Reporter();
    Reporter(const Reporter&) = delete;
    Reporter& operator=(const Reporter&) = delete;

    // Say how far the rank is; returns at once, with whether to go on.
    bool note(const Progress& progress);
    // Raise what `tell` has raised, if anything; the thread has ended then.
    void finish();

  private:
    void run();
    void end();

    const Tell tell_;
    std::atomic<bool> stopped_ = false;
    std::exception_ptr error_;  // of the thread's, read when that has ended
    std::mutex lock_;           // of what follows
    std::condition_variable wake_;
    bool over_ = false;
    Progress progress_;
    std::thread thread_;  // the last: it uses all of the above
};

}  // namespace chakrascope::emulation
