// A decoded Chakra program: its nodes in ascending order of id, and their dependency graph.
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

// The activity of a Comp node, which the node's attribute "kind" determines. A node without this
// attribute computes, as in ASTRA-sim.
enum class Work : std::uint8_t { Computes, Communicates, Copies, Neither };

// Bits for the attributes that a node has. An attribute that a node lacks has its default value.
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

// Properties that are shared by many nodes of a program.
struct Facts {
    NodeType type = NodeType::Invalid;
    bool is_cpu = false;
    Work work = Work::Computes;
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

// The representation is compact, because jobs have up to a hundred million nodes: a node with 1.5
// dependencies takes about 18 bytes.
class Program {
  public:
    std::uint32_t size() const { return static_cast<std::uint32_t>(nodes_.size()); }
    std::uint64_t id(std::uint32_t node) const { return ids_.empty() ? first_id_ + node : ids_[node]; }
    const Facts& facts(std::uint32_t node) const { return facts_[kind(node).facts]; }
    std::string_view name(std::uint32_t node) const;
    std::uint64_t duration_micros(std::uint32_t node) const;
    std::uint64_t duration_ns(std::uint32_t node) const;
    // Return all fields of a node.
    Node node(std::uint32_t node) const;

    std::span<const std::uint32_t> children(std::uint32_t node) const {
        return {children_.data() + child_offset_[node], child_offset_[node + 1] - child_offset_[node]};
    }
    // Return the number of dependencies of a node.
    std::uint32_t waits(std::uint32_t node) const {
        return nodes_[node].waits == kManyWaits ? many_waits_.at(node) : nodes_[node].waits;
    }
    // Return the nodes in topological order, and on a tie in order of id. Nodes that depend on a cycle
    // are omitted.
    std::vector<std::uint32_t> in_order() const;
    bool depends(std::uint32_t child, std::uint32_t parent) const;

    // Return the slot of a node in ASTRA-sim's resource model (`slot_astra`), or in the model in which
    // every stream is a resource (`slot_trace`).
    std::uint16_t slot_astra(std::uint32_t node) const { return kind(node).slot_astra; }
    std::uint16_t slot_trace(std::uint32_t node) const { return kind(node).slot_trace; }
    // Return the number of slots in the model in which every stream is a resource, including the
    // unlimited slot.
    std::uint16_t lanes() const { return lanes_; }

  private:
    friend class ProgramBuilder;

    // Properties shared by nodes with the same name and the same `Facts`.
    struct Kind {
        std::uint32_t name;
        std::uint32_t facts;
        std::uint16_t slot_astra;
        std::uint16_t slot_trace;
    };
    // The properties of a single node, in adjacent memory: the duration in ns (in microseconds if the
    // file has no ns), the kind if its number fits, the difference between the durations in ns and in
    // microseconds, and the number of dependencies.
    struct Own {
        std::uint32_t duration;
        std::uint16_t kind;
        std::int8_t micros_apart;
        std::uint8_t waits;
    };
    static constexpr std::int8_t kLongDuration = -128;
    static constexpr std::uint8_t kManyWaits = 0xFF;
    static constexpr std::size_t kMostKinds = 1 << 16;

    struct Duration {
        std::uint64_t micros;
        std::uint64_t ns;
    };

    const Kind& kind(std::uint32_t node) const {
        return kinds_[many_kinds_.empty() ? nodes_[node].kind : many_kinds_[node]];
    }
    bool has_ns(std::uint32_t node) const;

    std::uint64_t first_id_ = 0;
    std::vector<std::uint64_t> ids_;  // node ids; empty if ids are consecutive
    std::vector<Own> nodes_;
    std::vector<Kind> kinds_;
    std::vector<std::uint32_t> many_kinds_;  // kind of each node, used if `Own::kind` is too small
    std::vector<Facts> facts_;
    std::string names_;
    std::vector<std::size_t> name_ends_;
    // The durations that do not fit into `Own`.
    std::unordered_map<std::uint32_t, Duration> long_;
    std::unordered_map<std::uint32_t, std::uint32_t> many_waits_;
    std::vector<std::uint32_t> child_offset_;
    std::vector<std::uint32_t> children_;
    std::uint16_t lanes_ = 0;
};

// Slots of ASTRA-sim's resource model. Slot 0 is unlimited in both resource models.
inline constexpr std::uint16_t kNoSlot = 0, kCpuSlot = 1, kGpuSlot = 2, kCommSlot = 3, kAstraSlots = 4;

// A node as stored in the file. `parents` contains the ids of data dependencies, followed by the ids of
// control dependencies.
struct RawNode {
    Node node;
    std::vector<std::uint64_t> parents;

    void clear();
};

// Read the nodes of an .et file in file order.
std::vector<RawNode> read_nodes(std::string_view bytes, const std::string& name);

// Decode an .et file. `name` is used in error messages.
Program decode_program(std::string_view bytes, const std::string& name);

}  // namespace chakrascope::engine
