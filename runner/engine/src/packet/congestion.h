// Congestion control by DCQCN, DCTCP, TIMELY, HPCC and HPCC with probabilistic telemetry (PINT), as
// described in their papers.
#pragma once

#include <memory>

#include "flow.h"

namespace chakrascope::packet {

// Create the congestion control of a new flow; null if the settings have no congestion control.
std::unique_ptr<CongestionControl> make_control(Flow& flow);

}  // namespace chakrascope::packet
