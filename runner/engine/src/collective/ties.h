// Notices where a fold could hide that events of one tick may come in another order on other ranks.
//
// Chunks of one collective that come the same way always come in the same order. What any two other things do
// to one queue in the same tick may come in either order, and that can decide which chunk is served first.
#pragma once

#include <cstdint>

#include "../event_queue.h"

namespace chakrascope::engine {

// What lets something happen: a chunk of a collective that moves on from a queue, or else a node that ends.
struct Mover {
    std::uint64_t collective = 0;
    std::int32_t way = -1;
    bool operator==(const Mover&) const = default;
};

// Whether all that happens in one tick comes from the same mover.
class TickWatch {
  public:
    // Take note of something; false once two movers have met in this tick.
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
