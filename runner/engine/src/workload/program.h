// One decoded Chakra program: nodes in ascending id and their dependency graph.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
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

struct Node {
    std::uint64_t id = 0;
    std::string name;
    NodeType type = NodeType::Invalid;
    bool is_cpu = false;
    CommType comm_type = CommType::None;
    std::uint8_t involved_dims = 0x0F;
    std::uint16_t has = 0;
    std::uint64_t duration_micros = 0;
    std::uint64_t duration_ns = 0;
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
};

struct Program {
    std::vector<Node> nodes;  // ascending id
    std::vector<std::uint32_t>
        child_offset;  // children of node i: children[child_offset[i] .. child_offset[i + 1]]
    std::vector<std::uint32_t> children;
    std::vector<std::uint32_t> parent_count;
    std::vector<std::uint16_t> slot_astra;  // slot of each node in ASTRA-sim's resource model
    std::vector<std::uint16_t> slot_trace;  // slot of each node when every stream is a resource
    std::uint16_t lanes = 0;  // number of slots of the second model, including the unlimited one

    // The nodes, each after those that it depends on, else by id; those on a cycle are left out.
    std::vector<std::uint32_t> in_order() const;
    bool depends(std::uint32_t child, std::uint32_t parent) const;
};

// Slots of ASTRA-sim's resource model; slot 0 is unlimited in both models.
inline constexpr std::uint16_t kNoSlot = 0, kCpuSlot = 1, kGpuSlot = 2, kCommSlot = 3, kAstraSlots = 4;

// A node as the file has it: the ids in `parents` are its data dependencies and then its control
// dependencies.
struct RawNode {
    Node node;
    std::vector<std::uint64_t> parents;
};

// Read the nodes of an .et file in file order.
std::vector<RawNode> read_nodes(std::string_view bytes, const std::string& name);

// Decode an .et file; `name` stands in error messages.
Program decode_program(std::string_view bytes, const std::string& name);

}  // namespace chakrascope::engine
