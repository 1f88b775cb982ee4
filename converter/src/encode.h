// Chakra .et files from columns.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
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

// Durations in microseconds, what rounding left over carried to the lane's next node, so that sums agree.
class Microseconds {
  public:
    std::int64_t next(std::int64_t lane, std::int64_t duration_ns);

  private:
    __extension__ using Wide = __int128;  // files of others hold any duration

    std::unordered_map<std::int64_t, Wide> carry_;
};

// Writes a file piece by piece.
class Encoder {
  public:
    explicit Encoder(EncodeInput input);

    // Return the next bytes of the file; none at its end.
    std::string next();

  private:
    void put_node(std::string& out, std::size_t node);

    EncodeInput input_;
    std::vector<std::string> openings_;              // of the integers
    std::vector<std::vector<std::string>> encoded_;  // each text of each column, as an attribute
    Microseconds microseconds_;
    std::size_t node_ = 0;
    bool begun_ = false;
};

}  // namespace chakrascope::converter
