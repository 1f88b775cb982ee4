// Chakra .et files from columns.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace chakrascope::converter {

// Byte strings behind each other; string i ends at ends[i].
struct TextTable {
    std::string_view bytes;
    std::span<const std::int64_t> ends;

    std::string_view operator[](std::int64_t number) const;
};

// An attribute with an integer value of each node. Negative ones are left out if *skip_negative*.
struct IntegerAttribute {
    std::string name;
    std::uint32_t field;
    std::span<const std::int64_t> values;
    bool skip_negative;
};

// A text of each node: numbers of *texts*. An attribute says nothing where its text is empty.
struct TextColumn {
    std::string name;
    std::span<const std::int32_t> numbers;
    TextTable texts;
};

// Nodes in the order of the file; dependency i of node n is one of sources[bounds[n]] to sources[bounds[n +
// 1]].
struct EncodeInput {
    std::string_view preamble;  // an encoded message
    std::span<const std::int64_t> id, type, duration_ns, lane;
    TextColumn name;
    std::span<const std::int64_t> ctrl_bounds, ctrl_sources, data_bounds, data_sources;
    std::span<const std::uint8_t> is_cpu_op;
    std::vector<IntegerAttribute> integers;
    std::vector<TextColumn> texts;
    TextTable extra;  // encoded fields to append to each node; no ends: none
};

// Return the bytes of the file.
std::string encode(const EncodeInput& input);

}  // namespace chakrascope::converter
