// What ASTRA-sim makes of a Chakra .et file, which the codec reads.
#include <algorithm>
#include <map>
#include <type_traits>

#include "../errors.h"
#include "chakra/message.h"
#include "program.h"

namespace chakrascope::engine {
namespace {

using chakra::Attribute;
using chakra::Key;
using chakra::Reader;

constexpr std::size_t kMaxNodes = 200'000'000;

// Takes in one node.
class NodeIntake {
  public:
    // *ctrl_parents* is empty, and lent so that not every node allocates it.
    NodeIntake(RawNode& raw, std::vector<std::uint64_t>& ctrl_parents)
        : raw_(raw), node_(raw.node), ctrl_parents_(ctrl_parents) {}

    // What `read_node` tells.
    void id(std::uint64_t number, const Reader&) { node_.id = number; }
    void name(std::string_view text, const Reader&) { node_.name = text; }
    void type(std::int32_t number, const Reader& reader) {
        if (number < 0 || number > chakra::kLastNodeType) fail(reader, "", " has an unknown type");
        node_.type = static_cast<NodeType>(number);
    }
    void ctrl_dep(std::uint64_t id) { ctrl_parents_.push_back(id); }
    void data_dep(std::uint64_t id) { raw_.parents.push_back(id); }
    void duration_micros(std::uint64_t duration) { node_.duration_micros = duration; }
    void attribute(const Attribute& attribute, std::string_view, const Reader& reader);
    void other(std::uint32_t, std::string_view, const Reader&) {}

  private:
    std::uint64_t number_of(const Attribute& attribute, const Reader& reader) const;
    std::int64_t group_of(const Attribute& attribute, const Reader& reader) const;
    [[noreturn]] void fail(const Reader& reader, const std::string& before, const std::string& after) const {
        reader.fail(before + "node " + std::to_string(node_.id) + after);
    }

    RawNode& raw_;
    Node& node_;
    std::vector<std::uint64_t>& ctrl_parents_;
};

// Fold the flags of a bool list into a bit mask.
std::uint8_t read_flags(const Attribute& attribute, const Reader& reader) {
    unsigned mask = 0, count = 0;
    chakra::read_list(reader.within(attribute.value.text), chakra::ValueKind::Bool,
                      [&](const chakra::Value& flag) {
                          if (count < 8 && flag.bits != 0) mask |= 1U << count;
                          ++count;
                      });
    return static_cast<std::uint8_t>(mask);
}

std::vector<std::uint64_t> read_numbers(const Attribute& attribute, const Reader& reader) {
    std::vector<std::uint64_t> numbers;
    chakra::read_list(reader.within(attribute.value.text), chakra::ValueKind::Uint64,
                      [&](const chakra::Value& number) { numbers.push_back(number.bits); });
    return numbers;
}

std::uint64_t NodeIntake::number_of(const Attribute& attribute, const Reader& reader) const {
    if (attribute.holds_integer()) return attribute.value.bits;
    fail(reader, "attribute " + std::string(attribute.name) + " of ", " is not a whole number");
}

std::int64_t NodeIntake::group_of(const Attribute& attribute, const Reader& reader) const {
    if (!attribute.holds_string()) return static_cast<std::int64_t>(number_of(attribute, reader));
    std::int64_t group = 0;
    for (const char letter : attribute.value.text) {
        if (letter < '0' || letter > '9' || group > 100'000'000'000'000)
            fail(reader, "pg_name of ", " is no group number");
        group = group * 10 + (letter - '0');
    }
    return group;
}

void NodeIntake::attribute(const Attribute& attribute, std::string_view, const Reader& reader) {
    const auto take = [&](auto& target, std::uint16_t flag) {
        if (flag != 0 && (node_.has & flag) != 0) return;  // the first of two equal names counts
        target = static_cast<std::remove_reference_t<decltype(target)>>(number_of(attribute, reader));
        node_.has |= flag;
    };
    switch (attribute.key) {
        case Key::IsCpuOp:
            node_.is_cpu = number_of(attribute, reader) != 0;
            break;
        case Key::NumOps:
            take(node_.num_ops, kHasOps);
            break;
        case Key::TensorSize:
            take(node_.tensor_size, kHasTensor);
            break;
        case Key::CommType:
            take(node_.comm_type, kHasCommType);
            break;
        case Key::CommSize:
            take(node_.comm_size, kHasCommSize);
            break;
        case Key::CommSrc:
            take(node_.comm_src, kHasSrc);
            break;
        case Key::CommDst:
            take(node_.comm_dst, kHasDst);
            break;
        case Key::CommTag:
            take(node_.comm_tag, kHasTag);
            break;
        case Key::CommPriority:
            take(node_.comm_priority, 0);
            break;
        case Key::Stream:
            take(node_.stream, kHasStream);
            break;
        case Key::DurationNs:
            take(node_.duration_ns, kHasDurationNs);
            break;
        case Key::Group:
            node_.group = group_of(attribute, reader);
            break;
        case Key::InvolvedDims:
            if (attribute.field == chakra::list_field(chakra::ValueKind::Bool))
                node_.involved_dims = read_flags(attribute, reader);
            break;
        case Key::CommSplits:
            if (attribute.field == chakra::list_field(chakra::ValueKind::Uint64))
                node_.comm_splits = read_numbers(attribute, reader);
            break;
        default:
            break;
    }
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
    edges.reserve(raw.size());
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

}  // namespace

bool Program::depends(std::uint32_t child, std::uint32_t parent) const {
    return std::binary_search(children.begin() + child_offset[parent],
                              children.begin() + child_offset[parent + 1], child);
}

std::vector<RawNode> read_nodes(std::string_view bytes, const std::string& name) {
    try {
        Reader reader(bytes);
        if (reader.done()) reader.fail("it is empty");
        reader.message();  // GlobalMetadata, whose content means nothing to a simulation
        std::vector<RawNode> raw;
        std::vector<std::uint64_t> ctrl_parents;
        // Moving nodes as a list grows would cost more than finding out beforehand how many there are.
        raw.reserve(std::min(chakra::count_messages(reader), kMaxNodes));
        while (!reader.done()) {
            if (raw.size() == kMaxNodes) reader.fail("it holds more nodes than can be simulated");
            RawNode& node = raw.emplace_back();
            NodeIntake intake(node, ctrl_parents);
            chakra::read_node<chakra::Care::WhatMatters>(reader.within(reader.message()), intake);
            node.parents.insert(node.parents.end(), ctrl_parents.begin(), ctrl_parents.end());
            ctrl_parents.clear();
        }
        return raw;
    } catch (const chakra::Damaged& error) {
        throw WorkloadFormatError(name + " is not a complete Chakra .et file: " + error.what() + " (byte " +
                                  std::to_string(error.byte) +
                                  "). Write it again or convert the traces again.");
    }
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
            name +
            ": every node waits for another one, so that none can start. Remove the dependency cycle.");
    }
    return program;
}

}  // namespace chakrascope::engine
