// Variable-length integers in groups of seven bits, as in Protocol Buffers.
#pragma once

#include <cstdint>
#include <string>

namespace chakrascope::converter {

inline void put_varint(std::string& out, std::uint64_t value) {
    while (value > 127) {
        out.push_back(static_cast<char>((value & 127) | 128));
        value >>= 7;
    }
    out.push_back(static_cast<char>(value));
}

// Zigzag: numbers close to zero become short.
inline void put_zigzag(std::string& out, std::int64_t value) {
    put_varint(out, static_cast<std::uint64_t>(value) << 1 ^ static_cast<std::uint64_t>(value >> 63));
}

}  // namespace chakrascope::converter
