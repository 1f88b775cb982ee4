// Decodes a Chakra .et file with the semantics of ASTRA-sim, on top of the Chakra codec.
#include <algorithm>
#include <array>
#include <iterator>
#include <type_traits>
#include <utility>

#include "../errors.h"
#include "chakra/message.h"
#include "program.h"
#include "program_builder.h"

namespace chakrascope::engine {
namespace {

using chakra::Attribute;
using chakra::Key;
using chakra::Reader;

constexpr std::size_t kMaxNodes = 200'000'000;

// Receives the fields of one node from `read_node`.
class NodeIntake {
  public:
    // *ctrl_parents* is an empty buffer of the caller, which is reused to avoid an allocation per node.
    NodeIntake(RawNode& raw, std::vector<std::uint64_t>& ctrl_parents, std::size_t place)
        : raw_(raw), node_(raw.node), ctrl_parents_(ctrl_parents), place_(place) {}

    // The following functions are callbacks of `read_node`.
    void id(std::uint64_t number, const Reader&) { node_.id = number; }
    void name(std::string_view text, const Reader&) { node_.name = text; }
    void type(std::int32_t number, const Reader&) {
        if (number < 0 || number > chakra::kLastNodeType)
            refuse("its type " + std::to_string(number) +
                   " is unknown. Use 1 (metadata) to 7 (a collective).");
        node_.type = static_cast<NodeType>(number);
    }
    void ctrl_dep(std::uint64_t id) { ctrl_parents_.push_back(id); }
    void data_dep(std::uint64_t id) { raw_.parents.push_back(id); }
    void duration_micros(std::uint64_t duration) { node_.duration_micros = duration; }
    void attribute(const Attribute& attribute, std::string_view, const Reader& reader);
    void other(std::uint32_t, std::string_view, const Reader&) {}

    // Merge data and control dependencies, and validate the complete node.
    void finish();

  private:
    std::uint64_t number_of(const Attribute& attribute) const;
    std::int64_t group_of(const Attribute& attribute) const;
    [[noreturn]] void refuse(std::string_view why) const { chakra::refuse_node(node_.id, place_, why); }

    RawNode& raw_;
    Node& node_;
    std::vector<std::uint64_t>& ctrl_parents_;
    const std::size_t place_;  // byte offset of the node in the file
};

// The kinds of nodes during which no device is active (see converter/chakra/_kinds.py), including the
// kinds of version 0.2.
constexpr std::array<std::string_view, 7> kNotAtWork = {"host",   "sync",   "wait",     "idle",
                                                        "memory", "launch", "comm_call"};

Work work_of(std::string_view kind) {
    if (kind == "communication") return Work::Communicates;
    if (kind == "copy") return Work::Copies;
    const bool at_work = std::find(kNotAtWork.begin(), kNotAtWork.end(), kind) == kNotAtWork.end();
    return at_work ? Work::Computes : Work::Neither;
}

// Convert the flags of a bool list to a bit mask.
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

void NodeIntake::finish() {
    auto& parents = raw_.parents;
    parents.insert(parents.end(), ctrl_parents_.begin(), ctrl_parents_.end());
    ctrl_parents_.clear();
    if (node_.id > chakra::kLargest) refuse(chakra::kIdBeyond);
    if (const std::string why = chakra::wrong_with_micros(node_.duration_micros); !why.empty()) refuse(why);
    for (const std::uint64_t parent : parents) {
        if (parent > chakra::kLargest) refuse(chakra::kSourceBeyond);
        if (parent == node_.id) refuse(chakra::kWaitsForItself);
    }
}

std::uint64_t NodeIntake::number_of(const Attribute& attribute) const {
    if (!attribute.holds_integer())
        refuse("its attribute " + std::string(attribute.name) +
               " is not a whole number. Write the workload again.");
    if (const std::string why = chakra::wrong_with(attribute); !why.empty()) refuse(why);
    return attribute.value.bits;
}

std::int64_t NodeIntake::group_of(const Attribute& attribute) const {
    if (!attribute.holds_string()) return static_cast<std::int64_t>(number_of(attribute));
    std::int64_t group = 0;
    for (const char letter : attribute.value.text) {
        if (letter < '0' || letter > '9' || group > 100'000'000'000'000)
            refuse("its pg_name is not a group number. Number the groups.");
        group = group * 10 + (letter - '0');
    }
    return group;
}

void NodeIntake::attribute(const Attribute& attribute, std::string_view, const Reader& reader) {
    const auto take = [&](auto& target, std::uint16_t flag) {
        if (flag != 0 && (node_.has & flag) != 0) return;  // the first of two equal names is used
        target = static_cast<std::remove_reference_t<decltype(target)>>(number_of(attribute));
        node_.has |= flag;
    };
    switch (attribute.key) {
        case Key::IsCpuOp:
            node_.is_cpu = number_of(attribute) != 0;
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
        case Key::Kind:
            if (attribute.holds_string()) node_.work = work_of(attribute.value.text);
            break;
        case Key::Group:
            node_.group = group_of(attribute);
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

// Raise `Refusal` if two nodes have the same id. *places* are the ids and byte offsets of nodes.
void refuse_repeated(std::vector<std::pair<std::uint64_t, std::size_t>> places) {
    std::sort(places.begin(), places.end());
    const auto same = [](const auto& one, const auto& other) { return one.first == other.first; };
    const auto found = std::adjacent_find(places.begin(), places.end(), same);
    if (found != places.end())
        chakra::refuse_node(found->first, std::next(found)->second, chakra::kIdRepeated);
}

// Call *take* with each node of an .et file, in file order, and its byte offset. *take* may move the
// node. The loop stops if *take* returns false. Before the loop, *count* is called with the number of
// nodes.
template <class Count, class Take>
void each_node(std::string_view bytes, Count count, Take take) {
    Reader reader(bytes);
    if (reader.done()) reader.fail("it is empty");
    reader.message();  // GlobalMetadata, which does not affect a simulation
    std::size_t nodes = 0;
    RawNode raw;
    std::vector<std::uint64_t> ctrl_parents;
    // Counting the nodes first takes less time than moving nodes while a list grows.
    count(std::min(chakra::count_messages(reader), kMaxNodes));
    while (!reader.done()) {
        if (nodes++ == kMaxNodes) reader.fail("it holds more nodes than can be simulated");
        raw.clear();
        const Reader message = reader.within(reader.message());
        NodeIntake intake(raw, ctrl_parents, message.place());
        chakra::read_node<chakra::Care::WhatMatters>(message, intake);
        intake.finish();
        if (!take(raw, message.place())) return;
    }
}

// Call *read*, and add the name of the file to its errors.
template <class Read>
void in_file(const std::string& name, Read read) {
    try {
        read();
    } catch (const chakra::Refusal& refusal) {
        throw WorkloadFormatError(name + refusal.what());
    } catch (const chakra::Damaged& error) {
        throw WorkloadFormatError(name + " is not a complete Chakra .et file: " + error.what() + " (byte " +
                                  std::to_string(error.byte) +
                                  "). Write it again or convert the traces again.");
    }
}

}  // namespace

void RawNode::clear() {
    std::string name = std::move(node.name);
    name.clear();
    node = Node{};
    node.name = std::move(name);
    parents.clear();
}

std::vector<RawNode> read_nodes(std::string_view bytes, const std::string& name) {
    std::vector<RawNode> raw;
    in_file(name, [&] {
        std::vector<std::pair<std::uint64_t, std::size_t>> places;
        each_node(
            bytes, [&](std::size_t count) { raw.reserve(count); },
            [&](RawNode& node, std::size_t place) {
                places.emplace_back(node.node.id, place);
                raw.push_back(std::move(node));
                return true;
            });
        refuse_repeated(std::move(places));
    });
    return raw;
}

Program decode_program(std::string_view bytes, const std::string& name) {
    ProgramBuilder builder(name);
    std::uint64_t last = 0;
    bool is_first = true, ascends = true;
    in_file(name, [&] {
        each_node(
            bytes, [&](std::size_t count) { builder.reserve(count); },
            [&](RawNode& raw, std::size_t) {
                ascends = is_first || raw.node.id > last;
                is_first = false;
                last = raw.node.id;
                if (ascends) builder.add(raw);
                return ascends;
            });
    });
    if (ascends) return builder.build();
    std::vector<RawNode> raw = read_nodes(bytes, name);
    std::sort(raw.begin(), raw.end(), [](const auto& a, const auto& b) { return a.node.id < b.node.id; });
    ProgramBuilder sorted(name);
    sorted.reserve(raw.size());
    for (RawNode& node : raw) sorted.add(node);
    return sorted.build();
}

}  // namespace chakrascope::engine
