// Reads the messages of a Chakra file in place.
#pragma once

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>

#include "schema.h"
#include "wire.h"

namespace chakrascope::chakra {

// A value of a field. A string is in *text*. Any other value is in *bits*, with integers extended to 64
// bits.
struct Value {
    ValueKind kind = ValueKind::Int64;
    std::uint64_t bits = 0;
    std::string_view text;
};

struct Attribute {
    Key key = Key::Other;
    std::string_view name;
    std::uint32_t field = 0;  // field number of the value; 0 if there is no value
    Value value;              // for a list, the encoded message of the list

    bool is_scalar() const { return field != 0 && !is_list(field); }
    bool holds_integer() const { return is_scalar() && is_integer(value.kind); }
    bool holds_string() const { return is_scalar() && value.kind == ValueKind::String; }
};

// The extent to which a reader checks a Chakra file. The simulator's reader does not check bytes that do
// not affect the simulation.
enum class Care : std::uint8_t { WhatMatters, Everything };

inline std::uint64_t sign_extended(std::uint64_t bits) {
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(static_cast<std::int32_t>(bits)));
}

inline std::uint64_t unzigzagged(std::uint64_t bits) { return bits >> 1 ^ (~(bits & 1) + 1); }

// Read an encoded value of the given kind.
inline Value read_value(Reader& reader, ValueKind kind) {
    const auto number = [kind](std::uint64_t bits) { return Value{kind, bits, {}}; };
    switch (kind) {
        case ValueKind::Double:
        case ValueKind::Fixed64:
        case ValueKind::Sfixed64:
            return number(reader.fixed64());
        case ValueKind::Float:
        case ValueKind::Fixed32:
            return number(reader.fixed32());
        case ValueKind::Sfixed32:
            return number(sign_extended(reader.fixed32()));
        case ValueKind::Int32:
            return number(sign_extended(reader.varint()));
        case ValueKind::Uint32:
            return number(reader.varint() & 0xFFFFFFFF);
        case ValueKind::Sint32:
            return number(sign_extended(unzigzagged(reader.varint() & 0xFFFFFFFF)));
        case ValueKind::Sint64:
            return number(unzigzagged(reader.varint()));
        case ValueKind::Bool:
            return number(reader.varint() != 0 ? 1 : 0);
        case ValueKind::String:
        case ValueKind::Bytes:
            return {kind, 0, reader.bytes()};
        default:
            return number(reader.varint());
    }
}

// Raise `Damaged` if *text*, which ends at the reader's position, is not UTF-8.
inline void check_utf8(const Reader& reader, std::string_view text) {
    if (!is_utf8(text)) reader.fail("a text is not UTF-8");
}

// Call *each* with every value of a list in packed or unpacked encoding.
template <class Each>
void read_list(Reader list, ValueKind kind, Each each) {
    while (!list.done()) {
        const std::uint32_t next = list.key();
        if (next == key(ListField::kValues, wire_of(kind))) {
            each(read_value(list, kind));
        } else if (next == key(ListField::kValues, Wire::Bytes)) {
            Reader packed = list.within(list.bytes());
            while (!packed.done()) each(read_value(packed, kind));
        } else {
            list.skip(next);
        }
    }
}

// Raise `Damaged` if the value of *attribute*, which ends at the reader's position, is malformed.
void check_value(const Reader& reader, const Attribute& attribute);

// Raise `Damaged` if *body*, an attribute or IOInfo that *reader* has passed, is malformed.
void check_info(const Reader& reader, std::string_view body);

// Read an attribute. If the attribute has several values, the last is used.
template <Care care>
Attribute read_attribute(Reader reader) {
    Attribute attribute;
    while (!reader.done()) {
        const std::uint32_t next = reader.key();
        const std::uint32_t field = field_of(next);
        if (next == key(AttributeField::kName, Wire::Bytes)) {
            attribute.name = reader.bytes();
            if (care == Care::Everything) check_utf8(reader, attribute.name);
        } else if (is_value_field(field) && wire_of(next) == wire_of_value(field)) {
            attribute.field = field;
            attribute.value = is_list(field) ? Value{kind_of(field), 0, reader.bytes()}
                                             : read_value(reader, kind_of(field));
            if (care == Care::Everything) check_value(reader, attribute);
        } else if (care == Care::Everything && next == key(AttributeField::kDoc, Wire::Bytes)) {
            check_utf8(reader, reader.bytes());
        } else {
            reader.skip(next);
        }
    }
    attribute.key = key_named(attribute.name);
    return attribute;
}

// Read the message of a node, and call a function of *into* for each field: `id`, `name`, `type`,
// `ctrl_dep`, `data_dep`, `duration_micros`, `attribute`, and `other` for all other fields. Each of
// these functions receives the reader, which has just passed the field. `attribute` and `other` also
// receive the bytes of the field, including its key.
template <Care care, class Into>
void read_node(Reader reader, Into& into) {
    const auto each = [&reader](auto tell) {
        Reader packed = reader.within(reader.bytes());
        while (!packed.done()) tell(packed.varint());
    };
    while (!reader.done()) {
        const char* const start = reader.at();
        const auto whole = [&] {
            return std::string_view(start, static_cast<std::size_t>(reader.at() - start));
        };
        const std::uint32_t next = reader.key();
        switch (next) {
            case key(NodeField::kId, Wire::Varint):
                into.id(reader.varint(), reader);
                break;
            case key(NodeField::kName, Wire::Bytes):
                into.name(reader.bytes(), reader);
                break;
            case key(NodeField::kType, Wire::Varint):
                into.type(static_cast<std::int32_t>(reader.varint()), reader);
                break;
            case key(NodeField::kCtrlDeps, Wire::Varint):
                into.ctrl_dep(reader.varint());
                break;
            case key(NodeField::kCtrlDeps, Wire::Bytes):
                each([&into](std::uint64_t id) { into.ctrl_dep(id); });
                break;
            case key(NodeField::kDataDeps, Wire::Varint):
                into.data_dep(reader.varint());
                break;
            case key(NodeField::kDataDeps, Wire::Bytes):
                each([&into](std::uint64_t id) { into.data_dep(id); });
                break;
            case key(NodeField::kDurationMicros, Wire::Varint):
                into.duration_micros(reader.varint());
                break;
            case key(NodeField::kAttribute, Wire::Bytes): {
                const Reader body = reader.within(reader.bytes());
                into.attribute(read_attribute<care>(body), whole(), reader);
                break;
            }
            default:
                reader.skip(next);
                into.other(next, whole(), reader);
        }
    }
}

// Read a complete GlobalMetadata message, and return its version.
std::string_view read_metadata(Reader reader);

// Return the number of messages left in *reader*. Raises `Damaged` if a message is incomplete.
std::size_t count_messages(Reader reader);

// The error for a Chakra file outside the limits of a valid graph, which the converter and the engine
// both enforce. The text of the error continues a sentence that starts with the name of the file.
struct Refusal : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// The largest valid id or value: ids and values are stored as signed 64-bit integers.
inline constexpr std::uint64_t kLargest = std::numeric_limits<std::int64_t>::max();

inline constexpr std::string_view kIdBeyond = "its id is above 2^63. Write the workload again.";
inline constexpr std::string_view kIdRepeated = "another node has this id. Write the workload again.";
inline constexpr std::string_view kWaitsForItself =
    "it depends on itself, so it never starts. Write the workload again, or convert its traces.";
inline constexpr std::string_view kSourceBeyond = "it waits for an id above 2^63. Write the workload again.";

// Raise `Refusal` for a node of the file, with the reason *why*. *place* is the byte offset of the
// node.
[[noreturn]] void refuse_node(std::uint64_t id, std::size_t place, std::string_view why);

// Return why an integer attribute is out of range for any node, or "" if it is in range.
std::string wrong_with(const Attribute& found);

// Return why a duration in microseconds is invalid, or "" if the duration is valid.
std::string wrong_with_micros(std::uint64_t micros);

}  // namespace chakrascope::chakra
