// Parquet's encodings of numbers: https://github.com/apache/parquet-format/blob/master/Encodings.md
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace chakrascope::parquet {

// Levels and places in a dictionary: runs of one value, and groups of eight packed in *width* bits each.
std::string encode_hybrid(std::span<const std::uint32_t> values, int width);
// Return *count* values below 2^width; `Damaged` where there are fewer.
std::vector<std::uint32_t> decode_hybrid(std::string_view bytes, int width, std::size_t count);

// Differences, in blocks of 128. Of INT32 values the differences wrap at 32 bits.
std::string encode_delta(std::span<const std::int64_t> values);
std::vector<std::int64_t> decode_delta(std::string_view bytes, std::size_t count, bool is_32_bits);

// Booleans, a bit each.
std::string encode_bits(std::span<const std::uint8_t> values);
std::vector<std::uint8_t> decode_bits(std::string_view bytes, std::size_t count);

// How many bits the numbers up to *largest* need.
int bits_for(std::uint64_t largest);

}  // namespace chakrascope::parquet
