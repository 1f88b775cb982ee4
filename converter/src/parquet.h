// Tables as Parquet files: the library that reads them takes longer to load than a rank to convert.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "texts.h"

namespace chakrascope::converter {

enum class ColumnKind : std::uint8_t { kBool, kUint8, kInt16, kInt64, kText };

struct ColumnSchema {
    std::string name;
    ColumnKind kind;
};

// Where a column of a row group lies in the file; *dictionary_at* is -1 without a dictionary.
struct ColumnChunk {
    std::int64_t dictionary_at, data_at, size;
};

struct RowGroup {
    std::int64_t rows;
    std::vector<ColumnChunk> chunks;
};

// Writes a file column by column, in the order of the schema and then again for the next row group. What its
// functions return belongs behind each other. No value is ever absent.
class ParquetWriter {
  public:
    explicit ParquetWriter(std::vector<ColumnSchema> schema) : schema_(std::move(schema)) {}

    // Return the bytes of the next column, of integers (narrow ones and truth values are 64 bits here, too)
    // or of texts by number.
    std::string integers(std::span<const std::int64_t> values);
    std::string texts(std::span<const std::int32_t> numbers, const TextTable& texts);
    // Return the end of the file.
    std::string finish() const;

  private:
    const ColumnSchema& start_column(std::size_t rows);
    std::string end_column(std::string&& pages, std::size_t dictionary_size);

    std::vector<ColumnSchema> schema_;
    std::vector<RowGroup> groups_;
    std::int64_t size_ = 0;
};

}  // namespace chakrascope::converter
