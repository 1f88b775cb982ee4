// Notices where what happens to a rank in one tick could have come in another order.
//
// A rank's own callbacks of a tick run in the order of the ticks in which they were registered, however the
// messages were simulated. Which of those registered in one tick comes first, and when messages come among
// them, depends on every event of the simulation, and so on those that were left out.
#pragma once

#include <cstdint>

#include "../event_queue.h"

namespace chakrascope::engine {

class Moments {
  public:
    // Each of these is told as it happens, and returns whether the order is certain.

    // A node ends, by a callback that was registered then.
    bool node(Time now, Time registered) {
        const bool certain = begin(now, registered) && phases_ == 0;
        nodes_ = true;
        return certain;
    }
    // A chunk ends its phase.
    bool phase(Time now, Time registered) {
        const bool certain = begin(now, registered) && !nodes_ && !collective_;
        ++phases_;
        return certain;
    }
    // The phase that ends is the last of a collective.
    bool collective() {
        collective_ = true;
        return phases_ == 1;
    }
    // The chunk leaves a queue, or comes to one; `mixed` if chunks of several collectives wait there.
    bool leave(std::int32_t queue, bool mixed) {
        const std::uint64_t bit = bit_of(queue);
        const bool certain = (left_ & bit) == 0 && ((come_ & bit) == 0 || !mixed);
        left_ |= bit;
        return certain;
    }
    bool come(std::int32_t queue, bool mixed) {
        const std::uint64_t bit = bit_of(queue);
        const bool certain = (come_ & bit) == 0 && ((left_ & bit) == 0 || !mixed);
        come_ |= bit;
        return certain;
    }

  private:
    static std::uint64_t bit_of(std::int32_t queue) { return std::uint64_t{1} << (queue & 63); }

    bool begin(Time now, Time registered) {
        const bool first = time_ != now;
        const bool certain =
            first || (registered != EventQueue::kUnregistered && registered_ != EventQueue::kUnregistered);
        if (first || registered_ != registered) *this = Moments{};
        time_ = now;
        registered_ = registered;
        return certain;
    }

    Time time_ = ~Time{0};
    Time registered_ = 0;
    // Of the callbacks registered in that tick.
    std::uint32_t phases_ = 0;
    bool nodes_ = false;
    bool collective_ = false;
    std::uint64_t left_ = 0, come_ = 0;
};

}  // namespace chakrascope::engine
