// A column of a row group, from the bytes of its pages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "metadata.h"

namespace chakrascope::parquet {

struct Decoded {
    // Each value in 64 bits: numbers as they are, of floats their bits, of a text its place in `texts`.
    std::vector<std::int64_t> values;
    std::vector<std::uint8_t> present;  // empty where none is missing; the value of what is missing is 0
    std::vector<std::string> texts;     // each once
};

// Return all values of the chunk; `Damaged` where its pages hold something else, or what is not read here.
Decoded decode(const Column& column, const Chunk& chunk, std::string_view bytes);

}  // namespace chakrascope::parquet
