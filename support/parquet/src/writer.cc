#include "writer.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <unordered_map>

#include "checksum.h"
#include "encodings.h"
#include "snappy.h"
#include "thrift.h"

namespace chakrascope::parquet {
namespace {

constexpr std::string_view kMagic = "PAR1";
constexpr std::size_t kRowsOfAPage = 1 << 20;
constexpr std::size_t kLargestDictionary = 1 << 16;
constexpr std::int32_t kVersion = 2;

std::int32_t converted_of(Kind kind) {
    switch (kind) {
        case Kind::Text:
            return 0;
        case Kind::UInt8:
            return 11;
        case Kind::UInt16:
            return 12;
        case Kind::UInt32:
            return 13;
        case Kind::UInt64:
            return 14;
        case Kind::Int8:
            return 15;
        case Kind::Int16:
            return 16;
        default:
            return -1;
    }
}

void put(std::string& out, std::int64_t value, std::size_t width) {
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    out.append(bytes, width);
}

std::size_t plain_width(Kind kind) {
    const Physical physical = physical_of(kind);
    return physical == Physical::Int64 || physical == Physical::Double ? 8 : 4;
}

std::string plain(std::span<const std::int64_t> values, Kind kind) {
    std::string out;
    if (kind == Kind::Bool) {
        std::vector<std::uint8_t> bits(values.begin(), values.end());
        return encode_bits(bits);
    }
    out.reserve(values.size() * plain_width(kind));
    for (const std::int64_t value : values) put(out, value, plain_width(kind));
    return out;
}

std::string plain(const std::vector<std::string>& texts) {
    std::string out;
    for (const std::string& text : texts) {
        put(out, static_cast<std::int64_t>(text.size()), 4);
        out += text;
    }
    return out;
}

// The values of a column by their places in a dictionary, if that is worth it.
struct Dictionary {
    std::string entries;
    std::size_t size = 0;
    std::vector<std::uint32_t> places;
    bool worth = false;
};

Dictionary dictionary_of(std::span<const std::int64_t> values, Kind kind,
                         const std::vector<std::string>& texts) {
    Dictionary found;
    found.places.reserve(values.size());
    if (kind == Kind::Text) {
        found.worth = true;
        found.entries = plain(texts);
        found.size = texts.size();
        for (const std::int64_t value : values) found.places.push_back(static_cast<std::uint32_t>(value));
        return found;
    }
    std::unordered_map<std::int64_t, std::uint32_t> known;
    std::vector<std::int64_t> entries;
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (i > 0 && values[i] == values[i - 1]) {
            found.places.push_back(found.places.back());
            continue;
        }
        const auto [place, is_new] = known.try_emplace(values[i], static_cast<std::uint32_t>(entries.size()));
        if (is_new) entries.push_back(values[i]);
        if (entries.size() > kLargestDictionary) return found;
        found.places.push_back(place->second);
    }
    found.worth = entries.size() * 2 <= values.size();
    found.entries = plain(entries, kind);
    found.size = entries.size();
    return found;
}

enum class Way : std::uint8_t { Plain, Dictionary, Delta };

Way way_of(Kind kind) {
    if (kind == Kind::Int64 || kind == Kind::UInt64) return Way::Delta;
    if (kind == Kind::Bool || kind == Kind::Float || kind == Kind::Double) return Way::Plain;
    return Way::Dictionary;
}

// Append a page, and return how large it is without compression; its header counts in both.
std::uint64_t put_page(std::string& out, PageKind kind, std::size_t count, Encoding encoding,
                       std::string_view body) {
    if (body.size() > std::numeric_limits<std::int32_t>::max())
        throw std::invalid_argument("a page is larger than 2 GiB");
    const std::string packed = compress(body);
    ThriftWriter header;
    header.begin();
    header.integer(1, static_cast<std::int64_t>(kind));
    header.integer(2, static_cast<std::int64_t>(body.size()));
    header.integer(3, static_cast<std::int64_t>(packed.size()));
    header.integer(4, static_cast<std::int32_t>(checksum(packed)));
    header.structure(kind == PageKind::Data ? 5 : 7);
    header.begin();
    header.integer(1, static_cast<std::int64_t>(count));
    header.integer(2, static_cast<std::int64_t>(encoding));
    if (kind == PageKind::Data) {
        header.integer(3, static_cast<std::int64_t>(Encoding::Rle));
        header.integer(4, static_cast<std::int64_t>(Encoding::Rle));
    }
    header.end();
    header.end();
    out += header.bytes();
    out += packed;
    return header.bytes().size() + body.size();
}

}  // namespace

Writer::Writer(std::vector<Column> columns, std::string created_by)
    : columns_(std::move(columns)), created_by_(std::move(created_by)) {}

std::string Writer::begin() {
    place_ = kMagic.size();
    return std::string(kMagic);
}

std::string Writer::row_group(const std::vector<Values>& columns) {
    if (columns.size() != columns_.size()) throw std::invalid_argument("a row group needs all columns");
    Group group;
    group.num_rows = columns.empty() ? 0 : columns.front().values.size();
    std::string out;
    for (std::size_t i = 0; i < columns.size(); ++i) {
        const Values& values = columns[i];
        if (values.values.size() != group.num_rows ||
            (!values.present.empty() && values.present.size() != group.num_rows))
            throw std::invalid_argument("the columns of a row group need the same length");
        if (!values.present.empty() && !columns_[i].optional)
            throw std::invalid_argument("column " + columns_[i].name + " may lack no values");
        group.columns.push_back(write(columns_[i], values, out));
    }
    place_ += out.size();
    groups_.push_back(std::move(group));
    return out;
}

Writer::Written Writer::write(const Column& column, const Values& values, std::string& out) const {
    Written written;
    const std::size_t begun = out.size();
    written.offset = written.data_offset = place_ + begun;
    written.num_values = values.values.size();
    std::vector<std::int64_t> there;
    const bool lacks = !values.present.empty();
    for (std::size_t i = 0; lacks && i < values.values.size(); ++i) {
        if (values.present[i] != 0) there.push_back(values.values[i]);
    }
    const std::span<const std::int64_t> own = lacks ? there : values.values;
    written.missing = values.values.size() - own.size();
    Way way = way_of(column.kind);
    Dictionary dictionary;
    if (way == Way::Dictionary) {
        dictionary = dictionary_of(own, column.kind, values.texts);
        if (!dictionary.worth) way = Way::Plain;
    }
    written.encodings = {Encoding::Rle};
    if (way == Way::Dictionary) {
        written.dictionary_offset = written.offset;
        written.uncompressed +=
            put_page(out, PageKind::Dictionary, dictionary.size, Encoding::Plain, dictionary.entries);
        written.data_offset = place_ + out.size();
        written.encodings.push_back(Encoding::Plain);
    }
    const Encoding encoding = way == Way::Plain   ? Encoding::Plain
                              : way == Way::Delta ? Encoding::Delta
                                                  : Encoding::RleDictionary;
    written.encodings.push_back(encoding);
    const int width = std::max(1, bits_for(dictionary.size == 0 ? 0 : dictionary.size - 1));
    std::size_t next = 0, row = 0;
    do {
        const std::size_t rows = std::min(kRowsOfAPage, values.values.size() - row);
        std::string body;
        std::size_t count = rows;
        if (column.optional) {
            std::vector<std::uint32_t> levels(rows, 1);
            for (std::size_t i = 0; lacks && i < rows; ++i) levels[i] = values.present[row + i];
            count = static_cast<std::size_t>(std::count(levels.begin(), levels.end(), 1U));
            const std::string packed = encode_hybrid(levels, 1);
            put(body, static_cast<std::int64_t>(packed.size()), 4);
            body += packed;
        }
        if (way == Way::Dictionary) {
            body.push_back(static_cast<char>(width));
            body += encode_hybrid(std::span(dictionary.places).subspan(next, count), width);
        } else if (way == Way::Delta) {
            body += encode_delta(own.subspan(next, count));
        } else {
            body += plain(own.subspan(next, count), column.kind);
        }
        written.uncompressed += put_page(out, PageKind::Data, rows, encoding, body);
        next += count;
        row += rows;
    } while (row < values.values.size());
    if (is_whole(column.kind) && !is_unsigned(column.kind) && !own.empty()) {
        const auto [least, most] = std::minmax_element(own.begin(), own.end());
        put(written.least, *least, plain_width(column.kind));
        put(written.most, *most, plain_width(column.kind));
    }
    written.compressed = out.size() - begun;
    return written;
}

std::string Writer::end() {
    std::string out = metadata();
    const auto size = static_cast<std::int64_t>(out.size());
    if (size > std::numeric_limits<std::int32_t>::max())
        throw std::invalid_argument("the metadata is larger than 2 GiB");
    put(out, size, 4);
    out += kMagic;
    return out;
}

std::string Writer::metadata() const {
    ThriftWriter writer;
    const auto put_column = [&](const Column& column, const Written& written) {
        writer.begin();
        writer.integer(2, static_cast<std::int64_t>(written.offset), Wire::I64);
        writer.structure(3);
        writer.begin();
        writer.integer(1, static_cast<std::int64_t>(physical_of(column.kind)));
        writer.list(2, Wire::I32, written.encodings.size());
        for (const Encoding encoding : written.encodings) writer.element(static_cast<std::int64_t>(encoding));
        writer.list(3, Wire::Binary, 1);
        writer.element(std::string_view(column.name));
        writer.integer(4, static_cast<std::int64_t>(Codec::Snappy));
        writer.integer(5, static_cast<std::int64_t>(written.num_values), Wire::I64);
        writer.integer(6, static_cast<std::int64_t>(written.uncompressed), Wire::I64);
        writer.integer(7, static_cast<std::int64_t>(written.compressed), Wire::I64);
        writer.integer(9, static_cast<std::int64_t>(written.data_offset), Wire::I64);
        if (written.dictionary_offset > 0)
            writer.integer(11, static_cast<std::int64_t>(written.dictionary_offset), Wire::I64);
        writer.structure(12);
        writer.begin();
        writer.integer(3, static_cast<std::int64_t>(written.missing), Wire::I64);
        if (!written.least.empty()) {
            writer.binary(5, written.most);
            writer.binary(6, written.least);
        }
        writer.end();
        writer.end();
        writer.end();
    };
    std::uint64_t rows = 0;
    for (const Group& group : groups_) rows += group.num_rows;
    writer.begin();
    writer.integer(1, kVersion);
    writer.list(2, Wire::Struct, columns_.size() + 1);
    writer.begin();
    writer.binary(4, "schema");
    writer.integer(5, static_cast<std::int64_t>(columns_.size()));
    writer.end();
    for (const Column& column : columns_) {
        writer.begin();
        writer.integer(1, static_cast<std::int64_t>(physical_of(column.kind)));
        writer.integer(3, column.optional ? 1 : 0);
        writer.binary(4, column.name);
        if (const std::int32_t converted = converted_of(column.kind); converted >= 0)
            writer.integer(6, converted);
        writer.end();
    }
    writer.integer(3, static_cast<std::int64_t>(rows), Wire::I64);
    writer.list(4, Wire::Struct, groups_.size());
    for (const Group& group : groups_) {
        std::uint64_t uncompressed = 0, compressed = 0;
        for (const Written& written : group.columns) {
            uncompressed += written.uncompressed;
            compressed += written.compressed;
        }
        writer.begin();
        writer.list(1, Wire::Struct, group.columns.size());
        for (std::size_t i = 0; i < group.columns.size(); ++i) put_column(columns_[i], group.columns[i]);
        writer.integer(2, static_cast<std::int64_t>(uncompressed), Wire::I64);
        writer.integer(3, static_cast<std::int64_t>(group.num_rows), Wire::I64);
        if (!group.columns.empty())
            writer.integer(5, static_cast<std::int64_t>(group.columns.front().offset), Wire::I64);
        writer.integer(6, static_cast<std::int64_t>(compressed), Wire::I64);
        writer.end();
    }
    writer.binary(6, created_by_);
    // What makes least and greatest values count: their order is that of the column's type.
    writer.list(7, Wire::Struct, columns_.size());
    for (std::size_t i = 0; i < columns_.size(); ++i) {
        writer.begin();
        writer.structure(1);
        writer.begin();
        writer.end();
        writer.end();
    }
    writer.end();
    return writer.bytes();
}

}  // namespace chakrascope::parquet
