// What no graph may say, for whoever reads one: the converter and the engine refuse the same.
#pragma once

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>

#include "message.h"

namespace chakrascope::chakra {

// The file is not read. The text is a sentence without its subject, the file's name, which it follows.
struct Refusal : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Ids and values are kept in 64 bits with a sign.
inline constexpr std::uint64_t kLargest = std::numeric_limits<std::int64_t>::max();

inline constexpr std::string_view kIdBeyond = "its id is above 2^63. Write the workload again.";
inline constexpr std::string_view kIdRepeated = "another node has this id. Write the workload again.";
inline constexpr std::string_view kWaitsForItself =
    "it depends on itself, so it never starts. Write the workload again, or convert its traces.";
inline constexpr std::string_view kSourceBeyond = "it waits for an id above 2^63. Write the workload again.";

// Refuse a node of the file for *why*; *place* is its byte.
[[noreturn]] void refuse_node(std::uint64_t id, std::size_t place, std::string_view why);

// Return why no node may have the integer attribute *found*, "" if it may.
std::string wrong_with(const Attribute& found);

// Return why no node may last so many microseconds, "" if it may.
std::string wrong_with_micros(std::uint64_t micros);

}  // namespace chakrascope::chakra
