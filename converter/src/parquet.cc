#include "parquet.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <stdexcept>

#include "varint.h"

namespace chakrascope::converter {
namespace {

constexpr std::string_view kMagic = "PAR1";
// Numbers of the format's definition.
enum Type : std::int32_t { kBoolean = 0, kInt32 = 1, kLong = 2, kByteArray = 6 };
enum Encoding : std::int32_t { kPlain = 0, kRunLength = 3, kDelta = 5, kByDictionary = 8 };
enum Page : std::int32_t { kData = 0, kDictionary = 2 };
constexpr std::int32_t kRequired = 0, kUncompressed = 0;
constexpr std::size_t kBlock = 128, kMiniblock = 32;

// How a column of each kind is written; the meaning is -1 if the type says it all.
struct Form {
    Type type;
    std::int32_t meaning;
    Encoding encoding;
};

Form form_of(ColumnKind kind) {
    switch (kind) {
        case ColumnKind::kBool:
            return {kBoolean, -1, kPlain};
        case ColumnKind::kUint8:
            return {kInt32, 11, kDelta};
        case ColumnKind::kInt16:
            return {kInt32, 16, kDelta};
        case ColumnKind::kInt64:
            return {kLong, -1, kDelta};
        case ColumnKind::kText:
            break;
    }
    return {kByteArray, 0, kByDictionary};
}

// Structures in Thrift's compact protocol. Fields are given in ascending order.
class Thrift {
  public:
    enum Kind : std::uint8_t { kI32 = 5, kI64 = 6, kBinary = 8, kList = 9, kStruct = 12 };

    void i32(int field, std::int32_t value) { integer(field, kI32, value); }
    void i64(int field, std::int64_t value) { integer(field, kI64, value); }
    void text(int field, std::string_view value) {
        header(field, kBinary);
        element(value);
    }
    void list(int field, Kind kind, std::size_t size) {
        header(field, kList);
        out.push_back(static_cast<char>((size < 15 ? size : 15) << 4 | kind));
        if (size >= 15) put_varint(out, size);
    }
    void element(std::int32_t value) { put_zigzag(out, value); }
    void element(std::string_view value) {
        put_varint(out, value.size());
        out.append(value);
    }
    // Begin a structure within the present one; without a field, the next element of a list.
    void open(int field) {
        header(field, kStruct);
        open();
    }
    void open() { fields_.push_back(0); }
    void close() {
        out.push_back('\0');
        fields_.pop_back();
    }

    std::string out;

  private:
    void header(int field, Kind kind) {
        out.push_back(static_cast<char>((field - fields_.back()) << 4 | kind));
        fields_.back() = field;
    }
    void integer(int field, Kind kind, std::int64_t value) {
        header(field, kind);
        put_zigzag(out, value);
    }

    std::vector<int> fields_{0};  // the last one of each open structure
};

void put_little_endian(std::string& out, std::uint64_t value, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

// Append the lowest *width* bits of each of *values*, the lowest first.
void put_bits(std::string& out, std::span<const std::uint64_t> values, unsigned width) {
    std::uint64_t word = 0;
    unsigned filled = 0;
    for (const std::uint64_t value : values) {
        word |= value << filled;
        filled += width;
        if (filled < 64) continue;
        put_little_endian(out, word, 8);
        filled -= 64;
        word = filled > 0 ? value >> (width - filled) : 0;
    }
    put_little_endian(out, word, (filled + 7) / 8);
}

// Append the differences of *values*, less the least of each block, in as few bits as each miniblock needs.
void put_deltas(std::string& out, std::span<const std::int64_t> values) {
    put_varint(out, kBlock);
    put_varint(out, kBlock / kMiniblock);
    put_varint(out, values.size());
    put_zigzag(out, values.empty() ? 0 : values[0]);
    for (std::size_t begin = 1; begin < values.size(); begin += kBlock) {
        std::array<std::uint64_t, kBlock> deltas{};
        const std::size_t count = std::min(kBlock, values.size() - begin);
        std::int64_t least = std::numeric_limits<std::int64_t>::max();
        for (std::size_t i = 0; i < count; ++i) {
            // Unsigned: differences of any two numbers wrap around, as readers expect.
            deltas[i] = static_cast<std::uint64_t>(values[begin + i]) -
                        static_cast<std::uint64_t>(values[begin + i - 1]);
            least = std::min(least, static_cast<std::int64_t>(deltas[i]));
        }
        put_zigzag(out, least);
        for (std::size_t i = 0; i < count; ++i) deltas[i] -= static_cast<std::uint64_t>(least);
        std::array<unsigned, kBlock / kMiniblock> widths{};
        for (std::size_t i = 0; i < count; ++i)
            widths[i / kMiniblock] = std::max<unsigned>(widths[i / kMiniblock], std::bit_width(deltas[i]));
        for (const unsigned width : widths) out.push_back(static_cast<char>(width));
        for (std::size_t i = 0; i < count; i += kMiniblock)
            put_bits(out, std::span(deltas).subspan(i, kMiniblock), widths[i / kMiniblock]);
    }
}

// Return a page: its header, then *body*.
std::string page(Page kind, std::size_t values, Encoding encoding, const std::string& body) {
    Thrift header;
    const auto size = static_cast<std::int32_t>(body.size());
    header.i32(1, kind);
    header.i32(2, size);
    header.i32(3, size);
    header.open(kind == kData ? 5 : 7);
    header.i32(1, static_cast<std::int32_t>(values));
    header.i32(2, encoding);
    if (kind == kData) {
        header.i32(3, kRunLength);
        header.i32(4, kRunLength);
    }
    header.close();
    header.out.push_back('\0');
    return header.out + body;
}

void put_schema(Thrift& out, const std::vector<ColumnSchema>& schema) {
    out.list(2, Thrift::kStruct, schema.size() + 1);
    out.open();
    out.text(4, "schema");
    out.i32(5, static_cast<std::int32_t>(schema.size()));
    out.close();
    for (const ColumnSchema& column : schema) {
        const Form form = form_of(column.kind);
        out.open();
        out.i32(1, form.type);
        out.i32(3, kRequired);
        out.text(4, column.name);
        if (form.meaning >= 0) out.i32(6, form.meaning);
        out.close();
    }
}

void put_chunk(Thrift& out, const ColumnSchema& column, const ColumnChunk& chunk, std::int64_t rows) {
    const Form form = form_of(column.kind);
    const bool has_dictionary = chunk.dictionary_at >= 0;
    out.open();
    out.i64(2, chunk.data_at);
    out.open(3);
    out.i32(1, form.type);
    out.list(2, Thrift::kI32, has_dictionary ? 2 : 1);
    out.element(form.encoding);
    if (has_dictionary) out.element(kPlain);
    out.list(3, Thrift::kBinary, 1);
    out.element(column.name);
    out.i32(4, kUncompressed);
    out.i64(5, rows);
    out.i64(6, chunk.size);
    out.i64(7, chunk.size);
    out.i64(9, chunk.data_at);
    if (has_dictionary) out.i64(11, chunk.dictionary_at);
    out.close();
    out.close();
}

void put_row_group(Thrift& out, const std::vector<ColumnSchema>& schema, const RowGroup& group) {
    if (group.chunks.size() != schema.size()) throw std::invalid_argument("columns are missing");
    std::int64_t size = 0;
    out.open();
    out.list(1, Thrift::kStruct, schema.size());
    for (std::size_t i = 0; i < schema.size(); ++i) {
        put_chunk(out, schema[i], group.chunks[i], group.rows);
        size += group.chunks[i].size;
    }
    out.i64(2, size);
    out.i64(3, group.rows);
    out.close();
}

}  // namespace

std::string ParquetWriter::integers(std::span<const std::int64_t> values) {
    const Form form = form_of(start_column(values.size()).kind);
    if (form.type == kByteArray) throw std::invalid_argument("a column of texts is due");
    std::string body;
    if (form.type == kBoolean) {
        put_bits(body, std::vector<std::uint64_t>(values.begin(), values.end()), 1);
    } else {
        put_deltas(body, values);
    }
    return end_column(page(kData, values.size(), form.encoding, body), 0);
}

std::string ParquetWriter::texts(std::span<const std::int32_t> numbers, const TextTable& texts) {
    const Form form = form_of(start_column(numbers.size()).kind);
    if (form.type != kByteArray) throw std::invalid_argument("a column of integers is due");
    constexpr std::uint64_t kUnseen = std::numeric_limits<std::uint64_t>::max();
    std::vector<std::uint64_t> place(texts.ends.size(), kUnseen);
    std::vector<std::uint64_t> indices;
    indices.reserve(numbers.size() + 7);
    std::string dictionary;
    std::uint64_t known = 0;
    for (const std::int32_t number : numbers) {
        std::uint64_t& index = place[static_cast<std::size_t>(number)];
        if (index == kUnseen) {
            index = known++;
            const std::string_view text = texts[number];
            put_little_endian(dictionary, text.size(), 4);
            dictionary.append(text);
        }
        indices.push_back(index);
    }
    const unsigned width = known < 2 ? 1 : static_cast<unsigned>(std::bit_width(known - 1));
    const std::size_t runs = (numbers.size() + 7) / 8;
    indices.resize(8 * runs);
    std::string body(1, static_cast<char>(width));
    put_varint(body, runs << 1 | 1);
    put_bits(body, indices, width);
    const std::string first = page(kDictionary, known, kPlain, dictionary);
    return end_column(first + page(kData, numbers.size(), form.encoding, body), first.size());
}

// Return the schema of the next column, which has *rows*.
const ColumnSchema& ParquetWriter::start_column(std::size_t rows) {
    if (groups_.empty() || groups_.back().chunks.size() == schema_.size())
        groups_.push_back({static_cast<std::int64_t>(rows), {}});
    if (groups_.back().rows != static_cast<std::int64_t>(rows))
        throw std::invalid_argument("the columns differ in length");
    return schema_[groups_.back().chunks.size()];
}

// Return what goes into the file for a column of *pages*, which begin with a dictionary if it has a size.
std::string ParquetWriter::end_column(std::string&& pages, std::size_t dictionary_size) {
    if (size_ == 0) pages.insert(0, kMagic);
    const std::int64_t begin = size_ == 0 ? static_cast<std::int64_t>(kMagic.size()) : size_;
    size_ += static_cast<std::int64_t>(pages.size());
    const auto data_at = begin + static_cast<std::int64_t>(dictionary_size);
    groups_.back().chunks.push_back({dictionary_size > 0 ? begin : -1, data_at, size_ - begin});
    return std::move(pages);
}

std::string ParquetWriter::finish() const {
    Thrift out;
    std::int64_t rows = 0;
    for (const RowGroup& group : groups_) rows += group.rows;
    out.i32(1, 2);
    put_schema(out, schema_);
    out.i64(3, rows);
    out.list(4, Thrift::kStruct, groups_.size());
    for (const RowGroup& group : groups_) put_row_group(out, schema_, group);
    out.text(6, "chakrascope");
    out.out.push_back('\0');
    std::string end(size_ == 0 ? kMagic : "");
    end += out.out;
    put_little_endian(end, out.out.size(), 4);
    return end.append(kMagic);
}

}  // namespace chakrascope::converter
