#include "encode.h"

#include <algorithm>
#include <unordered_map>

#include "varint.h"

namespace chakrascope::converter {
namespace {

constexpr std::uint32_t kVarint = 0, kLength = 2;
// Field numbers of the schema.
constexpr std::uint32_t kId = 1, kName = 2, kType = 3, kCtrl = 4, kData = 5, kDuration = 7, kAttribute = 10;
constexpr std::uint32_t kAttributeName = 1, kBoolValue = 27, kStringValue = 29;

std::size_t varint_size(std::uint64_t value) {
    std::size_t size = 1;
    for (; value > 127; value >>= 7) ++size;
    return size;
}

void put_tag(std::string& out, std::uint32_t field, std::uint32_t wire) {
    put_varint(out, field << 3 | wire);
}

void put_number(std::string& out, std::uint32_t field, std::int64_t value) {
    put_tag(out, field, kVarint);
    put_varint(out, static_cast<std::uint64_t>(value));
}

void put_text(std::string& out, std::uint32_t field, std::string_view text) {
    put_tag(out, field, kLength);
    put_varint(out, text.size());
    out.append(text);
}

void put_packed(std::string& out, std::uint32_t field, std::span<const std::int64_t> values) {
    if (values.empty()) return;
    std::size_t size = 0;
    for (const std::int64_t value : values) size += varint_size(static_cast<std::uint64_t>(value));
    put_tag(out, field, kLength);
    put_varint(out, size);
    for (const std::int64_t value : values) put_varint(out, static_cast<std::uint64_t>(value));
}

// The beginning of an attribute's body: its name, and the tag of its value.
std::string opening(const std::string& name, std::uint32_t field, std::uint32_t wire) {
    std::string body;
    put_text(body, kAttributeName, name);
    put_tag(body, field, wire);
    return body;
}

std::string attribute(const std::string& body) {
    std::string whole;
    put_text(whole, kAttribute, body);
    return whole;
}

// Each text of *column* as an encoded attribute; texts that occur on no node cost a little, too.
std::vector<std::string> labels(const TextColumn& column) {
    std::vector<std::string> encoded(column.texts.ends.size());
    for (std::size_t i = 0; i < encoded.size(); ++i) {
        const std::string_view text = column.texts[static_cast<std::int64_t>(i)];
        if (text.empty()) continue;
        std::string body = opening(column.name, kStringValue, kLength);
        put_varint(body, text.size());
        encoded[i] = attribute(body.append(text));
    }
    return encoded;
}

// Durations in microseconds, what rounding left over carried to the lane's next node, so that sums agree.
class Microseconds {
  public:
    std::int64_t next(std::int64_t lane, std::int64_t duration_ns) {
        Wide& carry = carry_[lane];
        const Wide exact = duration_ns + carry;
        const Wide rounded = std::max<Wide>(0, exact + 500) / 1000;
        carry = exact - rounded * 1000;
        return static_cast<std::int64_t>(rounded);
    }

  private:
    __extension__ using Wide = __int128;  // files of others hold any duration

    std::unordered_map<std::int64_t, Wide> carry_;
};

}  // namespace

std::string_view TextTable::operator[](std::int64_t number) const {
    const auto at = static_cast<std::size_t>(number);
    const auto begin = at == 0 ? 0 : static_cast<std::size_t>(ends[at - 1]);
    return bytes.substr(begin, static_cast<std::size_t>(ends[at]) - begin);
}

std::string encode(const EncodeInput& input) {
    std::string out, node, body;
    put_varint(out, input.preamble.size());
    out += input.preamble;
    const std::string cpu[] = {attribute(opening("is_cpu_op", kBoolValue, kVarint) + '\0'),
                               attribute(opening("is_cpu_op", kBoolValue, kVarint) + '\1')};
    std::vector<std::string> openings;
    for (const auto& integer : input.integers)
        openings.push_back(opening(integer.name, integer.field, kVarint));
    std::vector<std::vector<std::string>> encoded;
    for (const auto& column : input.texts) encoded.push_back(labels(column));
    Microseconds microseconds;
    const auto waits = [](std::span<const std::int64_t> bounds, std::span<const std::int64_t> sources,
                          auto i) {
        const auto begin = static_cast<std::size_t>(bounds[i]), end = static_cast<std::size_t>(bounds[i + 1]);
        return sources.subspan(begin, end - begin);
    };
    for (std::size_t i = 0; i < input.id.size(); ++i) {
        node.clear();
        put_number(node, kId, input.id[i]);
        put_text(node, kName, input.name.texts[input.name.numbers[i]]);
        put_number(node, kType, input.type[i]);
        put_packed(node, kCtrl, waits(input.ctrl_bounds, input.ctrl_sources, i));
        put_packed(node, kData, waits(input.data_bounds, input.data_sources, i));
        put_number(node, kDuration, microseconds.next(input.lane[i], input.duration_ns[i]));
        node += cpu[input.is_cpu_op[i] != 0 ? 1 : 0];
        for (std::size_t a = 0; a < input.integers.size(); ++a) {
            const std::int64_t value = input.integers[a].values[i];
            if (value < 0 && input.integers[a].skip_negative) continue;
            put_tag(node, kAttribute, kLength);
            put_varint(node, openings[a].size() + varint_size(static_cast<std::uint64_t>(value)));
            node += openings[a];
            put_varint(node, static_cast<std::uint64_t>(value));
        }
        for (std::size_t a = 0; a < input.texts.size(); ++a)
            node += encoded[a][static_cast<std::size_t>(input.texts[a].numbers[i])];
        if (!input.extra.ends.empty()) node += input.extra[static_cast<std::int64_t>(i)];
        put_varint(out, node.size());
        out += node;
    }
    return out;
}

}  // namespace chakrascope::converter
