#include "message.h"

namespace chakrascope::chakra {
namespace {

// Return whether the attribute is a count or a size, which cannot be negative.
bool counts(Key key) {
    return key == Key::CommSize || key == Key::NumOps || key == Key::TensorSize || key == Key::DurationNs;
}

}  // namespace

void check_value(const Reader& reader, const Attribute& attribute) {
    if (attribute.holds_string()) check_utf8(reader, attribute.value.text);
    if (attribute.is_scalar()) return;
    read_list(reader.within(attribute.value.text), attribute.value.kind, [&](const Value& value) {
        if (value.kind == ValueKind::String) check_utf8(reader, value.text);
    });
}

void check_info(const Reader& reader, std::string_view body) {
    Reader info = reader.within(body);
    while (!info.done()) {
        const std::uint32_t next = info.key();
        if (wire_of(next) == Wire::Bytes && field_of(next) <= InfoField::kTypes) {
            check_utf8(info, info.bytes());
        } else {
            info.skip(next);
        }
    }
}

std::string_view read_metadata(Reader reader) {
    std::string_view version;
    while (!reader.done()) {
        const std::uint32_t next = reader.key();
        if (next == key(MetadataField::kVersion, Wire::Bytes)) {
            version = reader.bytes();
            check_utf8(reader, version);
        } else if (next == key(MetadataField::kAttribute, Wire::Bytes)) {
            read_attribute<Care::Everything>(reader.within(reader.bytes()));
        } else {
            reader.skip(next);
        }
    }
    return version;
}

std::size_t count_messages(Reader reader) {
    std::size_t count = 0;
    for (; !reader.done(); ++count) reader.message();
    return count;
}

void refuse_node(std::uint64_t id, std::size_t place, std::string_view why) {
    throw Refusal(", node " + std::to_string(id) + " at byte " + std::to_string(place) + ": " +
                  std::string(why));
}

std::string wrong_with(const Attribute& found) {
    const std::uint64_t bits = found.value.bits;
    const auto value = static_cast<std::int64_t>(bits);
    if (is_unsigned_long(found.value.kind) && bits > kLargest)
        return std::string(found.name) + " is " + std::to_string(bits) +
               ", above 2^63. Write the workload again.";
    if (found.key == Key::CommType && (value < 0 || value >= kCollectiveTypes))
        return "comm_type " + std::to_string(value) + " is not a collective. Use 0 (all-reduce) to 9.";
    if (counts(found.key) && value < 0)
        return std::string(found.name) + " is " + std::to_string(value) +
               ", below 0. Write the workload again.";
    return {};
}

std::string wrong_with_micros(std::uint64_t micros) {
    if (micros <= kLargest / 1000) return {};
    return "its duration is " + std::to_string(micros) + " us, above 2^63 ns. Write the workload again.";
}

}  // namespace chakrascope::chakra
