#include "thrift.h"

#include <limits>

#include "damaged.h"

namespace chakrascope::parquet {
namespace {

std::int64_t from_zigzag(std::uint64_t value) {
    return static_cast<std::int64_t>(value >> 1) ^ -static_cast<std::int64_t>(value & 1);
}

std::uint64_t to_zigzag(std::int64_t value) {
    return (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63);
}

}  // namespace

void ThriftReader::enter() {
    if (++depth_ > kDeepest) throw Damaged("its metadata is nested too deeply");
}

Field ThriftReader::next(int last) {
    const std::uint8_t head = byte();
    const auto wire = static_cast<Wire>(head & 0x0F);
    if (wire == Wire::Stop) return {};
    if (static_cast<std::uint8_t>(wire) > static_cast<std::uint8_t>(Wire::Struct))
        throw Damaged("its metadata has a field of an unknown type");
    const int delta = head >> 4;
    const std::int64_t id = delta != 0 ? last + delta : from_zigzag(varint());
    if (id < std::numeric_limits<std::int16_t>::min() || id > std::numeric_limits<std::int16_t>::max())
        throw Damaged("its metadata has a field with an impossible number");
    return {static_cast<int>(id), wire};
}

std::uint64_t ThriftReader::begin_list(const Field& field, Wire elements) {
    need(field, Wire::List);
    const std::uint8_t head = byte();
    std::uint64_t count = head >> 4;
    if (count == 15) count = varint();
    // Each element is a byte at least.
    if (count > bytes_.size() - place_) throw Damaged("its metadata has a list that is longer than the file");
    if (count > 0 && static_cast<Wire>(head & 0x0F) != elements)
        throw Damaged("its metadata has a list of something else");
    return count;
}

void ThriftReader::need(const Field& field, Wire wire) const {
    if (field.wire != wire)
        throw Damaged("field " + std::to_string(field.id) + " of its metadata has another type");
}

std::int64_t ThriftReader::integer(const Field& field) {
    if (field.wire == Wire::Byte) return static_cast<std::int8_t>(byte());
    if (field.wire != Wire::I16 && field.wire != Wire::I32) need(field, Wire::I64);
    return from_zigzag(varint());
}

std::int32_t ThriftReader::integer32(const Field& field) {
    const std::int64_t value = integer(field);
    if (value < std::numeric_limits<std::int32_t>::min() || value > std::numeric_limits<std::int32_t>::max())
        throw Damaged("its metadata has a number that is too large");
    return static_cast<std::int32_t>(value);
}

bool ThriftReader::boolean(const Field& field) const {
    if (field.wire != Wire::False) need(field, Wire::True);
    return field.wire == Wire::True;
}

std::string_view ThriftReader::binary(const Field& field) {
    need(field, Wire::Binary);
    return element_binary();
}

std::int64_t ThriftReader::element_integer() { return from_zigzag(varint()); }

std::string_view ThriftReader::element_binary() { return take(varint()); }

void ThriftReader::skip(const Field& field) {
    if (field.wire != Wire::True && field.wire != Wire::False) skip_element(field.wire);
}

void ThriftReader::skip_element(Wire wire) {
    switch (wire) {
        case Wire::True:
        case Wire::False:
        case Wire::Byte:
            byte();
            return;
        case Wire::I16:
        case Wire::I32:
        case Wire::I64:
            varint();
            return;
        case Wire::Double:
            take(8);
            return;
        case Wire::Binary:
            take(varint());
            return;
        case Wire::Struct:
            fields([&](const Field& field) { skip(field); });
            return;
        case Wire::List:
        case Wire::Set: {
            const std::uint8_t head = byte();
            std::uint64_t count = head >> 4;
            if (count == 15) count = varint();
            enter();
            for (std::uint64_t i = 0; i < count; ++i) skip_element(static_cast<Wire>(head & 0x0F));
            --depth_;
            return;
        }
        default:
            throw Damaged("its metadata has a field of an unknown type");
    }
}

std::uint8_t ThriftReader::byte() { return static_cast<std::uint8_t>(take(1).front()); }

std::uint64_t ThriftReader::varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        const std::uint8_t part = byte();
        value |= static_cast<std::uint64_t>(part & 0x7F) << shift;
        if (part < 0x80) return value;
    }
    throw Damaged("its metadata has a number that does not end");
}

std::string_view ThriftReader::take(std::uint64_t size) {
    if (size > bytes_.size() - place_) throw Damaged("its metadata ends in the middle");
    const std::string_view taken = bytes_.substr(place_, size);
    place_ += size;
    return taken;
}

void ThriftWriter::begin() { last_.push_back(0); }

void ThriftWriter::end() {
    bytes_.push_back(0);
    last_.pop_back();
}

void ThriftWriter::integer(int id, std::int64_t value, Wire wire) {
    field(id, wire);
    varint(to_zigzag(value));
}

void ThriftWriter::binary(int id, std::string_view value) {
    field(id, Wire::Binary);
    element(value);
}

void ThriftWriter::structure(int id) { field(id, Wire::Struct); }

void ThriftWriter::list(int id, Wire elements, std::size_t count) {
    field(id, Wire::List);
    const auto kind = static_cast<std::uint8_t>(elements);
    if (count < 15) {
        bytes_.push_back(static_cast<char>(count << 4 | kind));
    } else {
        bytes_.push_back(static_cast<char>(0xF0 | kind));
        varint(count);
    }
}

void ThriftWriter::element(std::int64_t value) { varint(to_zigzag(value)); }

void ThriftWriter::element(std::string_view value) {
    varint(value.size());
    bytes_.append(value);
}

void ThriftWriter::field(int id, Wire wire) {
    bytes_.push_back(static_cast<char>((id - last_.back()) << 4 | static_cast<int>(wire)));
    last_.back() = id;
}

void ThriftWriter::varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
}

}  // namespace chakrascope::parquet
