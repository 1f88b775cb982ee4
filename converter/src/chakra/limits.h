// The limits of a valid graph, which the converter and the engine both enforce.
#pragma once

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>

#include "message.h"

namespace chakrascope::chakra {

// The file is refused. The text continues a sentence that starts with the file's name.
struct Refusal : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Ids and values are stored as signed 64-bit integers.
inline constexpr std::uint64_t kLargest = std::numeric_limits<std::int64_t>::max();

inline constexpr std::string_view kIdBeyond = "its id is above 2^63. Write the workload again.";
inline constexpr std::string_view kIdRepeated = "another node has this id. Write the workload again.";
inline constexpr std::string_view kWaitsForItself =
    "it depends on itself, so it never starts. Write the workload again, or convert its traces.";
inline constexpr std::string_view kSourceBeyond = "it waits for an id above 2^63. Write the workload again.";

// Refuse a node of the file for the reason *why*; *place* is its byte offset.
[[noreturn]] void refuse_node(std::uint64_t id, std::size_t place, std::string_view why);

// Return why the integer attribute *found* is invalid for any node, "" if it is valid.
std::string wrong_with(const Attribute& found);

// Return why a duration of that many microseconds is invalid, "" if it is valid.
std::string wrong_with_micros(std::uint64_t micros);

}  // namespace chakrascope::chakra
