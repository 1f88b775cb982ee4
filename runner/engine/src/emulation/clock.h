// Real time, and waiting for it.
#pragma once

#include "transport.h"

namespace chakrascope::emulation {

// Return the time of this machine's monotonic clock, in ns.
Time monotonic_ns();

// Leave the processor until `deadline`, or until the file is readable; returns early, as far before the
// deadline as waking up may take, so that the caller can look at the clock for the rest.
void doze(int file, Time deadline);

}  // namespace chakrascope::emulation
