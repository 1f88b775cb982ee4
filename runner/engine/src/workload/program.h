// One decoded Chakra program: nodes in ascending id and their dependency graph.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace chakrascope::engine {

enum class NodeType : std::uint8_t { Invalid, Metadata, MemLoad, MemStore, Comp, Send, Recv, Coll };
enum class CommType : std::int8_t {
    None = -1,
    AllReduce = 0,
    Reduce,
    AllGather,
    Gather,
    Scatter,
    Broadcast,
    AllToAll,
    ReduceScatter,
    ReduceScatterBlock,
    Barrier
};

// Attributes a node really carries; the others hold the default below.
enum NodeHas : std::uint16_t {
    kHasOps = 1,
    kHasTensor = 2,
    kHasCommType = 4,
    kHasCommSize = 8,
    kHasSrc = 16,
    kHasDst = 32,
    kHasTag = 64,
    kHasStream = 128,
    kHasDurationNs = 256,
};

// What many nodes of a program have in common.
struct Facts {
    NodeType type = NodeType::Invalid;
    bool is_cpu = false;
    CommType comm_type = CommType::None;
    std::uint8_t involved_dims = 0x0F;
    std::uint16_t has = 0;
    std::uint64_t num_ops = 0;
    std::uint64_t tensor_size = 0;
    std::uint64_t comm_size = 0;
    std::int64_t comm_src = -1;
    std::int64_t comm_dst = -1;
    std::int64_t comm_tag = 0;
    std::int64_t group = 0;
    std::int64_t comm_priority = 0;
    std::int64_t stream = 0;
    std::vector<std::uint64_t> comm_splits;  // bytes for each member of the group, in listed order

    bool operator==(const Facts&) const = default;
};

struct Node : Facts {
    std::uint64_t id = 0;
    std::string name;
    std::uint64_t duration_micros = 0;
    std::uint64_t duration_ns = 0;
};

// How many others each node waits for: few for almost all of them, which takes a byte.
class Waits {
  public:
    void reserve(std::size_t nodes) { few_.reserve(nodes); }
    void push_back(std::size_t count);
    std::uint32_t size() const { return static_cast<std::uint32_t>(few_.size()); }
    std::uint32_t operator[](std::uint32_t node) const {
        return few_[node] == kMany ? many_.at(node) : few_[node];
    }
    // There is one less to wait for; returns whether none is left.
    bool less(std::uint32_t node) {
        if (few_[node] != kMany) return --few_[node] == 0;
        return --many_.at(node) == 0;
    }

  private:
    static constexpr std::uint8_t kMany = 0xFF;

    std::vector<std::uint8_t> few_;
    std::unordered_map<std::uint32_t, std::uint32_t> many_;
};

// In columns, about 20 bytes for a node with one and a half dependencies: jobs have a hundred million nodes.
class Program {
  public:
    std::uint32_t size() const { return static_cast<std::uint32_t>(kind_of_.size()); }
    std::uint64_t id(std::uint32_t node) const { return ids_.empty() ? first_id_ + node : ids_[node]; }
    const Facts& facts(std::uint32_t node) const { return facts_[kinds_[kind_of_[node]].facts]; }
    std::string_view name(std::uint32_t node) const;
    std::uint64_t duration_micros(std::uint32_t node) const;
    std::uint64_t duration_ns(std::uint32_t node) const;
    // All that is known of a node.
    Node node(std::uint32_t node) const;

    std::span<const std::uint32_t> children(std::uint32_t node) const {
        return {children_.data() + child_offset_[node], child_offset_[node + 1] - child_offset_[node]};
    }
    const Waits& parents() const { return parents_; }
    // The nodes, each after those that it depends on, else by id; those on a cycle are left out.
    std::vector<std::uint32_t> in_order() const;
    bool depends(std::uint32_t child, std::uint32_t parent) const;

    // The slot of a node in ASTRA-sim's resource model, and the one where every stream is a resource.
    std::uint16_t slot_astra(std::uint32_t node) const { return slots_[kinds_[kind_of_[node]].facts].astra; }
    std::uint16_t slot_trace(std::uint32_t node) const { return slots_[kinds_[kind_of_[node]].facts].trace; }
    // Number of slots of the second model, including the unlimited one.
    std::uint16_t lanes() const { return lanes_; }

  private:
    friend class ProgramBuilder;

    // What is equal in nodes of one name.
    struct Kind {
        std::uint32_t name;
        std::uint32_t facts;
    };
    struct Slots {
        std::uint16_t astra;
        std::uint16_t trace;
    };
    static constexpr std::int8_t kLongDuration = -128;

    struct Duration {
        std::uint64_t micros;
        std::uint64_t ns;
    };

    bool has_ns(std::uint32_t node) const;

    std::uint64_t first_id_ = 0;
    std::vector<std::uint64_t> ids_;  // empty where no number is left out
    std::vector<std::uint32_t> kind_of_;
    std::vector<Kind> kinds_;
    std::vector<Facts> facts_;
    std::vector<Slots> slots_;  // by facts
    std::string names_;
    std::vector<std::size_t> name_ends_;
    // Nanoseconds, of nodes without them microseconds; then how far microseconds are from nanoseconds.
    std::vector<std::uint32_t> duration_;
    std::vector<std::int8_t> micros_apart_;
    std::unordered_map<std::uint32_t, Duration> long_;  // what does not fit
    std::vector<std::uint32_t> child_offset_;
    std::vector<std::uint32_t> children_;
    Waits parents_;
    std::uint16_t lanes_ = 0;
};

// Slots of ASTRA-sim's resource model; slot 0 is unlimited in both models.
inline constexpr std::uint16_t kNoSlot = 0, kCpuSlot = 1, kGpuSlot = 2, kCommSlot = 3, kAstraSlots = 4;

// A node as the file has it: the ids in `parents` are its data dependencies and then its control
// dependencies.
struct RawNode {
    Node node;
    std::vector<std::uint64_t> parents;

    void clear();
};

// Read the nodes of an .et file in file order.
std::vector<RawNode> read_nodes(std::string_view bytes, const std::string& name);

// Decode an .et file; `name` stands in error messages.
Program decode_program(std::string_view bytes, const std::string& name);

}  // namespace chakrascope::engine
