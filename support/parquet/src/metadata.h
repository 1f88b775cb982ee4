// What the end of a Parquet file says of its columns and row groups:
// https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chakrascope::parquet {

enum class Kind : std::uint8_t {
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    Float,
    Double,
    Text,
    Other
};

enum class Physical : std::uint8_t {
    Boolean = 0,
    Int32 = 1,
    Int64 = 2,
    Int96 = 3,
    Float = 4,
    Double = 5,
    ByteArray = 6,
    Fixed = 7
};

enum class Encoding : std::uint8_t {
    Plain = 0,
    PlainDictionary = 2,
    Rle = 3,
    BitPacked = 4,
    Delta = 5,
    RleDictionary = 8
};

enum class Codec : std::uint8_t { None = 0, Snappy = 1 };

enum class PageKind : std::uint8_t { Data = 0, Index = 1, Dictionary = 2, DataV2 = 3 };

Physical physical_of(Kind kind);
// Bytes of a value in memory; 0 of a text.
std::size_t width_of(Kind kind);
bool is_whole(Kind kind);
bool is_unsigned(Kind kind);

struct Column {
    std::string name;
    Kind kind = Kind::Int64;
    bool optional = false;
    std::string other;  // what a column of kind Other holds
};

struct Bounds {
    std::int64_t least = 0;
    std::int64_t most = 0;
};

struct Chunk {
    std::uint64_t offset = 0;  // of its first page in the file
    std::uint64_t size = 0;    // of all its pages
    std::int64_t num_values = 0;
    std::int32_t codec = 0;
    std::optional<Bounds> bounds;  // of signed numbers
};

struct RowGroup {
    std::int64_t num_rows = 0;
    std::vector<Chunk> chunks;  // by column
};

struct Metadata {
    std::int64_t num_rows = 0;
    std::vector<Column> columns;
    std::vector<RowGroup> groups;
};

// Read from the metadata of a file whose pages are in its first *room* bytes; `Damaged` where it makes no
// sense.
Metadata read_metadata(std::string_view bytes, std::uint64_t room);

}  // namespace chakrascope::parquet
