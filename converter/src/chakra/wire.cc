#include "wire.h"

namespace chakrascope::chakra {
namespace {

constexpr int kDeepest = 100;  // Protocol Buffers' limit on nested groups

// Return the number of continuation bytes after the *first* byte of a UTF-8 character, or -1 if the
// byte cannot be a first byte.
int bytes_after(unsigned char first) {
    if (first < 0x80) return 0;
    if (first >= 0xC2 && first < 0xE0) return 1;
    if (first >= 0xE0 && first < 0xF0) return 2;
    return first >= 0xF0 && first < 0xF5 ? 3 : -1;
}

// Return whether *second* may follow *first* in UTF-8. Overlong forms, surrogates and characters beyond
// U+10FFFF are invalid.
bool may_follow(unsigned char first, unsigned char second) {
    switch (first) {
        case 0xE0:
            return second >= 0xA0;
        case 0xED:
            return second < 0xA0;
        case 0xF0:
            return second >= 0x90;
        case 0xF4:
            return second < 0x90;
        default:
            return true;
    }
}

}  // namespace

void Reader::fail(std::string_view what) const { throw Damaged(std::string(what), place()); }

std::uint64_t Reader::fixed32() { return word_at<std::uint32_t>(bytes(4).data()); }

std::uint64_t Reader::fixed64() { return word_at<std::uint64_t>(bytes(8).data()); }

void Reader::skip(std::uint32_t key, int depth) {
    switch (wire_of(key)) {
        case Wire::Varint:
            varint();
            return;
        case Wire::Fixed64:
            bytes(8);
            return;
        case Wire::Bytes:
            bytes();
            return;
        case Wire::Fixed32:
            bytes(4);
            return;
        case Wire::Group:
            if (depth == kDeepest) fail("groups are nested too deeply");
            for (;;) {
                const std::uint32_t inner = this->key();
                if (inner == chakra::key(field_of(key), Wire::GroupEnd)) return;
                skip(inner, depth + 1);
            }
        default:
            fail("an unknown wire type");
    }
}

std::string_view Reader::message() {
    const Reader start = *this;
    const std::uint64_t length = varint();
    if (length > left()) {
        start.fail("a message of " + std::to_string(length) + " bytes is announced, " +
                   std::to_string(left()) + " follow");
    }
    return bytes(length);
}

bool is_wide_utf8(std::string_view text) {
    std::size_t at = 0;
    while (at < text.size()) {
        const auto first = static_cast<unsigned char>(text[at]);
        const int more = bytes_after(first);
        if (more < 0 || text.size() - at <= static_cast<std::size_t>(more)) return false;
        for (int i = 1; i <= more; ++i) {
            const auto byte = static_cast<unsigned char>(text[at + static_cast<std::size_t>(i)]);
            if (byte < 0x80 || byte > 0xBF || (i == 1 && !may_follow(first, byte))) return false;
        }
        at += static_cast<std::size_t>(more) + 1;
    }
    return true;
}

}  // namespace chakrascope::chakra
