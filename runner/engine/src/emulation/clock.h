// Real time, and waiting for it.
#pragma once

#include "transport.h"

namespace chakrascope::emulation {

// Return the time of this machine's monotonic clock, in ns.
Time monotonic_ns();

// Leaves the processor while there is nothing to do, and learns how late this machine wakes it.
class Sleeper {
  public:
    // Sleep until the file (-1: none) is readable, or time is up. Of an exact one, returns as far before it
    // as waking up has lately taken, so that the caller can look at the clock for the rest.
    void doze(int file, Until until);

  private:
    void learn(Time late);

    Time margin_ = 150'000;
};

}  // namespace chakrascope::emulation
