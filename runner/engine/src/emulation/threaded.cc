#include "threaded.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "../errors.h"

namespace chakrascope::emulation {

ThreadedTransport::ThreadedTransport(Post post)
    : post_(std::move(post)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (wake_ < 0)
        throw engine::BackendError(std::string("There is no eventfd: ") + std::strerror(errno) + ".");
}

ThreadedTransport::~ThreadedTransport() { close(wake_); }

void ThreadedTransport::post(std::int32_t peer, const Header& header) {
    ++unsent_;
    post_(peer, header);
}

void ThreadedTransport::progress(Until until, std::vector<Event>& events) {
    for (;;) {
        if (has_notices_.load(std::memory_order_acquire)) take(events);
        if (!events.empty() || monotonic_ns() >= until.at) return;
        sleeper_.doze(wake_, until);
    }
}

void ThreadedTransport::take(std::vector<Event>& events) {
    const std::lock_guard guard(lock_);
    has_notices_.store(false, std::memory_order_relaxed);
    std::uint64_t count = 0;
    if (read(wake_, &count, sizeof count) < 0 && errno != EAGAIN)
        throw engine::BackendError(std::string("An eventfd cannot be read: ") + std::strerror(errno) + ".");
    for (const Event& event : events_) {
        if (event.kind == Event::Kind::Sent) --unsent_;
        events.push_back(event);
    }
    events_.clear();
    // Events that happened before the loss of a peer are reported first.
    if (!error_.empty() && events.empty()) throw engine::BackendError(error_);
    if (!error_.empty()) has_notices_.store(true, std::memory_order_relaxed);
}

void ThreadedTransport::happened(const Event& event) {
    tell([&] { events_.push_back(event); });
}

void ThreadedTransport::lost(std::int32_t peer, const std::string& why) {
    tell([&] {
        if (error_.empty())
            error_ = "The connection to rank " + std::to_string(peer) + " is lost: " + why + ".";
    });
}

void ThreadedTransport::tell(const std::function<void()>& what) {
    const std::lock_guard guard(lock_);
    what();
    has_notices_.store(true, std::memory_order_release);
    const std::uint64_t one = 1;
    while (write(wake_, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

}  // namespace chakrascope::emulation
