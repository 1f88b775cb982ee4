// Deterministic pseudo-random numbers, from a hash.
#pragma once

#include <cmath>
#include <cstdint>

namespace chakrascope::engine::flow {

// A number from -1 to 1, always the same for the same message.
inline double drawn(std::uint64_t order) {
    std::uint64_t hash = (order + 1) * 0x9E3779B97F4A7C15ULL;
    hash = (hash ^ (hash >> 29)) * 0xBF58476D1CE4E5B9ULL;
    hash ^= hash >> 32;
    return std::ldexp(static_cast<double>(hash >> 11), -52) - 1;
}

}  // namespace chakrascope::engine::flow
