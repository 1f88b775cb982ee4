// Snappy's raw format: https://github.com/google/snappy/blob/main/format_description.txt
#pragma once

#include <string>
#include <string_view>

namespace chakrascope::parquet {

std::string compress(std::string_view bytes);
// Return what was compressed, which must be *size* bytes; `Damaged` where it is not.
std::string decompress(std::string_view bytes, std::size_t size);

}  // namespace chakrascope::parquet
