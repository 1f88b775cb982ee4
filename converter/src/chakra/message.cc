#include "message.h"

namespace chakrascope::chakra {

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

}  // namespace chakrascope::chakra
