// CRC-32 as zlib and Parquet's pages have it.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace chakrascope::parquet {

// By how many bytes stand behind a byte, and its value: eight bytes are added at once.
inline constexpr auto kChecksums = [] {
    std::array<std::array<std::uint32_t, 256>, 8> tables{};
    for (std::uint32_t i = 0; i < 256; ++i) {
        std::uint32_t value = i;
        for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ ((value & 1) != 0 ? 0xEDB88320U : 0);
        tables[0][i] = value;
    }
    for (std::size_t behind = 1; behind < tables.size(); ++behind) {
        for (std::size_t i = 0; i < 256; ++i) {
            const std::uint32_t before = tables[behind - 1][i];
            tables[behind][i] = before >> 8 ^ tables[0][before & 0xFF];
        }
    }
    return tables;
}();

inline std::uint32_t checksum(std::string_view bytes) {
    const auto at = [&](std::size_t place) {
        return static_cast<std::uint32_t>(static_cast<std::uint8_t>(bytes[place]));
    };
    std::uint32_t value = ~0U;
    std::size_t place = 0;
    for (; place + 8 <= bytes.size(); place += 8) {
        value ^= at(place) | at(place + 1) << 8 | at(place + 2) << 16 | at(place + 3) << 24;
        value = kChecksums[7][value & 0xFF] ^ kChecksums[6][value >> 8 & 0xFF] ^
                kChecksums[5][value >> 16 & 0xFF] ^ kChecksums[4][value >> 24] ^
                kChecksums[3][at(place + 4)] ^ kChecksums[2][at(place + 5)] ^ kChecksums[1][at(place + 6)] ^
                kChecksums[0][at(place + 7)];
    }
    for (; place < bytes.size(); ++place) value = value >> 8 ^ kChecksums[0][(value ^ at(place)) & 0xFF];
    return ~value;
}

}  // namespace chakrascope::parquet
