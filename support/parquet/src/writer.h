// Row groups and the end of a Parquet file, as bytes to write one behind the other.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "metadata.h"

namespace chakrascope::parquet {

// The values of a column in a row group, in 64 bits each as in `Decoded`.
struct Values {
    std::span<const std::int64_t> values;
    std::span<const std::uint8_t> present;  // empty where none is missing
    std::vector<std::string> texts;
};

class Writer {
  public:
    Writer(std::vector<Column> columns, std::string created_by);

    // What the file begins with.
    std::string begin();
    // The next row group; throws std::invalid_argument for columns that do not fit.
    std::string row_group(const std::vector<Values>& columns);
    // What it ends with.
    std::string end();

  private:
    struct Written {
        std::uint64_t offset = 0, dictionary_offset = 0, data_offset = 0;
        std::uint64_t uncompressed = 0, compressed = 0;
        std::uint64_t num_values = 0, missing = 0;
        std::vector<Encoding> encodings;
        std::string least, most;  // as the statistics have them, empty for none
    };
    struct Group {
        std::uint64_t num_rows = 0;
        std::vector<Written> columns;
    };

    Written write(const Column& column, const Values& values, std::string& out) const;
    std::string metadata() const;

    std::vector<Column> columns_;
    std::string created_by_;
    std::vector<Group> groups_;
    std::uint64_t place_ = 0;
};

}  // namespace chakrascope::parquet
