// Protocol Buffers' wire format: a bounds-checked reader that is safe for any input, and writing
// functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>

#include "schema.h"

namespace chakrascope::chakra {

// Append a variable-length integer in groups of seven bits.
inline void put_varint(std::string& out, std::uint64_t value) {
    while (value > 127) {
        out.push_back(static_cast<char>((value & 127) | 128));
        value >>= 7;
    }
    out.push_back(static_cast<char>(value));
}

// Append an integer in zigzag encoding, in which numbers close to zero are short.
inline void put_zigzag(std::string& out, std::int64_t value) {
    put_varint(out, static_cast<std::uint64_t>(value) << 1 ^ static_cast<std::uint64_t>(value >> 63));
}

// The error for bytes that are not a valid message. *byte* is the offset of the error in the file.
struct Damaged : std::runtime_error {
    Damaged(const std::string& what, std::size_t at) : std::runtime_error(what), byte(at) {}

    std::size_t byte;
};

// Reads the fields of a Protocol Buffers message, which is a part of a file.
class Reader {
  public:
    explicit Reader(std::string_view file) : Reader(file, file.data()) {}

    // Return a reader of *part*, which is within this reader's file.
    Reader within(std::string_view part) const { return {part, origin_}; }

    bool done() const { return at_ == end_; }
    // Return the offset of the reader in the file.
    std::size_t place() const { return static_cast<std::size_t>(at_ - origin_); }
    std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }
    const char* at() const { return at_; }

    std::uint64_t varint() {
        if (at_ != end_ && static_cast<unsigned char>(*at_) < 0x80) return static_cast<unsigned char>(*at_++);
        std::uint64_t value = 0;
        for (int shift = 0; shift < 70; shift += 7) {
            if (done()) fail("a number runs past the end");
            const auto byte = static_cast<unsigned char>(*at_++);
            value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
            if (byte < 0x80) return value;
        }
        fail("a number is longer than 64 bits");
    }

    // Read the key of a field. The wire type of the key determines the encoding of the value that
    // follows.
    std::uint32_t key() {
        const std::uint64_t key = varint();
        if (key < 8 || key > 0xFFFFFFFF) fail("a field has an impossible number");
        return static_cast<std::uint32_t>(key);
    }

    std::string_view bytes(std::uint64_t length) {
        if (length > left()) fail("a field runs past the end");
        const std::string_view view(at_, length);
        at_ += length;
        return view;
    }

    std::string_view bytes() { return bytes(varint()); }
    std::uint64_t fixed32();
    std::uint64_t fixed64();

    // Skip the value of the field with the given key.
    void skip(std::uint32_t key) { skip(key, 0); }

    // Return the next length-prefixed message.
    std::string_view message();

    // Raise `Damaged`. `fail` is a separate function, so that the code of loops stays small.
    [[noreturn, gnu::cold]] void fail(std::string_view what) const;

  private:
    Reader(std::string_view part, const char* origin)
        : origin_(origin), at_(part.data()), end_(part.data() + part.size()) {}

    void skip(std::uint32_t key, int depth);

    const char *origin_, *at_, *end_;
};

// Return whether *text*, which contains non-ASCII bytes, is valid UTF-8.
bool is_wide_utf8(std::string_view text);

template <class Word>
Word word_at(const char* place) {
    Word word;
    std::memcpy(&word, place, sizeof word);
    return word;
}

// Return whether a text is ASCII, with a fast path for short texts.
inline bool is_ascii(std::string_view text) {
    constexpr std::uint64_t kHigh = 0x8080808080808080;
    const char* const end = text.data() + text.size();
    if (text.size() >= 8) {
        std::uint64_t all = word_at<std::uint64_t>(end - 8);
        for (const char* at = text.data(); at + 8 < end; at += 8) all |= word_at<std::uint64_t>(at);
        return (all & kHigh) == 0;
    }
    if (text.size() >= 4)
        return ((word_at<std::uint32_t>(text.data()) | word_at<std::uint32_t>(end - 4)) &
                static_cast<std::uint32_t>(kHigh)) == 0;
    unsigned all = 0;
    for (const char letter : text) all |= static_cast<unsigned char>(letter);
    return all < 0x80;
}

inline bool is_utf8(std::string_view text) { return is_ascii(text) || is_wide_utf8(text); }

constexpr std::size_t varint_size(std::uint64_t value) {
    std::size_t size = 1;
    for (; value > 127; value >>= 7) ++size;
    return size;
}

inline void put_key(std::string& out, std::uint32_t field, Wire wire) { put_varint(out, key(field, wire)); }

inline void put_number(std::string& out, std::uint32_t field, std::int64_t value) {
    put_key(out, field, Wire::Varint);
    put_varint(out, static_cast<std::uint64_t>(value));
}

inline void put_bytes(std::string& out, std::uint32_t field, std::string_view bytes) {
    put_key(out, field, Wire::Bytes);
    put_varint(out, bytes.size());
    out.append(bytes);
}

}  // namespace chakrascope::chakra
