// Chakra .et files from columns.
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

// A text per node, as an index into *texts*. The attribute is omitted if its text is empty.
struct TextNumbers {
    std::span<const std::int32_t> numbers;
    converter::TextTable texts;
};

// The dependencies of node n are ids[bounds[n]] to ids[bounds[n + 1]].
struct Dependencies {
    std::span<const std::int64_t> bounds, ids;

    std::span<const std::int64_t> of(std::size_t node) const;
};

// Encoded fields of each node: the bytes from begins[n] to ends[n].
struct Extra {
    std::string_view bytes;
    std::span<const std::int64_t> begins, ends;
};

// The columns of a file, in the order of its nodes.
struct NodeView {
    std::span<const std::int64_t> id, type, group, is_cpu_op;
    std::array<std::span<const std::int64_t>, kIntegerColumns> integers;  // by `Key`
    TextNumbers name;
    std::array<TextNumbers, kTextColumns> texts;
    Dependencies ctrl, data;
    Extra extra;
};

// Durations in microseconds. Each rounding error is carried over to the lane's next node, so that
// sums agree.
class Microseconds {
  public:
    std::int64_t next(std::int64_t lane, std::int64_t duration_ns);

  private:
    __extension__ using Wide = __int128;  // foreign files may hold any duration

    std::unordered_map<std::int64_t, Wide> carry_;
};

// The encoded metadata message of our own files.
std::string own_metadata();

// Writes a file piece by piece.
class Writer {
  public:
    // *metadata* is an encoded message.
    Writer(const NodeView& nodes, std::string_view metadata);

    // Return the next bytes of the file; none at its end.
    std::string next();

  private:
    void put_node(std::string& out, std::size_t node);
    std::int64_t duration_micros(std::size_t node);

    NodeView nodes_;
    std::string_view metadata_;
    std::array<std::string, kIntegerColumns> openings_;
    std::array<std::vector<std::string>, kTextColumns>
        encoded_;  // each text of each column, encoded as an attribute
    Microseconds microseconds_;
    std::size_t node_ = 0;
    bool begun_ = false;
};

}  // namespace chakrascope::chakra
