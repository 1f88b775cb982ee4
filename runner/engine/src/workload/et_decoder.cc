// Native decoder of Chakra .et files: varint-prefixed protobuf messages, one GlobalMetadata and then the
// nodes.
#include <algorithm>
#include <cstring>
#include <map>
#include <type_traits>

#include "../errors.h"
#include "program.h"

namespace chakrascope {
namespace {

constexpr std::size_t kMaxNodes = 200'000'000;

// A bounded view of one protobuf message.
class Reader {
  public:
    Reader(std::string_view bytes, const std::string& name) : bytes_(bytes), name_(name) {}

    bool done() const { return place_ == bytes_.size(); }
    std::size_t place() const { return place_; }

    std::uint64_t varint() {
        if (!done() && static_cast<unsigned char>(bytes_[place_]) < 0x80)
            return static_cast<unsigned char>(bytes_[place_++]);
        std::uint64_t value = 0;
        for (int shift = 0; shift < 70; shift += 7) {
            if (done()) fail("a number runs past the end");
            const auto byte = static_cast<unsigned char>(bytes_[place_++]);
            if (shift < 64) value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
            if (byte < 0x80) return value;
        }
        fail("a number is longer than 64 bits");
    }

    std::string_view chunk(std::uint64_t length) {
        if (length > bytes_.size() - place_) fail("a field runs past the end");
        const auto view = bytes_.substr(place_, length);
        place_ += length;
        return view;
    }

    std::string_view text() { return chunk(varint()); }

    void skip(std::uint64_t wire) {
        switch (wire) {
            case 0:
                varint();
                return;
            case 1:
                chunk(8);
                return;
            case 2:
                text();
                return;
            case 5:
                chunk(4);
                return;
            default:
                fail("an unknown wire type");
        }
    }

    [[noreturn]] void fail(const std::string& what) const {
        throw WorkloadFormatError(name_ + " is not a complete Chakra .et file: " + what +
                                  " (message offset " + std::to_string(place_) +
                                  "). Write it again or convert the traces again.");
    }

  private:
    std::string_view bytes_;
    const std::string& name_;
    std::size_t place_ = 0;
};

struct Attribute {
    std::string_view name;
    std::uint64_t number = 0;
    std::string_view text;
    std::uint64_t field = 0;  // number of the value's field, 0 when absent
};

// Field numbers of the value of an attribute.
constexpr std::uint64_t kInt32 = 7, kFixed32 = 19, kSfixed64 = 25, kBool = 27, kBoolList = 28, kString = 29;

bool is_integer(std::uint64_t field) {
    return field % 2 == 1 && ((field >= kInt32 && field <= 17) || (field >= kFixed32 && field <= kSfixed64));
}

bool is_signed_zigzag(std::uint64_t field) { return field == 15 || field == 17; }

Attribute read_attribute(std::string_view bytes, const std::string& name) {
    Reader reader(bytes, name);
    Attribute attribute;
    while (!reader.done()) {
        const std::uint64_t key = reader.varint();
        const std::uint64_t field = key >> 3, wire = key & 7;
        if (field == 1 && wire == 2) {
            attribute.name = reader.text();
        } else if (field == 2 || field == 0) {
            reader.skip(wire);
        } else {
            attribute.field = field;
            if (wire == 0) {
                attribute.number = reader.varint();
                if (is_signed_zigzag(field))
                    attribute.number = (attribute.number >> 1) ^ (~(attribute.number & 1) + 1);
            } else if (wire == 2) {
                attribute.text = reader.text();
            } else if (wire == 5 || wire == 1) {
                const auto raw = reader.chunk(wire == 5 ? 4 : 8);
                std::memcpy(&attribute.number, raw.data(), raw.size());
            } else {
                reader.skip(wire);
            }
        }
    }
    return attribute;
}

// Fold the packed or unpacked flags of a bool list into a bit mask.
std::uint8_t read_flags(std::string_view bytes, const std::string& name) {
    Reader reader(bytes, name);
    unsigned mask = 0, count = 0;
    const auto add = [&](std::uint64_t flag) {
        if (count < 8 && flag != 0) mask |= 1U << count;
        ++count;
    };
    while (!reader.done()) {
        const std::uint64_t key = reader.varint();
        if (key == 8) {
            add(reader.varint());
        } else if (key == 10) {
            Reader packed(reader.text(), name);
            while (!packed.done()) add(packed.varint());
        } else {
            reader.skip(key & 7);
        }
    }
    return static_cast<std::uint8_t>(mask);
}

std::uint64_t number_of(const Attribute& attribute, const Node& node, const Reader& reader) {
    if (is_integer(attribute.field) || attribute.field == kBool) return attribute.number;
    reader.fail("attribute " + std::string(attribute.name) + " of node " + std::to_string(node.id) +
                " is not a whole number");
}

std::int64_t group_of(const Attribute& attribute, const Node& node, const Reader& reader) {
    if (attribute.field != kString) return static_cast<std::int64_t>(number_of(attribute, node, reader));
    std::int64_t group = 0;
    for (const char letter : attribute.text) {
        if (letter < '0' || letter > '9' || group > 100'000'000'000'000) {
            reader.fail("pg_name of node " + std::to_string(node.id) + " is no group number");
        }
        group = group * 10 + (letter - '0');
    }
    return group;
}

void apply(const Attribute& attribute, Node& node, const Reader& reader, const std::string& file) {
    const auto take = [&](auto& target, std::uint16_t flag) {
        if (flag != 0 && (node.has & flag) != 0) return;  // the first of two equal names counts
        target = static_cast<std::remove_reference_t<decltype(target)>>(number_of(attribute, node, reader));
        node.has |= flag;
    };
    const std::string_view name = attribute.name;
    if (name == "is_cpu_op") {
        node.is_cpu = number_of(attribute, node, reader) != 0;
    } else if (name == "num_ops") {
        take(node.num_ops, kHasOps);
    } else if (name == "tensor_size") {
        take(node.tensor_size, kHasTensor);
    } else if (name == "comm_type") {
        take(node.comm_type, kHasCommType);
    } else if (name == "comm_size") {
        take(node.comm_size, kHasCommSize);
    } else if (name == "comm_src") {
        take(node.comm_src, kHasSrc);
    } else if (name == "comm_dst") {
        take(node.comm_dst, kHasDst);
    } else if (name == "comm_tag") {
        take(node.comm_tag, kHasTag);
    } else if (name == "comm_priority") {
        take(node.comm_priority, 0);
    } else if (name == "stream") {
        take(node.stream, kHasStream);
    } else if (name == "duration_ns") {
        take(node.duration_ns, kHasDurationNs);
    } else if (name == "pg_name") {
        node.group = group_of(attribute, node, reader);
    } else if (name == "involved_dim" && attribute.field == kBoolList) {
        node.involved_dims = read_flags(attribute.text, file);
    }
}

void read_dependencies(Reader& reader, std::uint64_t wire, const std::string& name,
                       std::vector<std::uint64_t>& parents) {
    if (wire == 0) {
        parents.push_back(reader.varint());
        return;
    }
    Reader packed(reader.text(), name);
    while (!packed.done()) parents.push_back(packed.varint());
}

RawNode read_node(std::string_view bytes, const std::string& name) {
    Reader reader(bytes, name);
    RawNode raw;
    while (!reader.done()) {
        const std::uint64_t key = reader.varint();
        const std::uint64_t field = key >> 3, wire = key & 7;
        if (field == 1 && wire == 0) {
            raw.node.id = reader.varint();
        } else if (field == 2 && wire == 2) {
            raw.node.name = std::string(reader.text());
        } else if (field == 3 && wire == 0) {
            const std::uint64_t type = reader.varint();
            if (type > 7) reader.fail("node " + std::to_string(raw.node.id) + " has an unknown type");
            raw.node.type = static_cast<NodeType>(type);
        } else if (field == 4 && (wire == 0 || wire == 2)) {
            read_dependencies(reader, wire, name, raw.ctrl_parents);
        } else if (field == 5 && (wire == 0 || wire == 2)) {
            read_dependencies(reader, wire, name, raw.parents);
        } else if (field == 7 && wire == 0) {
            raw.node.duration_micros = reader.varint();
        } else if (field == 10 && wire == 2) {
            apply(read_attribute(reader.text(), name), raw.node, reader, name);
        } else {
            reader.skip(wire);
        }
    }
    return raw;
}

// Sort by id and merge repeated ids: dependencies add up, the last occurrence supplies the content.
void normalise(std::vector<RawNode>& raw) {
    const auto earlier = [](const RawNode& a, const RawNode& b) { return a.node.id < b.node.id; };
    if (!std::is_sorted(raw.begin(), raw.end(), earlier)) std::stable_sort(raw.begin(), raw.end(), earlier);
    std::size_t kept = 0;
    for (std::size_t i = 0; i < raw.size(); ++i) {
        if (kept > 0 && raw[kept - 1].node.id == raw[i].node.id) {
            auto& parents = raw[i].parents;
            parents.insert(parents.end(), raw[kept - 1].parents.begin(), raw[kept - 1].parents.end());
            raw[kept - 1] = std::move(raw[i]);
        } else {
            if (kept != i) raw[kept] = std::move(raw[i]);
            ++kept;
        }
    }
    raw.resize(kept);
}

std::uint32_t index_of(const std::vector<Node>& nodes, std::uint64_t id, std::uint64_t child,
                       const std::string& name) {
    const std::uint64_t guess = id - nodes.front().id;  // right where no number is left out
    if (guess < nodes.size() && nodes[guess].id == id) return static_cast<std::uint32_t>(guess);
    const auto place = std::lower_bound(nodes.begin(), nodes.end(), id,
                                        [](const Node& node, std::uint64_t key) { return node.id < key; });
    if (place == nodes.end() || place->id != id) {
        throw DependencyError(name + ": node " + std::to_string(child) + " depends on node " +
                              std::to_string(id) + ", which is not in the file. Convert the traces again.");
    }
    return static_cast<std::uint32_t>(place - nodes.begin());
}

void link(Program& program, std::vector<RawNode>& raw, const std::string& name) {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> edges;
    program.parent_count.assign(raw.size(), 0);
    for (std::uint32_t child = 0; child < raw.size(); ++child) {
        auto& parents = raw[child].parents;
        std::sort(parents.begin(), parents.end());
        parents.erase(std::unique(parents.begin(), parents.end()), parents.end());
        program.parent_count[child] = static_cast<std::uint32_t>(parents.size());
        for (const std::uint64_t parent : parents) {
            edges.emplace_back(index_of(program.nodes, parent, program.nodes[child].id, name), child);
        }
    }
    program.child_offset.assign(raw.size() + 1, 0);
    for (const auto& edge : edges) ++program.child_offset[edge.first + 1];
    for (std::size_t i = 0; i < raw.size(); ++i) program.child_offset[i + 1] += program.child_offset[i];
    program.children.resize(edges.size());
    auto place = program.child_offset;
    for (const auto& edge : edges) program.children[place[edge.first]++] = edge.second;
}

std::uint16_t astra_slot(const Node& node) {
    if (node.is_cpu) return kCpuSlot;
    if (node.type == NodeType::Comp) return kGpuSlot;
    return node.type == NodeType::Recv ? kNoSlot : kCommSlot;
}

void assign_slots(Program& program) {
    std::map<std::pair<bool, std::int64_t>, std::uint16_t> lanes;
    for (const Node& node : program.nodes) {
        program.slot_astra.push_back(astra_slot(node));
        if (node.type == NodeType::Recv) {
            program.slot_trace.push_back(kNoSlot);
            continue;
        }
        const bool streamed = (node.has & kHasStream) != 0;
        const std::pair<bool, std::int64_t> key{streamed, streamed ? node.stream : astra_slot(node)};
        program.slot_trace.push_back(lanes.try_emplace(key, lanes.size() + 1).first->second);
    }
    program.lanes = static_cast<std::uint16_t>(lanes.size() + 1);
}

// Moving nodes as a list grows would cost more than finding out beforehand how many there are.
std::size_t count_messages(Reader reader) {
    std::size_t count = 0;
    for (; !reader.done(); ++count) reader.text();
    return count;
}

}  // namespace

bool Program::depends(std::uint32_t child, std::uint32_t parent) const {
    return std::binary_search(children.begin() + child_offset[parent],
                              children.begin() + child_offset[parent + 1], child);
}

std::vector<RawNode> read_nodes(std::string_view bytes, const std::string& name) {
    Reader reader(bytes, name);
    if (reader.done()) reader.fail("it is empty");
    reader.text();  // GlobalMetadata, whose content means nothing to a simulation
    std::vector<RawNode> raw;
    raw.reserve(std::min(count_messages(reader), kMaxNodes));
    while (!reader.done()) {
        if (raw.size() == kMaxNodes) reader.fail("it holds more nodes than can be simulated");
        raw.push_back(read_node(reader.text(), name));
        RawNode& node = raw.back();
        node.parents.insert(node.parents.end(), node.ctrl_parents.begin(), node.ctrl_parents.end());
        node.ctrl_parents.clear();
    }
    return raw;
}

Program decode_program(std::string_view bytes, const std::string& name) {
    std::vector<RawNode> raw = read_nodes(bytes, name);
    normalise(raw);
    Program program;
    program.nodes.reserve(raw.size());
    for (RawNode& item : raw) program.nodes.push_back(std::move(item.node));
    link(program, raw, name);
    assign_slots(program);
    const auto& counts = program.parent_count;
    if (!counts.empty() && std::find(counts.begin(), counts.end(), 0U) == counts.end()) {
        throw DependencyError(
            name + ": every node waits for another one, so that none can start. Remove the circle.");
    }
    return program;
}

}  // namespace chakrascope
