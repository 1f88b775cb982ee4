// Writes Chakra .et files from columns.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "../texts.h"
#include "schema.h"

namespace chakrascope::chakra {

// A text per node, as an index into *texts*. An attribute with an empty text is omitted.
struct TextNumbers {
    std::span<const std::int32_t> numbers;
    converter::TextTable texts;
};

// The dependencies of nodes. Node n depends on ids[bounds[n]] to ids[bounds[n + 1]].
struct Dependencies {
    std::span<const std::int64_t> bounds, ids;

    std::span<const std::int64_t> of(std::size_t node) const;
};

// Encoded extra fields of nodes. The fields of node n are the bytes from begins[n] to ends[n].
struct Extra {
    std::string_view bytes;
    std::span<const std::int64_t> begins, ends;
};

// The columns of a file, in the order of its nodes.
struct NodeView {
    std::span<const std::int64_t> id, type, group, is_cpu_op;
    std::array<std::span<const std::int64_t>, kIntegerColumns> integers;  // columns by `Key`
    TextNumbers name;
    std::array<TextNumbers, kTextColumns> texts;
    Dependencies ctrl, data;
    Extra extra;
};

// Converts durations to microseconds. Each rounding error is carried over to the next node of the lane,
// so that the sums of durations agree.
class Microseconds {
  public:
    std::int64_t next(std::int64_t lane, std::int64_t duration_ns);

  private:
    __extension__ using Wide = __int128;  // files of other writers may contain any duration

    std::unordered_map<std::int64_t, Wide> carry_;
};

// Return the encoded metadata message of files written by Chakrascope.
std::string own_metadata();

// Writes a Chakra file piece by piece.
class Writer {
  public:
    // Create a writer of a file with the encoded metadata message *metadata*.
    Writer(const NodeView& nodes, std::string_view metadata);

    // Return the next bytes of the file, or an empty string at the end of the file.
    std::string next();

  private:
    void put_node(std::string& out, std::size_t node);
    std::int64_t duration_micros(std::size_t node);

    NodeView nodes_;
    std::string_view metadata_;
    std::array<std::string, kIntegerColumns> openings_;
    std::array<std::vector<std::string>, kTextColumns>
        encoded_;  // texts of each text column, encoded as attributes
    Microseconds microseconds_;
    std::size_t node_ = 0;
    bool begun_ = false;
};

}  // namespace chakrascope::chakra
