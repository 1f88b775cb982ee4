// Reads a Chakra file of any writer into columns.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "../texts.h"
#include "message.h"
#include "schema.h"

namespace chakrascope::chakra {

// The kinds of edges, which are the reasons why a node waits for another node.
inline constexpr std::int64_t kDataEdge = 0, kCtrlEdge = 8;

struct TextColumn {
    std::vector<std::int32_t> numbers;
    converter::Texts texts;
};

// The encoded fields of nodes that have no column. The fields of node ids[i] end at byte ends[i]. The
// first entry has the id -1, and contains the metadata of a file from another writer.
struct ExtraColumns {
    std::vector<std::int64_t> ids, ends;
    std::vector<std::uint8_t> bytes;
};

// Columns of nodes in ascending order of ids, which are unique. A column without any value is empty.
struct NodeColumns {
    std::vector<std::int64_t> id, group;
    std::vector<std::uint8_t> type, is_cpu_op;
    std::array<std::vector<std::int64_t>, kIntegerColumns> integers;  // columns by `Key`
    TextColumn name;
    std::array<TextColumn, kTextColumns> texts;
    std::vector<std::int64_t> edges;  // source, target and kind of each edge, sorted by target, then source
    ExtraColumns extra;
};

// Read the content of a Chakra file. Raises `Refusal`.
NodeColumns read_columns(std::string_view file);

}  // namespace chakrascope::chakra
