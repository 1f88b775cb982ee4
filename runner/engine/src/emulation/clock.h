// Real time, and waiting for a point in real time.
#pragma once

#include "transport.h"

namespace chakrascope::emulation {

// Return the time of this machine's monotonic clock, in ns.
Time monotonic_ns();

// Leaves the processor while there is nothing to do, and learns how late this machine wakes it up.
class Sleeper {
  public:
    // Sleep until the file (-1: none) is readable or the time has come. For an exact deadline,
    // return early by the recent wake-up delay, so that the caller can poll the clock for the rest.
    void doze(int file, Until until);

  private:
    void learn(Time late);

    Time margin_ = 150'000;
};

}  // namespace chakrascope::emulation
