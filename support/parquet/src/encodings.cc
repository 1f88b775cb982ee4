#include "encodings.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "damaged.h"

namespace chakrascope::parquet {
namespace {

constexpr std::size_t kGroup = 8;
constexpr std::size_t kBlock = 128, kMiniblocks = 4, kMiniblock = kBlock / kMiniblocks;
constexpr std::uint64_t kLargestBlock = 1 << 16;

void put_varint(std::string& out, std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
    out.push_back(static_cast<char>(value));
}

// Appends numbers of a width, the lowest bits first; what is left of a byte is 0.
class BitWriter {
  public:
    explicit BitWriter(std::string& out) : out_(out) {}
    void put(std::uint64_t value, int width) {
        for (int left = width; left > 0;) {
            const int part = std::min(left, 8 - filled_);
            byte_ |= static_cast<std::uint8_t>((value & ((1U << part) - 1)) << filled_);
            value >>= part;
            filled_ += part;
            left -= part;
            if (filled_ == 8) flush();
        }
    }
    void flush() {
        if (filled_ == 0) return;
        out_.push_back(static_cast<char>(byte_));
        byte_ = 0;
        filled_ = 0;
    }

  private:
    std::string& out_;
    std::uint8_t byte_ = 0;
    int filled_ = 0;
};

// The number of *width* bits (at most 64) at a place; what is beyond the end is 0.
std::uint64_t bits_at(std::string_view bytes, std::size_t bit, int width) {
    if (width == 0) return 0;
    const std::size_t first = bit / 8;
    const int shift = static_cast<int>(bit % 8);
    std::array<unsigned char, 16> near{};
    if (first < bytes.size())
        std::memcpy(near.data(), bytes.data() + first, std::min<std::size_t>(9, bytes.size() - first));
    std::uint64_t low = 0;
    std::memcpy(&low, near.data(), 8);
    std::uint64_t value = low >> shift;
    if (shift > 0) value |= static_cast<std::uint64_t>(near[8]) << (64 - shift);
    return width == 64 ? value : value & ((std::uint64_t{1} << width) - 1);
}

// Call with each of *count* numbers of *width* bits; `bytes` has them all.
template <class Each>
void each_packed(std::string_view bytes, int width, std::uint64_t count, const Each& each) {
    constexpr int kOneLoad = 57;  // bits that eight bytes hold wherever they begin
    const std::uint64_t mask = width >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << width) - 1;
    const auto step = static_cast<std::uint64_t>(width);
    std::uint64_t i = 0;
    for (; width <= kOneLoad && i < count && i * step / 8 + 8 <= bytes.size(); ++i) {
        std::uint64_t value = 0;
        std::memcpy(&value, bytes.data() + i * step / 8, sizeof value);
        each(value >> (i * step % 8) & mask);
    }
    for (; i < count; ++i) each(bits_at(bytes, i * step, width));
}

class Bytes {
  public:
    explicit Bytes(std::string_view bytes) : bytes_(bytes) {}
    bool empty() const { return place_ == bytes_.size(); }
    std::uint8_t byte() { return static_cast<std::uint8_t>(take(1).front()); }
    std::uint64_t varint() {
        std::uint64_t value = 0;
        for (int shift = 0; shift < 64; shift += 7) {
            const std::uint8_t part = byte();
            value |= static_cast<std::uint64_t>(part & 0x7F) << shift;
            if (part < 0x80) return value;
        }
        throw Damaged("a page has a number that does not end");
    }
    std::int64_t zigzag() {
        const std::uint64_t value = varint();
        return static_cast<std::int64_t>(value >> 1) ^ -static_cast<std::int64_t>(value & 1);
    }
    std::string_view take(std::uint64_t size) {
        if (size > bytes_.size() - place_) throw Damaged("a page ends in the middle");
        const std::string_view taken = bytes_.substr(place_, size);
        place_ += size;
        return taken;
    }
    // The same, or what there is.
    std::string_view take_up_to(std::uint64_t size) {
        return take(std::min<std::uint64_t>(size, bytes_.size() - place_));
    }

  private:
    std::string_view bytes_;
    std::size_t place_ = 0;
};

}  // namespace

int bits_for(std::uint64_t largest) { return static_cast<int>(std::bit_width(largest)); }

std::string encode_hybrid(std::span<const std::uint32_t> values, int width) {
    std::string out;
    std::size_t begun = 0, at = 0;  // from `begun` on in packed groups
    const auto pack = [&](std::size_t end) {
        if (end == begun) return;
        const std::size_t groups = (end - begun + kGroup - 1) / kGroup;
        put_varint(out, groups << 1 | 1);
        BitWriter bits(out);
        for (std::size_t i = 0; i < groups * kGroup; ++i)
            bits.put(begun + i < end ? values[begun + i] : 0, width);
        bits.flush();
    };
    while (at < values.size()) {
        std::size_t end = at + 1;
        while (end < values.size() && values[end] == values[at]) ++end;
        // Groups before a run are whole; their last values may be the run's first.
        const std::size_t lent = (kGroup - (at - begun) % kGroup) % kGroup;
        if (end - at < lent + 2 * kGroup) {
            at = end;
            continue;
        }
        at += lent;
        pack(at);
        put_varint(out, static_cast<std::uint64_t>(end - at) << 1);
        for (int byte = 0; byte < (width + 7) / 8; ++byte)
            out.push_back(static_cast<char>(values[at] >> (8 * byte)));
        at = begun = end;
    }
    pack(values.size());
    return out;
}

std::vector<std::uint32_t> decode_hybrid(std::string_view bytes, int width, std::size_t count) {
    if (width < 0 || width > 32) throw Damaged("a page has numbers of more than 32 bits");
    std::vector<std::uint32_t> values;
    values.reserve(std::min(count, bytes.size() * kGroup));
    Bytes left(bytes);
    while (values.size() < count) {
        const std::uint64_t head = left.varint();
        const std::uint64_t wanted = count - values.size();
        if ((head & 1) == 0) {
            const std::string_view repeated = left.take(static_cast<std::uint64_t>((width + 7) / 8));
            const auto value = static_cast<std::uint32_t>(bits_at(repeated, 0, width));
            const std::uint64_t run = head >> 1;
            if (run == 0) throw Damaged("a page has a run of nothing");
            values.insert(values.end(), std::min(run, wanted), value);
            continue;
        }
        const std::uint64_t groups = head >> 1;
        if (groups == 0 || groups > bytes.size() + 1) throw Damaged("a page has more values than bytes");
        const std::uint64_t packed = std::min(groups * kGroup, wanted);
        // The last group may be cut off behind its last value.
        const std::string_view part = left.take_up_to(groups * static_cast<std::uint64_t>(width));
        if (part.size() * 8 < packed * static_cast<std::uint64_t>(width))
            throw Damaged("a page ends in the middle");
        each_packed(part, width, packed,
                    [&](std::uint64_t value) { values.push_back(static_cast<std::uint32_t>(value)); });
    }
    return values;
}

std::string encode_delta(std::span<const std::int64_t> values) {
    std::string out;
    put_varint(out, kBlock);
    put_varint(out, kMiniblocks);
    put_varint(out, values.size());
    const auto zigzag = [&](std::int64_t value) {
        put_varint(out, (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63));
    };
    zigzag(values.empty() ? 0 : values.front());
    for (std::size_t begin = 1; begin < values.size(); begin += kBlock) {
        const std::size_t count = std::min(kBlock, values.size() - begin);
        std::array<std::int64_t, kBlock> differences{};
        for (std::size_t i = 0; i < count; ++i)
            differences[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(values[begin + i]) -
                                                       static_cast<std::uint64_t>(values[begin + i - 1]));
        const std::int64_t least =
            *std::min_element(differences.begin(), differences.begin() + static_cast<std::ptrdiff_t>(count));
        zigzag(least);
        std::array<std::uint64_t, kBlock> above{};
        for (std::size_t i = 0; i < count; ++i)
            above[i] = static_cast<std::uint64_t>(differences[i]) - static_cast<std::uint64_t>(least);
        std::array<int, kMiniblocks> widths{};
        for (std::size_t m = 0; m < kMiniblocks; ++m) {
            const auto first = above.begin() + static_cast<std::ptrdiff_t>(m * kMiniblock);
            widths[m] = bits_for(*std::max_element(first, first + kMiniblock));
            out.push_back(static_cast<char>(widths[m]));
        }
        for (std::size_t m = 0; m * kMiniblock < count; ++m) {
            BitWriter bits(out);
            for (std::size_t i = 0; i < kMiniblock; ++i) bits.put(above[m * kMiniblock + i], widths[m]);
            bits.flush();
        }
    }
    return out;
}

std::vector<std::int64_t> decode_delta(std::string_view bytes, std::size_t count, bool is_32_bits) {
    Bytes left(bytes);
    const std::uint64_t block = left.varint(), miniblocks = left.varint(), total = left.varint();
    if (block == 0 || block > kLargestBlock || block % 128 != 0 || miniblocks == 0 ||
        block % miniblocks != 0 || block / miniblocks % 32 != 0)
        throw Damaged("a page has differences in impossible blocks");
    if (total != count) throw Damaged("a page has another number of values than its header says");
    std::vector<std::int64_t> values;
    const std::uint64_t first = static_cast<std::uint64_t>(left.zigzag());
    if (count == 0) return values;
    values.reserve(std::min<std::uint64_t>(count, bytes.size() * kBlock));
    const auto keep = [&](std::uint64_t value) {
        values.push_back(is_32_bits ? static_cast<std::int32_t>(static_cast<std::uint32_t>(value))
                                    : static_cast<std::int64_t>(value));
    };
    std::uint64_t last = first;
    keep(last);
    const std::uint64_t size = block / miniblocks;
    while (values.size() < count) {
        const auto least = static_cast<std::uint64_t>(left.zigzag());
        const std::string_view widths = left.take(miniblocks);
        for (std::uint64_t m = 0; m < miniblocks && values.size() < count; ++m) {
            const int width = static_cast<std::uint8_t>(widths[m]);
            if (width > 64) throw Damaged("a page has differences of more than 64 bits");
            const std::uint64_t wanted = std::min<std::uint64_t>(size, count - values.size());
            // The last one may be cut off behind its last value.
            const std::string_view part = left.take_up_to(size / 8 * static_cast<std::uint64_t>(width));
            if (part.size() * 8 < wanted * static_cast<std::uint64_t>(width))
                throw Damaged("a page ends in the middle");
            each_packed(part, width, wanted, [&](std::uint64_t above) {
                last += least + above;
                keep(last);
            });
        }
    }
    return values;
}

std::string encode_bits(std::span<const std::uint8_t> values) {
    std::string out;
    BitWriter bits(out);
    for (const std::uint8_t value : values) bits.put(value != 0 ? 1 : 0, 1);
    bits.flush();
    return out;
}

std::vector<std::uint8_t> decode_bits(std::string_view bytes, std::size_t count) {
    if (bytes.size() < (count + 7) / 8) throw Damaged("a page ends in the middle");
    std::vector<std::uint8_t> values(count);
    for (std::size_t i = 0; i < count; ++i)
        values[i] = static_cast<std::uint8_t>(bytes[i / 8]) >> (i % 8) & 1;
    return values;
}

}  // namespace chakrascope::parquet
