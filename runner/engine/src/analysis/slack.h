// How much later each event of a schedule could come: what waits for it, and what waits for that.
#pragma once

#include <cstdint>
#include <span>

namespace chakrascope::engine {

// Lower `room` (ns by which each event could come later) until no event has more than what waits for it
// allows: the room of that and the gap between the two. The waits for event i stand from first[i] to
// first[i + 1]; each names the event that waits. `order` is all events in order of time.
void lower_room(std::span<std::int64_t> room, std::span<const std::int32_t> order,
                std::span<const std::int64_t> first, std::span<const std::int32_t> waiting,
                std::span<const std::int64_t> gap);

}  // namespace chakrascope::engine
