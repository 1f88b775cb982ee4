#include "metadata.h"

#include <cstring>
#include <limits>

#include "damaged.h"
#include "thrift.h"

namespace chakrascope::parquet {
namespace {

constexpr int kLogicalUnknown = 11;

// The elements of a schema as they stand in the file, the root among them.
struct Element {
    std::string name;
    std::optional<std::int32_t> physical, converted;
    std::int32_t repetition = 0;
    std::int32_t children = 0;
    int logical = 0;  // the member of the union, 0 for none
    int bits = 0;
    bool is_signed = true;
};

void read_integer(ThriftReader& reader, Element& element) {
    reader.fields([&](const Field& field) {
        if (field.id == 1) {
            element.bits = static_cast<int>(reader.integer(field));
        } else if (field.id == 2) {
            element.is_signed = reader.boolean(field);
        } else {
            reader.skip(field);
        }
    });
}

Element read_element(ThriftReader& reader) {
    Element element;
    reader.fields([&](const Field& field) {
        switch (field.id) {
            case 1:
                element.physical = reader.integer32(field);
                return;
            case 3:
                element.repetition = reader.integer32(field);
                return;
            case 4:
                element.name = reader.binary(field);
                return;
            case 5:
                element.children = reader.integer32(field);
                return;
            case 6:
                element.converted = reader.integer32(field);
                return;
            case 10:
                reader.need(field, Wire::Struct);
                reader.fields([&](const Field& member) {
                    // A column without any value is annotated as unknown.
                    element.logical = member.id == kLogicalUnknown ? 0 : member.id;
                    if (member.id == 10 && member.wire == Wire::Struct) return read_integer(reader, element);
                    reader.skip(member);
                });
                return;
            default:
                reader.skip(field);
        }
    });
    return element;
}

std::optional<Kind> whole_kind(int bits, bool is_signed) {
    switch (bits) {
        case 8:
            return is_signed ? Kind::Int8 : Kind::UInt8;
        case 16:
            return is_signed ? Kind::Int16 : Kind::UInt16;
        case 32:
            return is_signed ? Kind::Int32 : Kind::UInt32;
        case 64:
            return is_signed ? Kind::Int64 : Kind::UInt64;
        default:
            return std::nullopt;
    }
}

// What the annotations of a whole number say; nothing where they say something else than a whole number.
std::optional<Kind> whole_of(const Element& element, int bits) {
    constexpr int kLogicalInteger = 10;
    constexpr std::int32_t kUnsigned = 11, kSigned = 15;  // 8, 16, 32 and 64 bits each
    std::optional<Kind> kind = whole_kind(bits, true);
    if (element.logical == kLogicalInteger) {
        kind = whole_kind(element.bits, element.is_signed);
    } else if (element.logical != 0) {
        return std::nullopt;
    } else if (element.converted) {
        const std::int32_t place = *element.converted - kUnsigned;
        if (place < 0 || place > 7) return std::nullopt;
        kind = whole_kind(8 << place % 4, *element.converted >= kSigned);
    }
    const bool is_long = kind && width_of(*kind) == 8;
    return is_long == (bits == 64) ? kind : std::nullopt;
}

Kind kind_of(const Element& element) {
    constexpr int kLogicalString = 1;
    const bool plain = element.logical == 0 && !element.converted;
    switch (static_cast<Physical>(element.physical.value_or(-1))) {
        case Physical::Boolean:
            return plain ? Kind::Bool : Kind::Other;
        case Physical::Int32:
            return whole_of(element, 32).value_or(Kind::Other);
        case Physical::Int64:
            return whole_of(element, 64).value_or(Kind::Other);
        case Physical::Float:
            return plain ? Kind::Float : Kind::Other;
        case Physical::Double:
            return plain ? Kind::Double : Kind::Other;
        case Physical::ByteArray:
            return element.logical == kLogicalString || element.converted == 0 ? Kind::Text : Kind::Other;
        default:
            return Kind::Other;
    }
}

std::vector<Column> columns_of(const std::vector<Element>& elements) {
    if (elements.empty()) throw Damaged("it has no schema");
    const Element& root = elements.front();
    if (root.children < 0 || static_cast<std::size_t>(root.children) != elements.size() - 1)
        throw Damaged("it has columns within columns, and only flat tables are read");
    std::vector<Column> columns;
    for (std::size_t i = 1; i < elements.size(); ++i) {
        const Element& element = elements[i];
        if (element.children != 0 || element.repetition < 0 || element.repetition > 1)
            throw Damaged("column " + element.name +
                          " has columns or lists in it, and only flat tables are read");
        columns.push_back({element.name, kind_of(element), element.repetition == 1, {}});
        if (columns.back().kind == Kind::Other)
            columns.back().other =
                "physical type " + std::to_string(element.physical.value_or(-1)) +
                (element.logical != 0 ? ", logical type " + std::to_string(element.logical) : "");
    }
    return columns;
}

struct RawBounds {
    std::optional<std::string> least, most;
};

RawBounds read_statistics(ThriftReader& reader) {
    RawBounds newer, older;
    reader.fields([&](const Field& field) {
        switch (field.id) {
            case 1:
                older.most = reader.binary(field);
                return;
            case 2:
                older.least = reader.binary(field);
                return;
            case 5:
                newer.most = reader.binary(field);
                return;
            case 6:
                newer.least = reader.binary(field);
                return;
            default:
                reader.skip(field);
        }
    });
    return newer.least && newer.most ? newer : older;
}

std::optional<std::int64_t> number_of(const std::string& bytes, Physical physical) {
    if (physical == Physical::Int32 && bytes.size() == 4) {
        std::int32_t value = 0;
        std::memcpy(&value, bytes.data(), sizeof value);
        return value;
    }
    if (physical != Physical::Int64 || bytes.size() != 8) return std::nullopt;
    std::int64_t value = 0;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
}

std::optional<Bounds> bounds_of(const RawBounds& raw, Kind kind) {
    if (!raw.least || !raw.most || !is_whole(kind) || is_unsigned(kind)) return std::nullopt;
    const auto least = number_of(*raw.least, physical_of(kind)),
               most = number_of(*raw.most, physical_of(kind));
    if (!least || !most || *least > *most) return std::nullopt;
    return Bounds{*least, *most};
}

Chunk read_chunk(ThriftReader& reader, const Column& column, std::uint64_t room) {
    Chunk chunk;
    std::int64_t data = -1, dictionary = -1, size = -1;
    std::int32_t physical = -1;
    bool known = false;
    RawBounds bounds;
    reader.fields([&](const Field& field) {
        if (field.id == 1) throw Damaged("column " + column.name + " is in another file");
        if (field.id != 3) return reader.skip(field);
        reader.need(field, Wire::Struct);
        known = true;
        reader.fields([&](const Field& fact) {
            switch (fact.id) {
                case 1:
                    physical = reader.integer32(fact);
                    return;
                case 3:
                    reader.list(fact, Wire::Binary, [&](std::uint64_t place) {
                        if (reader.element_binary() != column.name || place > 0)
                            throw Damaged("its columns are not in the order of its schema");
                    });
                    return;
                case 4:
                    chunk.codec = reader.integer32(fact);
                    return;
                case 5:
                    chunk.num_values = reader.integer(fact);
                    return;
                case 7:
                    size = reader.integer(fact);
                    return;
                case 9:
                    data = reader.integer(fact);
                    return;
                case 11:
                    dictionary = reader.integer(fact);
                    return;
                case 12:
                    reader.need(fact, Wire::Struct);
                    bounds = read_statistics(reader);
                    return;
                default:
                    reader.skip(fact);
            }
        });
    });
    if (!known) throw Damaged("column " + column.name + " has no metadata, or is encrypted");
    if (column.kind != Kind::Other && physical != static_cast<std::int32_t>(physical_of(column.kind)))
        throw Damaged("column " + column.name + " has another type in one of its row groups");
    chunk.bounds = bounds_of(bounds, column.kind);
    if (chunk.num_values == 0) return chunk;  // it may have no pages at all
    // Some write 0 where there is no dictionary.
    const std::int64_t first = dictionary > 0 && dictionary < data ? dictionary : data;
    if (first < 4 || size < 0 || static_cast<std::uint64_t>(first) > room ||
        static_cast<std::uint64_t>(size) > room - static_cast<std::uint64_t>(first))
        throw Damaged("column " + column.name + " is said to be outside of the file");
    chunk.offset = static_cast<std::uint64_t>(first);
    chunk.size = static_cast<std::uint64_t>(size);
    return chunk;
}

RowGroup read_group(ThriftReader& reader, const std::vector<Column>& columns, std::uint64_t room) {
    RowGroup group;
    group.num_rows = -1;
    reader.fields([&](const Field& field) {
        if (field.id == 1) {
            reader.list(field, Wire::Struct, [&](std::uint64_t place) {
                if (place >= columns.size()) throw Damaged("a row group has more columns than the schema");
                group.chunks.push_back(read_chunk(reader, columns[place], room));
            });
        } else if (field.id == 3) {
            group.num_rows = reader.integer(field);
        } else {
            reader.skip(field);
        }
    });
    if (group.chunks.size() != columns.size()) throw Damaged("a row group lacks columns");
    for (const Chunk& chunk : group.chunks) {
        if (group.num_rows < 0 || chunk.num_values != group.num_rows)
            throw Damaged("a row group has columns of different lengths");
    }
    if (group.num_rows < 0) throw Damaged("a row group does not say how many rows it has");
    return group;
}

}  // namespace

Physical physical_of(Kind kind) {
    switch (kind) {
        case Kind::Bool:
            return Physical::Boolean;
        case Kind::Int64:
        case Kind::UInt64:
            return Physical::Int64;
        case Kind::Float:
            return Physical::Float;
        case Kind::Double:
            return Physical::Double;
        case Kind::Text:
        case Kind::Other:
            return Physical::ByteArray;
        default:
            return Physical::Int32;
    }
}

std::size_t width_of(Kind kind) {
    switch (kind) {
        case Kind::Bool:
        case Kind::Int8:
        case Kind::UInt8:
            return 1;
        case Kind::Int16:
        case Kind::UInt16:
            return 2;
        case Kind::Int32:
        case Kind::UInt32:
        case Kind::Float:
            return 4;
        case Kind::Text:
        case Kind::Other:
            return 0;
        default:
            return 8;
    }
}

bool is_whole(Kind kind) { return kind >= Kind::Int8 && kind <= Kind::UInt64; }

bool is_unsigned(Kind kind) { return kind >= Kind::UInt8 && kind <= Kind::UInt64; }

Metadata read_metadata(std::string_view bytes, std::uint64_t room) {
    ThriftReader reader(bytes);
    Metadata metadata;
    metadata.num_rows = -1;
    std::vector<Element> elements;
    reader.fields([&](const Field& field) {
        switch (field.id) {
            case 2:
                reader.list(field, Wire::Struct,
                            [&](std::uint64_t) { elements.push_back(read_element(reader)); });
                metadata.columns = columns_of(elements);
                return;
            case 3:
                metadata.num_rows = reader.integer(field);
                return;
            case 4:
                if (elements.empty()) throw Damaged("its row groups stand before its schema");
                reader.list(field, Wire::Struct, [&](std::uint64_t) {
                    metadata.groups.push_back(read_group(reader, metadata.columns, room));
                });
                return;
            default:
                reader.skip(field);
        }
    });
    if (elements.empty()) throw Damaged("it has no schema");
    std::int64_t rows = 0;
    for (const RowGroup& group : metadata.groups) {
        if (group.num_rows > std::numeric_limits<std::int64_t>::max() - rows)
            throw Damaged("it has too many rows");
        rows += group.num_rows;
    }
    if (rows != metadata.num_rows) throw Damaged("it has another number of rows than it says");
    return metadata;
}

}  // namespace chakrascope::parquet
