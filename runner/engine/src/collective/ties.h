// Detects events of one tick that may run in different orders on different ranks. A fold, which
// simulates only one of several identical ranks, would hide the difference.
//
// Chunks of one collective that come from the same queue always arrive in the same order. Any two other
// events that affect one queue in the same tick may run in either order. The order can determine the
// chunk that is served first.
#pragma once

#include <cstdint>

#include "../event_queue.h"

namespace chakrascope::engine {

// The cause of an event: a chunk of a collective that leaves a queue, or a node that ends.
struct Mover {
    std::uint64_t collective = 0;
    std::int32_t way = -1;
    bool operator==(const Mover&) const = default;
};

// Whether all events of one tick come from the same mover.
class TickWatch {
  public:
    // Record an event of the mover. Returns false if events of two different movers have been recorded
    // in this tick.
    bool note(Time now, const Mover& mover) {
        if (time_ != now) {
            time_ = now;
            mover_ = mover;
            met_ = false;
        }
        met_ |= mover_ != mover;
        return !met_;
    }

  private:
    Time time_ = ~Time{0};
    Mover mover_;
    bool met_ = false;
};

}  // namespace chakrascope::engine
