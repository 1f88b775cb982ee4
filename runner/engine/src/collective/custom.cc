// Runs custom algorithms, which are Chakra files of sends, receives and computation, one file per
// position.
//
// All ready nodes are issued at the same time, in the order in which libstdc++ iterates over a hash
// set of node ids. ASTRA-sim has the same order. On a network with queues, the order determines the
// message that is served first.
#include "custom.h"

#include <fstream>
#include <sstream>

#include "../errors.h"
#include "../simulation/cluster.h"
#include "../workload/rank.h"
#include "algorithm.h"

namespace chakrascope::engine {
namespace {

constexpr std::int64_t kProgramTags = std::int64_t{1} << 40;
constexpr std::int64_t kTagsOfProgram = std::int64_t{1} << 24;
// The tag of a stream consists of the tag of its group and 32 further bits. 63 bits are enough for
// the programs of kGroupsOfRange groups.
constexpr std::int64_t kGroupsOfRange = 127;
constexpr std::int64_t kStreamsOfRange = kGroupsOfRange << 32;

class Custom final : public Algorithm {
  public:
    Custom(Rank& rank, Stream& stream, std::shared_ptr<const CustomProgram> program)
        : Algorithm(rank, stream),
          program_(std::move(program)),
          ready_(program_->ready),
          waiting_(program_->waiting) {}

    void start() override {
        issue_ready();
        if (!program_->nodes.empty()) finish_if_done();
    }

  private:
    // Issue all ready nodes. A receive of data that has already arrived completes within this call, and
    // makes further nodes ready. Only the outermost call of issue_ready may finish the phase.
    void issue_ready() {
        ++depth_;
        const std::unordered_set<std::uint64_t> now = ready_;
        for (const std::uint64_t id : now) {
            if (ready_.erase(id) == 0) continue;  // already issued by a nested call
            ++running_;
            issue(id, program_->nodes.at(id));
        }
        --depth_;
    }

    void finish_if_done() {
        if (depth_ == 0 && running_ == 0 && ready_.empty()) finish();
    }

    // Return the key of a message. Concurrent programs of Chakrascope never receive each other's
    // messages; other programs may do so, as in ASTRA-sim.
    MessageKey key(const Node& node, std::int32_t source, std::int32_t destination) const {
        MessageKey key{0, source, destination, node.comm_size};
        if (program_->ours) {
            key.tag = kProgramTags + stream_.tag % kStreamsOfRange * kTagsOfProgram + node.comm_tag;
            key.range = static_cast<std::uint32_t>(stream_.tag / kStreamsOfRange);
        } else {
            const auto tag = static_cast<std::uint64_t>(node.comm_tag);
            key.tag = static_cast<std::int64_t>(tag % kPointToPointTags);
        }
        return key;
    }

    Time duration(const Node& node) const {
        if (program_->ours) return node.duration_ns;
        return node.duration_micros == 0 ? 1 : node.duration_micros * 1000;
    }

    void issue(std::uint64_t id, const Node& node) {
        Mailbox& mailbox = rank_.cluster().mailbox;
        const Callback done = bind<&Custom::completed>(this, id);
        if (node.type == NodeType::Send) {
            const std::int32_t to = peer(node.comm_dst);
            mailbox.send(key(node, rank_.id(), to), {rank_.id(), to}, done);
        } else if (node.type == NodeType::Recv) {
            mailbox.receive(key(node, peer(node.comm_src), rank_.id()), done);
        } else {
            rank_.cluster().events.after(rank_.id(), duration(node), done);
        }
    }

    // Return the rank of a peer. The file of a custom algorithm contains positions in the group's list
    // of members.
    std::int32_t peer(std::int64_t position) const {
        return ring_.members == nullptr ? static_cast<std::int32_t>(position) : ring_.members[position];
    }

    void completed(std::uint64_t id) {
        --running_;
        const auto children = program_->children.find(id);
        if (children != program_->children.end()) {
            for (const std::uint64_t child : children->second) {
                if (--waiting_.at(child) == 0) ready_.insert(child);
            }
        }
        issue_ready();
        finish_if_done();
    }

    void received(std::uint64_t) override {}
    void credited(std::uint64_t) override {}

    std::shared_ptr<const CustomProgram> program_;
    std::unordered_set<std::uint64_t> ready_;
    std::unordered_map<std::uint64_t, std::uint32_t> waiting_;
    std::uint64_t running_ = 0;
    std::uint32_t depth_ = 0;  // number of nested calls of issue_ready
};

CustomProgram parse_custom(std::string_view bytes, const std::string& path, bool ours) {
    CustomProgram program;
    program.name = path;
    program.ours = ours;
    std::unordered_map<std::uint64_t, std::unordered_set<std::uint64_t>> parents;
    for (RawNode& raw : read_nodes(bytes, path)) {
        const std::uint64_t id = raw.node.id;
        if (raw.node.type != NodeType::Send && raw.node.type != NodeType::Recv &&
            raw.node.type != NodeType::Comp) {
            throw WorkloadFormatError(
                path + ": node " + std::to_string(id) +
                " is neither a send, nor a receive, nor computation. A custom collective can "
                "hold nothing else.");
        }
        program.nodes[id] = raw.node;
        parents[id];
        program.children[id];
        // Parents are inserted one by one, because the iteration order of a hash set depends on its
        // insertions.
        std::unordered_set<std::uint64_t> own;
        for (const std::uint64_t parent : raw.parents) own.insert(parent);
        for (const std::uint64_t parent : own) {
            parents[parent];
            program.children[parent];
            parents[id].insert(parent);
            program.children[parent].insert(id);
        }
    }
    for (const auto& [id, waits] : parents) {
        if (!program.nodes.contains(id)) {
            throw DependencyError(path + ": a node depends on node " + std::to_string(id) +
                                  ", which is not in the file. Write the algorithm again.");
        }
        program.waiting[id] = static_cast<std::uint32_t>(waits.size());
        if (waits.empty()) program.ready.insert(id);
    }
    if (program.ready.empty()) {
        throw DependencyError(path +
                              ": no node is free of dependencies, so that the algorithm cannot start.");
    }
    return program;
}

CustomProgram read_custom(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream bytes;
    if (!file || !(bytes << file.rdbuf())) {
        throw ConfigError(
            "The custom collective algorithm " + path +
            " cannot be read; a custom algorithm needs one PREFIX.N.et file for each position N.");
    }
    return parse_custom(bytes.view(), path, false);
}

}  // namespace

std::shared_ptr<const CustomProgram> CustomAlgorithms::get(const std::string& prefix, std::int32_t position) {
    for (const CollectiveProgram& program : config_.collective_programs) {
        if (program.name != prefix) continue;
        const std::string name = prefix + ", position " + std::to_string(position);
        auto& known = programs_[name];
        if (known == nullptr) {
            known = std::make_shared<const CustomProgram>(
                parse_custom(program.graphs.at(static_cast<std::size_t>(position)), name, true));
        }
        return known;
    }
    const std::string& base = config_.custom_base;
    const std::string folder = prefix.starts_with('/') || base.empty() ? "" : base + "/";
    const std::string path = folder + prefix + "." + std::to_string(position) + ".et";
    auto& known = programs_[path];
    if (known == nullptr) known = std::make_shared<const CustomProgram>(read_custom(path));
    return known;
}

void CustomAlgorithms::require_works(const Phase& phase, std::int64_t ranks) {
    const std::shared_ptr<const CustomProgram> program = get(*phase.custom, phase.ring.position);
    const std::int64_t members = phase.ring.members == nullptr ? ranks : phase.ring.count;
    for (const auto& [id, node] : program->nodes) {
        if (node.type == NodeType::Comp) continue;
        const std::int64_t peer = node.type == NodeType::Send ? node.comm_dst : node.comm_src;
        if (peer >= 0 && peer < members) continue;
        throw WorkloadFormatError(program->name + ": node " + std::to_string(id) + " names rank " +
                                  std::to_string(peer) + ", but the collective has " +
                                  std::to_string(members) + " ranks. Write the algorithm for this many.");
    }
}

std::unique_ptr<Algorithm> make_custom(Rank& rank, Stream& stream) {
    const Phase& phase = stream.phase();
    return std::make_unique<Custom>(rank, stream,
                                    rank.cluster().customs.get(*phase.custom, phase.ring.position));
}

}  // namespace chakrascope::engine
