#include "reader.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <unordered_map>

#include "checksum.h"
#include "damaged.h"
#include "encodings.h"
#include "snappy.h"
#include "thrift.h"

namespace chakrascope::parquet {
namespace {

// A run stands for any number of values, so their number is bounded by what the pages may really hold.
constexpr std::uint64_t kValuesOfAnyChunk = 1 << 26, kValuesOfAByte = 1 << 16;
constexpr int kEncodingUnknown = -1;

struct PageHeader {
    std::int32_t kind = -1, uncompressed = -1, compressed = -1;
    std::optional<std::uint32_t> crc;
    std::int32_t num_values = -1;
    std::int32_t encoding = kEncodingUnknown;
    std::int32_t level_encoding = static_cast<std::int32_t>(Encoding::Rle);
    std::int32_t level_bytes = 0, repetition_bytes = 0;  // of the second version, whose levels stand apart
    bool is_compressed = true;
};

// Which fields of a page's header say what; 0 where it does not.
struct HeaderFields {
    int encoding = 2, level_encoding = 0, level_bytes = 0, repetition_bytes = 0, is_compressed = 0;
};

constexpr HeaderFields kData{2, 3, 0, 0, 0}, kDictionary{2, 0, 0, 0, 0}, kDataV2{4, 0, 5, 6, 7};

void read_kind_of_header(ThriftReader& reader, PageHeader& header, const HeaderFields& fields) {
    reader.fields([&](const Field& field) {
        if (field.id == 1) {
            header.num_values = reader.integer32(field);
        } else if (field.id == fields.encoding) {
            header.encoding = reader.integer32(field);
        } else if (field.id == fields.level_encoding) {
            header.level_encoding = reader.integer32(field);
        } else if (field.id == fields.level_bytes) {
            header.level_bytes = reader.integer32(field);
        } else if (field.id == fields.repetition_bytes) {
            header.repetition_bytes = reader.integer32(field);
        } else if (field.id == fields.is_compressed) {
            header.is_compressed = reader.boolean(field);
        } else {
            reader.skip(field);
        }
    });
}

PageHeader read_header(ThriftReader& reader) {
    PageHeader header;
    reader.fields([&](const Field& field) {
        switch (field.id) {
            case 1:
                header.kind = reader.integer32(field);
                return;
            case 2:
                header.uncompressed = reader.integer32(field);
                return;
            case 3:
                header.compressed = reader.integer32(field);
                return;
            case 4:
                header.crc = static_cast<std::uint32_t>(reader.integer32(field));
                return;
            case 5:
            case 7:
            case 8:
                reader.need(field, Wire::Struct);
                read_kind_of_header(reader, header,
                                    field.id == 5   ? kData
                                    : field.id == 7 ? kDictionary
                                                    : kDataV2);
                return;
            default:
                reader.skip(field);
        }
    });
    if (header.uncompressed < 0 || header.compressed < 0) throw Damaged("a page has no size");
    return header;
}

std::uint32_t length_at(std::string_view bytes) {
    if (bytes.size() < 4) throw Damaged("a page ends in the middle");
    std::uint32_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    if (length > bytes.size() - 4) throw Damaged("a page ends in the middle");
    return length;
}

class Decoder {
  public:
    Decoder(const Column& column, const Chunk& chunk) : column_(column), chunk_(chunk) {}

    Decoded decode(std::string_view bytes) {
        const auto wanted = static_cast<std::uint64_t>(chunk_.num_values);
        if (wanted > kValuesOfAnyChunk + bytes.size() * kValuesOfAByte)
            throw Damaged("it is said to hold more values than its bytes can");
        bool any_missing = false;
        while (done_ < wanted) {
            if (bytes.empty()) throw Damaged("its pages end before its values do");
            ThriftReader reader(bytes);
            const PageHeader header = read_header(reader);
            bytes.remove_prefix(reader.place());
            if (static_cast<std::size_t>(header.compressed) > bytes.size())
                throw Damaged("a page ends in the middle");
            const std::string_view body = bytes.substr(0, static_cast<std::size_t>(header.compressed));
            bytes.remove_prefix(body.size());
            if (header.crc && *header.crc != checksum(body))
                throw Damaged("a page has another checksum than it says");
            any_missing |= page(header, body);
        }
        if (!any_missing) decoded_.present.clear();
        return std::move(decoded_);
    }

  private:
    // Return whether values of the page are missing.
    bool page(const PageHeader& header, std::string_view body) {
        switch (static_cast<PageKind>(header.kind)) {
            case PageKind::Data:
                return data(header, body);
            case PageKind::DataV2:
                return data_v2(header, body);
            case PageKind::Dictionary:
                dictionary(header, body);
                return false;
            default:
                return false;  // an index, which is for those who look for single rows
        }
    }

    std::string_view plain_bytes(std::string_view body, std::size_t size, bool is_compressed) {
        if (!is_compressed || chunk_.codec == static_cast<std::int32_t>(Codec::None)) {
            if (body.size() != size) throw Damaged("a page has another size than it says");
            return body;
        }
        if (chunk_.codec != static_cast<std::int32_t>(Codec::Snappy))
            throw Damaged("it is compressed in a way that is not read here (codec " +
                          std::to_string(chunk_.codec) + "; write it with snappy, or not compressed)");
        uncompressed_ = decompress(body, size);
        return uncompressed_;
    }

    std::size_t count_of(const PageHeader& header) const {
        const auto left = static_cast<std::uint64_t>(chunk_.num_values) - done_;
        if (header.num_values < 0 || static_cast<std::uint64_t>(header.num_values) > left)
            throw Damaged("a page has more values than its column");
        return static_cast<std::size_t>(header.num_values);
    }

    bool data(const PageHeader& header, std::string_view body) {
        const std::size_t count = count_of(header);
        std::string_view rest = plain_bytes(body, static_cast<std::size_t>(header.uncompressed), true);
        std::string_view levels;
        if (column_.optional) {
            if (header.level_encoding != static_cast<std::int32_t>(Encoding::Rle))
                throw Damaged("a page says in a way that is not read here which values are missing");
            levels = rest.substr(4, length_at(rest));
            rest.remove_prefix(4 + levels.size());
        }
        return values(header, levels, rest, count);
    }

    bool data_v2(const PageHeader& header, std::string_view body) {
        const std::size_t count = count_of(header);
        if (header.level_bytes < 0 || header.repetition_bytes != 0 ||
            static_cast<std::size_t>(header.level_bytes) > body.size() ||
            header.level_bytes > header.uncompressed)
            throw Damaged("a page has levels of an impossible size");
        const std::string_view levels = body.substr(0, static_cast<std::size_t>(header.level_bytes));
        const auto size = static_cast<std::size_t>(header.uncompressed - header.level_bytes);
        body.remove_prefix(levels.size());
        // Nothing at all need not be compressed.
        if (body.empty() && size == 0) return values(header, levels, body, count);
        return values(header, levels, plain_bytes(body, size, header.is_compressed), count);
    }

    bool values(const PageHeader& header, std::string_view levels, std::string_view rest, std::size_t count) {
        std::vector<std::uint32_t> present;
        std::size_t there = count;
        if (column_.optional) {
            present = decode_hybrid(levels, 1, count);
            there = static_cast<std::size_t>(std::count(present.begin(), present.end(), 1U));
        }
        std::vector<std::int64_t> found = decoded_values(header.encoding, rest, there);
        if (column_.optional) {
            for (const std::uint32_t level : present)
                decoded_.present.push_back(static_cast<std::uint8_t>(level));
        }
        if (there == count) {
            if (decoded_.values.empty()) {
                decoded_.values = std::move(found);
            } else {
                decoded_.values.insert(decoded_.values.end(), found.begin(), found.end());
            }
        } else {
            std::size_t next = 0;
            for (const std::uint32_t level : present)
                decoded_.values.push_back(level != 0 ? found[next++] : 0);
        }
        done_ += count;
        return there != count;
    }

    std::vector<std::int64_t> decoded_values(std::int32_t encoding, std::string_view bytes,
                                             std::size_t count) {
        if (count == 0) return {};
        switch (static_cast<Encoding>(encoding)) {
            case Encoding::Plain:
                return column_.kind == Kind::Text ? places_of(plain_texts(bytes, count))
                                                  : plain_numbers(bytes, count);
            case Encoding::PlainDictionary:
            case Encoding::RleDictionary:
                return from_dictionary(bytes, count);
            case Encoding::Delta:
                if (is_whole(column_.kind))
                    return decode_delta(bytes, count, physical_of(column_.kind) == Physical::Int32);
                break;
            case Encoding::Rle:
                if (column_.kind == Kind::Bool) {
                    const auto bits = decode_hybrid(bytes.substr(4, length_at(bytes)), 1, count);
                    return {bits.begin(), bits.end()};
                }
                break;
            default:
                break;
        }
        throw Damaged("a page is encoded in a way that is not read here (encoding " +
                      std::to_string(encoding) + ")");
    }

    void dictionary(const PageHeader& header, std::string_view body) {
        if (header.num_values < 0 || has_dictionary_)
            throw Damaged("it has two dictionaries, or one of no size");
        has_dictionary_ = true;
        const auto count = static_cast<std::size_t>(header.num_values);
        const std::string_view bytes = plain_bytes(body, static_cast<std::size_t>(header.uncompressed), true);
        if (header.encoding != static_cast<std::int32_t>(Encoding::Plain) &&
            header.encoding != static_cast<std::int32_t>(Encoding::PlainDictionary))
            throw Damaged("its dictionary is encoded in a way that is not read here");
        dictionary_ =
            column_.kind == Kind::Text ? places_of(plain_texts(bytes, count)) : plain_numbers(bytes, count);
    }

    std::vector<std::int64_t> from_dictionary(std::string_view bytes, std::size_t count) const {
        if (bytes.empty()) throw Damaged("a page ends in the middle");
        const int width = static_cast<std::uint8_t>(bytes.front());
        const std::vector<std::uint32_t> places = decode_hybrid(bytes.substr(1), width, count);
        std::vector<std::int64_t> found;
        found.reserve(count);
        for (const std::uint32_t place : places) {
            if (place >= dictionary_.size()) throw Damaged("a page has values that its dictionary lacks");
            found.push_back(dictionary_[place]);
        }
        return found;
    }

    std::vector<std::int64_t> plain_numbers(std::string_view bytes, std::size_t count) const {
        const Physical physical = physical_of(column_.kind);
        if (physical == Physical::Boolean) {
            const auto bits = decode_bits(bytes, count);
            return {bits.begin(), bits.end()};
        }
        const std::size_t width = physical == Physical::Int64 || physical == Physical::Double ? 8 : 4;
        if (count > bytes.size() / width) throw Damaged("a page ends in the middle");
        std::vector<std::int64_t> found(count);
        if (width == 8) {
            if (count > 0) std::memcpy(found.data(), bytes.data(), 8 * count);
            return found;
        }
        for (std::size_t i = 0; i < count; ++i) {
            std::int32_t value = 0;
            std::memcpy(&value, bytes.data() + 4 * i, 4);
            found[i] = value;
        }
        return found;
    }

    std::vector<std::string_view> plain_texts(std::string_view bytes, std::size_t count) const {
        std::vector<std::string_view> found;
        found.reserve(std::min(count, bytes.size() / 4));
        while (found.size() < count) {
            const std::string_view text = bytes.substr(4, length_at(bytes));
            bytes.remove_prefix(4 + text.size());
            found.push_back(text);
        }
        return found;
    }

    std::vector<std::int64_t> places_of(const std::vector<std::string_view>& texts) {
        std::vector<std::int64_t> places;
        places.reserve(texts.size());
        for (const std::string_view text : texts) {
            const auto [known, is_new] = places_.try_emplace(std::string(text), decoded_.texts.size());
            if (is_new) decoded_.texts.emplace_back(text);
            places.push_back(static_cast<std::int64_t>(known->second));
        }
        return places;
    }

    const Column& column_;
    const Chunk& chunk_;
    Decoded decoded_;
    std::uint64_t done_ = 0;
    bool has_dictionary_ = false;
    std::vector<std::int64_t> dictionary_;
    std::unordered_map<std::string, std::size_t> places_;
    std::string uncompressed_;
};

}  // namespace

Decoded decode(const Column& column, const Chunk& chunk, std::string_view bytes) {
    if (column.kind == Kind::Other)
        throw Damaged("column " + column.name + " holds what is not read here: " + column.other);
    try {
        return Decoder(column, chunk).decode(bytes);
    } catch (const Damaged& error) {
        throw Damaged("column " + column.name + ": " + error.what());
    }
}

}  // namespace chakrascope::parquet
