#include "slack.h"

#include <algorithm>
#include <cstddef>

namespace chakrascope::engine {

void lower_room(std::span<std::int64_t> room, std::span<const std::int32_t> order,
                std::span<const std::int64_t> first, std::span<const std::int32_t> waiting,
                std::span<const std::int64_t> gap) {
    // Simultaneous events may be listed in the wrong order, so one backward pass is not enough.
    for (bool lowered = true; lowered;) {
        lowered = false;
        for (std::size_t place = order.size(); place-- > 0;) {
            const auto event = static_cast<std::size_t>(order[place]);
            std::int64_t least = room[event];
            for (std::int64_t i = first[event]; i < first[event + 1]; ++i) {
                const auto wait = static_cast<std::size_t>(i);
                least = std::min(least, room[static_cast<std::size_t>(waiting[wait])] + gap[wait]);
            }
            lowered |= least < room[event];
            room[event] = least;
        }
    }
}

}  // namespace chakrascope::engine
