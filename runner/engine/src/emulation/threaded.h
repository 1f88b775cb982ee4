// Carries messages by other threads of this process, for libraries with blocking calls.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "clock.h"
#include "transport.h"

namespace chakrascope::emulation {

class ThreadedTransport final : public Transport {
  public:
    // A function that passes a message to the threads, and returns immediately.
    using Post = std::function<void(std::int32_t peer, const Header& header)>;

    explicit ThreadedTransport(Post post);
    ~ThreadedTransport() override;
    ThreadedTransport(const ThreadedTransport&) = delete;
    ThreadedTransport& operator=(const ThreadedTransport&) = delete;

    void post(std::int32_t peer, const Header& header) override;
    void progress(Until until, std::vector<Event>& events) override;
    bool idle() const override { return unsent_ == 0; }

    // Callbacks of the threads: `happened` reports a message that was sent or received, and `lost` the
    // loss of a peer.
    void happened(const Event& event);
    void lost(std::int32_t peer, const std::string& why);

  private:
    void tell(const std::function<void()>& what);
    void take(std::vector<Event>& events);

    const Post post_;
    int wake_ = -1;
    Sleeper sleeper_;
    std::uint64_t unsent_ = 0;  // number of messages that have not left yet
    std::atomic<bool> has_notices_ = false;
    std::mutex lock_;  // protects the following members
    std::vector<Event> events_;
    std::string error_;
};

}  // namespace chakrascope::emulation
