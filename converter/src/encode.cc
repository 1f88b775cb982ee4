#include "encode.h"

#include <algorithm>
#include <utility>

#include "varint.h"

namespace chakrascope::converter {
namespace {

constexpr std::size_t kPiece = 1 << 20;
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

const std::string& is_cpu_op(bool value) {
    static const std::string known[] = {attribute(opening("is_cpu_op", kBoolValue, kVarint) + '\0'),
                                        attribute(opening("is_cpu_op", kBoolValue, kVarint) + '\1')};
    return known[value ? 1 : 0];
}

std::span<const std::int64_t> waits(std::span<const std::int64_t> bounds,
                                    std::span<const std::int64_t> sources, std::size_t node) {
    const auto begin = static_cast<std::size_t>(bounds[node]),
               end = static_cast<std::size_t>(bounds[node + 1]);
    return sources.subspan(begin, end - begin);
}

}  // namespace

std::string_view TextTable::operator[](std::int64_t number) const {
    const auto at = static_cast<std::size_t>(number);
    const auto begin = at == 0 ? 0 : static_cast<std::size_t>(ends[at - 1]);
    return bytes.substr(begin, static_cast<std::size_t>(ends[at]) - begin);
}

std::int64_t Microseconds::next(std::int64_t lane, std::int64_t duration_ns) {
    Wide& carry = carry_[lane];
    const Wide exact = duration_ns + carry;
    const Wide rounded = std::max<Wide>(0, exact + 500) / 1000;
    carry = exact - rounded * 1000;
    return static_cast<std::int64_t>(rounded);
}

Encoder::Encoder(EncodeInput input) : input_(std::move(input)) {
    for (const auto& integer : input_.integers)
        openings_.push_back(opening(integer.name, integer.field, kVarint));
    for (const auto& column : input_.texts) encoded_.push_back(labels(column));
}

std::string Encoder::next() {
    std::string out, body;
    out.reserve(kPiece + kPiece / 8);
    if (!begun_) {
        put_varint(out, input_.preamble.size());
        out += input_.preamble;
        begun_ = true;
    }
    for (; node_ < input_.id.size() && out.size() < kPiece; ++node_) {
        body.clear();
        put_node(body, node_);
        put_varint(out, body.size());
        out += body;
    }
    return out;
}

void Encoder::put_node(std::string& out, std::size_t node) {
    put_number(out, kId, input_.id[node]);
    put_text(out, kName, input_.name.texts[input_.name.numbers[node]]);
    put_number(out, kType, input_.type[node]);
    put_packed(out, kCtrl, waits(input_.ctrl_bounds, input_.ctrl_sources, node));
    put_packed(out, kData, waits(input_.data_bounds, input_.data_sources, node));
    put_number(out, kDuration, microseconds_.next(input_.lane[node], input_.duration_ns[node]));
    out += is_cpu_op(input_.is_cpu_op[node] != 0);
    for (std::size_t a = 0; a < input_.integers.size(); ++a) {
        const std::int64_t value = input_.integers[a].values[node];
        if (value < 0 && input_.integers[a].skip_negative) continue;
        put_tag(out, kAttribute, kLength);
        put_varint(out, openings_[a].size() + varint_size(static_cast<std::uint64_t>(value)));
        out += openings_[a];
        put_varint(out, static_cast<std::uint64_t>(value));
    }
    for (std::size_t a = 0; a < input_.texts.size(); ++a)
        out += encoded_[a][static_cast<std::size_t>(input_.texts[a].numbers[node])];
    if (!input_.extra.ends.empty()) out += input_.extra[static_cast<std::int64_t>(node)];
}

}  // namespace chakrascope::converter
