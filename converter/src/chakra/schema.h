// The Chakra execution trace format 0.0.4: the field numbers of its messages, the kinds of
// attribute values, and the attributes that the simulator or the converter uses.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace chakrascope::chakra {

// A file is a sequence of length-prefixed messages: one GlobalMetadata message, followed by the nodes
// in any order.
inline constexpr std::string_view kVersion = "0.0.4";

// The encoding of a field's value, with the numbers of Protocol Buffers' wire types.
enum class Wire : std::uint8_t { Varint, Fixed64, Bytes, Group, GroupEnd, Fixed32 };

// Return the key that precedes the value of a field.
constexpr std::uint32_t key(std::uint32_t field, Wire wire) {
    return field << 3 | static_cast<std::uint32_t>(wire);
}
constexpr std::uint32_t field_of(std::uint32_t key) { return key >> 3; }
constexpr Wire wire_of(std::uint32_t key) { return static_cast<Wire>(key & 7); }

struct MetadataField {
    static constexpr std::uint32_t kVersion = 1, kAttribute = 2;
};
struct NodeField {
    static constexpr std::uint32_t kId = 1, kName = 2, kType = 3, kCtrlDeps = 4, kDataDeps = 5,
                                   kStartMicros = 6, kDurationMicros = 7, kInputs = 8, kOutputs = 9,
                                   kAttribute = 10;
};
// The field numbers of inputs and outputs.
struct InfoField {
    static constexpr std::uint32_t kValues = 1, kShapes = 2, kTypes = 3;
};
struct AttributeField {
    static constexpr std::uint32_t kName = 1, kDoc = 2, kFirstValue = 3;
};
// The field number of the values of a list; an attribute may have a list as its value.
struct ListField {
    static constexpr std::uint32_t kValues = 1;
};

// The largest node type of this version, which is the type of collectives.
inline constexpr std::int64_t kLastNodeType = 7;
// The number of collective types in Chakra's schema.
inline constexpr std::int64_t kCollectiveTypes = 10;

// The kinds of values, in the order of their field numbers in an attribute. A scalar has an odd field
// number, and a list of the same kind has the next number.
enum class ValueKind : std::uint8_t {
    Double,
    Float,
    Int32,
    Int64,
    Uint32,
    Uint64,
    Sint32,
    Sint64,
    Fixed32,
    Fixed64,
    Sfixed32,
    Sfixed64,
    Bool,
    String,
    Bytes
};
inline constexpr std::array<Wire, 15> kWireOfKind = {
    Wire::Fixed64, Wire::Fixed32, Wire::Varint, Wire::Varint,  Wire::Varint,
    Wire::Varint,  Wire::Varint,  Wire::Varint, Wire::Fixed32, Wire::Fixed64,
    Wire::Fixed32, Wire::Fixed64, Wire::Varint, Wire::Bytes,   Wire::Bytes};

constexpr Wire wire_of(ValueKind kind) { return kWireOfKind[static_cast<std::size_t>(kind)]; }
constexpr std::uint32_t scalar_field(ValueKind kind) {
    return AttributeField::kFirstValue + 2 * static_cast<std::uint32_t>(kind);
}
constexpr std::uint32_t list_field(ValueKind kind) { return scalar_field(kind) + 1; }
constexpr bool is_value_field(std::uint32_t field) {
    return field >= AttributeField::kFirstValue &&
           field < AttributeField::kFirstValue + 2 * kWireOfKind.size();
}
// Return the kind of value in a field of an attribute.
constexpr ValueKind kind_of(std::uint32_t field) {
    return static_cast<ValueKind>((field - AttributeField::kFirstValue) / 2);
}
constexpr bool is_list(std::uint32_t field) { return (field - AttributeField::kFirstValue) % 2 == 1; }
constexpr Wire wire_of_value(std::uint32_t field) {
    return is_list(field) ? Wire::Bytes : wire_of(kind_of(field));
}
// Return whether a kind of value is an integer or a flag.
constexpr bool is_integer(ValueKind kind) { return kind >= ValueKind::Int32 && kind <= ValueKind::Bool; }
// Return whether values of a kind may exceed a signed 64-bit integer.
constexpr bool is_unsigned_long(ValueKind kind) {
    return kind == ValueKind::Uint64 || kind == ValueKind::Fixed64;
}

// The supported attributes: attributes with an integer column, followed by attributes with a text
// column. In both groups, attributes have the order in which they are written.
enum class Key : std::uint8_t {
    CommType,
    CommSize,
    CommSrc,
    CommDst,
    CommTag,
    NumOps,
    TensorSize,
    DurationNs,
    Stream,
    Step,
    MeasuredStart,
    Kind,
    Operator,
    Module,
    Phase,
    Cause,
    Place,
    Group,
    IsCpuOp,
    CommPriority,
    InvolvedDims,
    CommSplits,
    Other
};

// A supported attribute: its name, its column (empty if only the engine uses the attribute), the kind
// of value that is written, whether a negative value means unset, and the text of nodes without the
// attribute.
struct KnownAttribute {
    std::string_view name, column;
    ValueKind kind;
    bool negative_is_unset = false;
    std::string_view unset = {};
};

// The supported attributes by `Key`. ASTRA-sim ignores the attributes from duration_ns to place, and
// comm_splits.
inline constexpr std::array<KnownAttribute, static_cast<std::size_t>(Key::Other)> kKnown = {{
    {"comm_type", "comm_type", ValueKind::Int64, true},
    {"comm_size", "comm_size_bytes", ValueKind::Int64, true},
    {"comm_src", "comm_src", ValueKind::Int32, true},
    {"comm_dst", "comm_dst", ValueKind::Int32, true},
    {"comm_tag", "comm_tag", ValueKind::Int32, true},
    {"num_ops", "num_ops", ValueKind::Int64, true},
    {"tensor_size", "tensor_size_bytes", ValueKind::Uint64, true},
    {"duration_ns", "duration_ns", ValueKind::Uint64},
    {"stream", "stream", ValueKind::Int64},
    {"step", "step", ValueKind::Int64, true},
    {"measured_start_ns", "measured_start_ns", ValueKind::Int64, true},
    {"kind", "kind", ValueKind::String},
    {"operator", "operator", ValueKind::String},
    {"module", "module", ValueKind::String},
    {"phase", "phase", ValueKind::String, false, "other"},
    {"cause", "cause", ValueKind::String},
    {"place", "place", ValueKind::String},
    {"pg_name", "group", ValueKind::String},
    {"is_cpu_op", "is_cpu_op", ValueKind::Bool},
    {"comm_priority", "", ValueKind::Int32},
    {"involved_dim", "", ValueKind::Bool},
    {"comm_splits", "", ValueKind::Uint64},
}};
inline constexpr std::size_t kIntegerColumns = static_cast<std::size_t>(Key::Kind);
inline constexpr std::size_t kTextColumns = static_cast<std::size_t>(Key::Group) - kIntegerColumns;

constexpr const KnownAttribute& known(Key key) { return kKnown[static_cast<std::size_t>(key)]; }

// A table of the attributes by the length of their names, because few names have the same length.
// Attributes with names of length n are in *keys* from starts[n] to starts[n + 1].
struct ByLength {
    static constexpr std::size_t kLongest = 17;

    std::array<Key, kKnown.size()> keys{};
    std::array<std::uint8_t, kLongest + 2> starts{};

    constexpr ByLength() {
        std::uint8_t place = 0;
        for (std::size_t length = 0; length <= kLongest; ++length) {
            starts[length] = place;
            for (std::size_t i = 0; i < kKnown.size(); ++i)
                if (kKnown[i].name.size() == length) keys[place++] = static_cast<Key>(i);
        }
        starts[kLongest + 1] = place;
    }
};
inline constexpr ByLength kByLength;
static_assert(kByLength.starts.back() == kKnown.size(), "a name is longer than the longest");

constexpr Key key_named(std::string_view name) {
    if (name.empty() || name.size() > ByLength::kLongest) return Key::Other;
    for (std::size_t i = kByLength.starts[name.size()]; i < kByLength.starts[name.size() + 1]; ++i) {
        const std::string_view other = known(kByLength.keys[i]).name;
        if (other.front() == name.front() && other == name) return kByLength.keys[i];
    }
    return Key::Other;
}

}  // namespace chakrascope::chakra
