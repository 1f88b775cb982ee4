// The ordered ranks of one logical dimension, seen from one of these ranks.
#pragma once

#include <cstdint>

namespace chakrascope::engine {

struct Ring {
    std::int32_t base = 0;
    std::int32_t stride = 1;
    std::int32_t count = 1;
    std::int32_t position = 0;
    const std::int32_t* members = nullptr;  // ranks of a communicator group; if null, base + i * stride
    bool local = false;                     // rings of communicator groups have a separate endpoint delay

    std::int32_t at(std::int32_t place) const {
        return members != nullptr ? members[place] : base + place * stride;
    }

    // Return the position that is `steps` ahead in the ring, or behind if `steps` is negative. |steps|
    // is at most the number of ranks.
    std::int32_t neighbour(std::int32_t steps) const {
        const std::int32_t place = position + steps;
        if (place >= count) return place - count;
        return place < 0 ? place + count : place;
    }

    bool power_of_two() const { return (count & (count - 1)) == 0; }
};

}  // namespace chakrascope::engine
