// Where messages have so few packets that these cost no more than fluids.
#pragma once

#include <cstdint>

namespace chakrascope::engine::flow {

// Packets of a message, in the mean, that cost no more than the fluid.
inline constexpr std::uint32_t kAsCheap = 12;
// Messages that tell how many packets there are in one.
inline constexpr std::uint64_t kFirst = 64;
// Where there turn out to be so many times more, fluids answer after all.
inline constexpr std::uint32_t kMore = 2;

inline bool cheap_by_packets(std::uint64_t packets, std::uint64_t messages) {
    return packets <= kAsCheap * messages;
}

}  // namespace chakrascope::engine::flow
