#include "writer.h"

#include <algorithm>
#include <utility>

#include "wire.h"

namespace chakrascope::chakra {
namespace {

constexpr std::size_t kPiece = 1 << 20;

void put_packed(std::string& out, std::uint32_t field, std::span<const std::int64_t> values) {
    if (values.empty()) return;
    std::size_t size = 0;
    for (const std::int64_t value : values) size += varint_size(static_cast<std::uint64_t>(value));
    put_key(out, field, Wire::Bytes);
    put_varint(out, size);
    for (const std::int64_t value : values) put_varint(out, static_cast<std::uint64_t>(value));
}

// Return the start of an encoded attribute: its name, and the key of its value.
std::string opening(Key key) {
    std::string body;
    put_bytes(body, AttributeField::kName, known(key).name);
    put_key(body, scalar_field(known(key).kind), wire_of(known(key).kind));
    return body;
}

std::string attribute(const std::string& body) {
    std::string whole;
    put_bytes(whole, NodeField::kAttribute, body);
    return whole;
}

std::string labelled(Key key, std::string_view text) {
    std::string body = opening(key);
    put_varint(body, text.size());
    return attribute(body.append(text));
}

// Encode each text of a column as an attribute, including texts that no node uses.
std::vector<std::string> labels(Key key, const converter::TextTable& texts) {
    std::vector<std::string> encoded(texts.ends.size());
    for (std::size_t i = 0; i < encoded.size(); ++i) {
        const std::string_view text = texts[static_cast<std::int64_t>(i)];
        if (!text.empty()) encoded[i] = labelled(key, text);
    }
    return encoded;
}

const std::string& is_cpu_op(bool value) {
    static const std::string both[] = {attribute(opening(Key::IsCpuOp) + '\0'),
                                       attribute(opening(Key::IsCpuOp) + '\1')};
    return both[value ? 1 : 0];
}

constexpr std::size_t column_of(Key key) { return static_cast<std::size_t>(key); }

}  // namespace

std::span<const std::int64_t> Dependencies::of(std::size_t node) const {
    const auto begin = static_cast<std::size_t>(bounds[node]),
               end = static_cast<std::size_t>(bounds[node + 1]);
    return ids.subspan(begin, end - begin);
}

std::int64_t Microseconds::next(std::int64_t lane, std::int64_t duration_ns) {
    Wide& carry = carry_[lane];
    const Wide exact = duration_ns + carry;
    const Wide rounded = std::max<Wide>(0, exact + 500) / 1000;
    carry = exact - rounded * 1000;
    return static_cast<std::int64_t>(rounded);
}

std::string own_metadata() {
    std::string metadata;
    put_bytes(metadata, MetadataField::kVersion, kVersion);
    return metadata;
}

Writer::Writer(const NodeView& nodes, std::string_view metadata) : nodes_(nodes), metadata_(metadata) {
    for (std::size_t i = 0; i < kIntegerColumns; ++i) openings_[i] = opening(static_cast<Key>(i));
    for (std::size_t i = 0; i < kTextColumns; ++i)
        encoded_[i] = labels(static_cast<Key>(kIntegerColumns + i), nodes_.texts[i].texts);
}

std::string Writer::next() {
    std::string out, body;
    out.reserve(kPiece + kPiece / 8);
    if (!begun_) {
        put_varint(out, metadata_.size());
        out += metadata_;
        begun_ = true;
    }
    for (; node_ < nodes_.id.size() && out.size() < kPiece; ++node_) {
        body.clear();
        put_node(body, node_);
        put_varint(out, body.size());
        out += body;
    }
    return out;
}

std::int64_t Writer::duration_micros(std::size_t node) {
    return microseconds_.next(nodes_.integers[column_of(Key::Stream)][node],
                              nodes_.integers[column_of(Key::DurationNs)][node]);
}

void Writer::put_node(std::string& out, std::size_t node) {
    put_number(out, NodeField::kId, nodes_.id[node]);
    put_bytes(out, NodeField::kName, nodes_.name.texts[nodes_.name.numbers[node]]);
    put_number(out, NodeField::kType, nodes_.type[node]);
    put_packed(out, NodeField::kCtrlDeps, nodes_.ctrl.of(node));
    put_packed(out, NodeField::kDataDeps, nodes_.data.of(node));
    put_number(out, NodeField::kDurationMicros, duration_micros(node));
    out += is_cpu_op(nodes_.is_cpu_op[node] != 0);
    for (std::size_t i = 0; i < kIntegerColumns; ++i) {
        const std::int64_t value = nodes_.integers[i][node];
        if (value < 0 && kKnown[i].negative_is_unset) continue;
        put_key(out, NodeField::kAttribute, Wire::Bytes);
        put_varint(out, openings_[i].size() + varint_size(static_cast<std::uint64_t>(value)));
        out += openings_[i];
        put_varint(out, static_cast<std::uint64_t>(value));
    }
    if (nodes_.group[node] != 0) out += labelled(Key::Group, std::to_string(nodes_.group[node]));
    for (std::size_t i = 0; i < kTextColumns; ++i)
        out += encoded_[i][static_cast<std::size_t>(nodes_.texts[i].numbers[node])];
    const auto begin = static_cast<std::size_t>(nodes_.extra.begins[node]),
               end = static_cast<std::size_t>(nodes_.extra.ends[node]);
    out += nodes_.extra.bytes.substr(begin, end - begin);
}

}  // namespace chakrascope::chakra
