#include "snappy.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "damaged.h"

namespace chakrascope::parquet {
namespace {

constexpr std::size_t kBlock = 1 << 16;  // copies reach back within a block only: 2 bytes tell how far
constexpr int kTableBits = 14;
constexpr std::size_t kLeast = 15;  // of what is left where a copy may begin
constexpr std::size_t kDensest =
    64;  // bytes that a single one may stand for, and more than any real one does

std::uint32_t four_bytes(const char* at) {
    std::uint32_t value = 0;
    std::memcpy(&value, at, sizeof value);
    return value;
}

std::size_t slot(std::uint32_t value) { return value * 0x1E35A7BDU >> (32 - kTableBits); }

void put_literal(std::string& out, const char* from, std::size_t size) {
    if (size == 0) return;
    const std::size_t less = size - 1;
    if (less < 60) {
        out.push_back(static_cast<char>(less << 2));
    } else if (less < 0x100) {
        out.push_back(static_cast<char>(60 << 2));
        out.push_back(static_cast<char>(less));
    } else {
        out.push_back(static_cast<char>(61 << 2));
        out.push_back(static_cast<char>(less));
        out.push_back(static_cast<char>(less >> 8));
    }
    out.append(from, size);
}

void put_copy(std::string& out, std::size_t back, std::size_t size) {
    const auto part = [&](std::size_t count) {
        out.push_back(static_cast<char>((count - 1) << 2 | 2));
        out.push_back(static_cast<char>(back));
        out.push_back(static_cast<char>(back >> 8));
    };
    for (; size > 64; size -= 64) part(64);
    part(size);
}

void compress_block(std::string_view block, std::vector<std::uint16_t>& seen, std::string& out) {
    std::fill(seen.begin(), seen.end(), std::uint16_t{0});
    const char* const base = block.data();
    std::size_t begun = 0, at = 1, misses = 32;
    while (at + kLeast < block.size()) {
        const std::uint32_t value = four_bytes(base + at);
        std::uint16_t& known = seen[slot(value)];
        const std::size_t before = known;
        known = static_cast<std::uint16_t>(at);
        if (before >= at || four_bytes(base + before) != value) {
            at += misses++ >> 5;
            continue;
        }
        std::size_t size = 4;
        while (at + size < block.size() && base[before + size] == base[at + size]) ++size;
        put_literal(out, base + begun, at - begun);
        put_copy(out, at - before, size);
        at += size;
        begun = at;
        misses = 32;
    }
    put_literal(out, base + begun, block.size() - begun);
}

}  // namespace

std::string compress(std::string_view bytes) {
    std::string out;
    out.reserve(bytes.size() / 2 + 16);
    std::size_t rest = bytes.size();
    for (; rest >= 0x80; rest >>= 7) out.push_back(static_cast<char>(rest | 0x80));
    out.push_back(static_cast<char>(rest));
    std::vector<std::uint16_t> seen(std::size_t{1} << kTableBits);
    for (std::size_t at = 0; at < bytes.size(); at += kBlock)
        compress_block(bytes.substr(at, kBlock), seen, out);
    return out;
}

std::string decompress(std::string_view bytes, std::size_t size) {
    if (size / kDensest > bytes.size()) throw Damaged("a page is said to be larger than it can be");
    std::size_t at = 0, told = 0;
    for (int shift = 0;; shift += 7) {
        if (at == bytes.size() || shift > 28) throw Damaged("a compressed page does not say its size");
        const auto part = static_cast<std::uint8_t>(bytes[at++]);
        told |= static_cast<std::size_t>(part & 0x7F) << shift;
        if (part < 0x80) break;
    }
    if (told != size) throw Damaged("a compressed page has another size than its header says");
    std::string out(size, '\0');
    std::size_t done = 0;
    const auto little = [&](std::size_t count) {
        if (count > bytes.size() - at) throw Damaged("a compressed page ends in the middle");
        std::size_t value = 0;
        for (std::size_t i = 0; i < count; ++i)
            value |= static_cast<std::size_t>(static_cast<std::uint8_t>(bytes[at + i])) << (8 * i);
        at += count;
        return value;
    };
    while (at < bytes.size()) {
        const auto tag = static_cast<std::uint8_t>(bytes[at++]);
        std::size_t count = (tag >> 2) + 1U, back = 0;
        switch (tag & 3) {
            case 0:
                if (count > 60) count = little(count - 60) + 1;
                if (count > bytes.size() - at || count > size - done)
                    throw Damaged("a compressed page ends in the middle");
                std::memcpy(out.data() + done, bytes.data() + at, count);
                at += count;
                done += count;
                continue;
            case 1:
                count = (tag >> 2 & 7U) + 4;
                back = static_cast<std::size_t>(tag >> 5) << 8;
                back |= little(1);
                break;
            case 2:
                back = little(2);
                break;
            default:
                back = little(4);
        }
        if (back == 0 || back > done || count > size - done)
            throw Damaged("a compressed page copies what it does not have");
        char* const to = out.data() + done;
        if (back >= count) {
            std::memcpy(to, to - back, count);
        } else {
            for (std::size_t i = 0; i < count; ++i) to[i] = to[i - back];
        }
        done += count;
    }
    if (done != size) throw Damaged("a compressed page ends in the middle");
    return out;
}

}  // namespace chakrascope::parquet
