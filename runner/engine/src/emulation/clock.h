// Reads the clock, and waits until a point in real time.
#pragma once

#include "transport.h"

namespace chakrascope::emulation {

// The time (ns) to wait before checking whether to continue.
inline constexpr Time kPatience = 20'000'000;

// Return the time of the monotonic clock of this machine, in ns.
Time monotonic_ns();

// Sleeps until a deadline, and learns the delay of wake-ups on this machine.
class Sleeper {
  public:
    // Sleep until the file (-1: none) is readable or the deadline has passed. For an exact deadline,
    // return early by the recent wake-up delay, so that the caller can poll the clock until the
    // deadline.
    void doze(int file, Until until);

  private:
    void learn(Time late);

    Time margin_ = 150'000;
};

}  // namespace chakrascope::emulation
