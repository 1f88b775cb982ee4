// Messages that other threads of this process carry, such as those of a library with calls that block.
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
    // Hands a message to the threads; returns at once.
    using Post = std::function<void(std::int32_t peer, const Header& header)>;

    explicit ThreadedTransport(Post post);
    ~ThreadedTransport() override;
    ThreadedTransport(const ThreadedTransport&) = delete;
    ThreadedTransport& operator=(const ThreadedTransport&) = delete;

    void post(std::int32_t peer, const Header& header) override;
    void progress(Until until, std::vector<Event>& events) override;
    bool idle() const override { return unsent_ == 0; }

    // What the threads tell, each from where it is: that a message was sent or came, and that a peer is lost.
    void happened(const Event& event);
    void lost(std::int32_t peer, const std::string& why);

  private:
    void tell(const std::function<void()>& what);
    void take(std::vector<Event>& events);

    const Post post_;
    int wake_ = -1;
    Sleeper sleeper_;
    std::uint64_t unsent_ = 0;  // messages
    std::atomic<bool> told_ = false;
    std::mutex lock_;  // of what follows
    std::vector<Event> events_;
    std::string error_;
};

}  // namespace chakrascope::emulation
