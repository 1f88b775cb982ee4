// The slack of each event of a schedule: how much later it could happen, given the events that wait
// for it.
#pragma once

#include <cstdint>
#include <span>

namespace chakrascope::engine {

// Lower `room` (the slack of each event, ns) until it is at most the slack of each successor plus the gap
// to it. The successors of event i are listed from first[i] to first[i + 1]. `order` holds all events in
// order of time.
void lower_room(std::span<std::int64_t> room, std::span<const std::int32_t> order,
                std::span<const std::int64_t> first, std::span<const std::int32_t> waiting,
                std::span<const std::int64_t> gap);

}  // namespace chakrascope::engine
