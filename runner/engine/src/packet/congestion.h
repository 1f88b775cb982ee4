// DCQCN, DCTCP, TIMELY, HPCC and HPCC with probabilistic telemetry, after their papers.
#pragma once

#include <memory>

#include "flow.h"

namespace chakrascope::packet {

// The congestion control of the sender for a new flow, or null for none.
std::unique_ptr<CongestionControl> make_control(Flow& flow);

}  // namespace chakrascope::packet
