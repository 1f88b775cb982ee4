// A Chakra file of any writer as columns.
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

// Why a node waits for another one, if the file contains the reason.
inline constexpr std::int64_t kDataEdge = 0, kCtrlEdge = 8;

struct TextColumn {
    std::vector<std::int32_t> numbers;
    converter::Texts texts;
};

// Fields without a column: the encoded fields of node ids[i] end at ends[i]. The id of another
// writer's metadata is -1, which comes first.
struct ExtraColumns {
    std::vector<std::int64_t> ids, ends;
    std::vector<std::uint8_t> bytes;
};

// In ascending order of ids, which are unique. A column without any value is empty.
struct NodeColumns {
    std::vector<std::int64_t> id, group;
    std::vector<std::uint8_t> type, is_cpu_op;
    std::array<std::vector<std::int64_t>, kIntegerColumns> integers;  // by `Key`
    TextColumn name;
    std::array<TextColumn, kTextColumns> texts;
    std::vector<std::int64_t> edges;  // source, target and kind of each edge, sorted by target, then source
    ExtraColumns extra;
};

// Read the content of a file. Raises `Refusal`.
NodeColumns read_columns(std::string_view file);

}  // namespace chakrascope::chakra
