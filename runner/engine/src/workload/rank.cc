#include "rank.h"

#include <algorithm>

#include "../collective/library.h"
#include "../errors.h"
#include "../simulation/cluster.h"
#include "../system/gpus.h"

namespace chakrascope::engine {
namespace {

constexpr std::uint64_t kPointToPointTags = 500'000'000;

bool is_compute(const Node& node) { return node.type == NodeType::Comp && !node.is_cpu; }

}  // namespace

Roofline Roofline::of(const Node& node, const Config& config) {
    const auto operations = static_cast<double>(node.num_ops), bytes = static_cast<double>(node.tensor_size);
    const double memory = config.local_mem_bw * 1000000000.0, peak = config.peak_perf * 1000000000000.0;
    Roofline roofline;
    roofline.intensity = operations / bytes;
    roofline.performance = std::min(memory * roofline.intensity, peak);
    roofline.duration = truncate(operations / roofline.performance * 1e9);
    return roofline;
}

Rank::Rank(Cluster& cluster, std::int32_t id, const Program& program)
    : cluster_(cluster),
      id_(id),
      program_(program),
      slots_(cluster.config.semantics == "trace" ? program.slot_trace : program.slot_astra),
      endpoint_(cluster.config, cluster.events, id),
      scheduler_(*this),
      records_(program.nodes.size()),
      waiting_(program.parent_count),
      ready_(cluster.config.semantics == "trace" ? program.lanes : kAstraSlots),
      busy_(ready_.size(), 0),
      passable_(ready_.size(), 0) {}

void Rank::fire() {
    for (std::uint32_t node = 0; node < waiting_.size(); ++node) {
        if (waiting_[node] == 0) make_ready(node);
    }
    scan(-1);
    test_finished();
}

void Rank::complete(std::uint64_t completed) {
    if (finished()) return;
    const auto node = static_cast<std::uint32_t>(completed);
    watch_ties();
    vacate(node);
    --taken_;
    NodeRecord& record = records_[node];
    record.end = static_cast<std::int64_t>(cluster_.events.now());
    record.origin = cluster_.events.origin();
    finish_children(node);
    scan(static_cast<std::int32_t>(node));
    test_finished();
}

// Which of two nodes that end at the same time is first decides what starts.
void Rank::watch_ties() {
    if (cluster_.fold == nullptr || cluster_.fold->is_given()) return;
    if (last_end_ == cluster_.events.now()) cluster_.tied = true;
    last_end_ = cluster_.events.now();
}

void Rank::finish_children(std::uint32_t node) {
    for (std::uint32_t i = program_.child_offset[node]; i < program_.child_offset[node + 1]; ++i) {
        const std::uint32_t child = program_.children[i];
        if (--waiting_[child] == 0) make_ready(child);
    }
}

void Rank::make_ready(std::uint32_t node) {
    ready_[slots_[node]].push(node);
    ++ready_count_;
}

// Issue what is ready. In ASTRA-sim, what an INVALID or empty node frees waits for the next completion of the
// rank; where there is none left, the rank would hang, and here the scan goes on instead.
void Rank::scan(std::int32_t cause) {
    last_skipped_ = -1;
    scan_once(cause);
    while (ready_count_ > 0 && last_skipped_ >= 0 && (scan_again_ || taken_ == 0)) {
        const std::int32_t skipped = last_skipped_;
        last_skipped_ = -1;
        scan_again_ = false;
        scan_once(skipped);
    }
}

// Go through the nodes that are ready now in ascending id and issue each whose slot is free.
void Rank::scan_once(std::int32_t cause) {
    for (;;) {
        std::size_t best = ready_.size();
        for (std::size_t slot = 0; slot < ready_.size(); ++slot) {
            if (ready_[slot].empty() || (slot != kNoSlot && busy_[slot] != 0)) continue;
            if (best == ready_.size() || ready_[slot].top() < ready_[best].top()) best = slot;
        }
        if (best == ready_.size()) break;
        const std::uint32_t node = ready_[best].top();
        ready_[best].pop();
        --ready_count_;
        issue(node, cause);
    }
    for (const std::uint32_t node : fresh_) make_ready(node);
    fresh_.clear();
}

void Rank::test_finished() {
    if (finished() || ready_count_ > 0 || taken_ > 0) return;
    finish_time_ = static_cast<std::int64_t>(cluster_.events.now());
    ++cluster_.ranks_finished;
    cluster_.finish_order.push_back(id_);
}

void Rank::issue(std::uint32_t node, std::int32_t cause) {
    EventQueue& events = cluster_.events;
    occupy(node);
    ++taken_;
    ++executed_;
    records_[node].start = static_cast<std::int64_t>(events.now());
    records_[node].cause = cause;
    const Origin outer = events.origin();
    events.set_origin({id_, static_cast<std::int32_t>(node)});
    start_operation(node);
    events.set_origin(outer);
}

void Rank::occupy(std::uint32_t node) {
    const std::uint16_t slot = slots_[node];
    if (slot == kNoSlot) return;
    if (passable_[slot] > 0) ++cluster_.overtaken;
    is_passable(program_.nodes[node]) ? ++passable_[slot] : busy_[slot] = 1;
}

void Rank::vacate(std::uint32_t node) {
    const std::uint16_t slot = slots_[node];
    if (slot == kNoSlot) return;
    is_passable(program_.nodes[node]) ? --passable_[slot] : busy_[slot] = 0;
}

// Communication may wait for a peer that waits for what is behind it in the lane.
bool Rank::is_passable(const Node& node) const {
    return cluster_.config.overtaking > 1 && (node.type == NodeType::Coll || node.type == NodeType::Send);
}

void Rank::start_operation(std::uint32_t index) {
    const Node& node = program_.nodes[index];
    if (node.type == NodeType::Metadata) {
        scan_again_ = true;
        return skip(index);
    }
    if (cluster_.config.replay_only) return replay(index);
    switch (node.type) {
        case NodeType::MemLoad:
        case NodeType::MemStore:
            return access_memory(index);
        case NodeType::Comp:
            return compute(index);
        case NodeType::Invalid:
            return skip(index);
        default:
            return communicate(index);
    }
}

// The node takes no time and, other than a completion, does not look for more to do.
void Rank::skip(std::uint32_t node) {
    vacate(node);
    --taken_;
    records_[node].end = records_[node].start;
    records_[node].origin = cluster_.events.origin();
    last_skipped_ = static_cast<std::int32_t>(node);
    for (std::uint32_t i = program_.child_offset[node]; i < program_.child_offset[node + 1]; ++i) {
        const std::uint32_t child = program_.children[i];
        if (--waiting_[child] == 0) fresh_.push_back(child);
    }
}

void Rank::compute(std::uint32_t index) {
    const Node& node = program_.nodes[index];
    const Config& config = cluster_.config;
    if (!config.roofline_enabled || node.is_cpu) return replay(index);
    require(node, kHasOps, "num_ops");
    require(node, kHasTensor, "tensor_size");
    if (node.tensor_size == 0) return skip(index);
    const Time time = Roofline::of(node, config).duration;
    if (Gpus* gpus = cluster_.mailbox.network().gpus())
        return gpus->compute(id_, time, node.tensor_size, bind<&Rank::computed>(this, index));
    compute_sum_ += time;
    cluster_.events.after(id_, time, bind<&Rank::complete>(this, index));
}

void Rank::replay(std::uint32_t index) {
    const Node& node = program_.nodes[index];
    const Time time = duration(node);
    Gpus* gpus = cluster_.mailbox.network().gpus();
    if (gpus != nullptr && is_compute(node))
        return gpus->compute(id_, time, 0, bind<&Rank::computed>(this, index));
    if (cluster_.config.semantics == "trace" ? is_compute(node) : !node.is_cpu) compute_sum_ += time;
    cluster_.events.after(id_, time, bind<&Rank::complete>(this, index));
}

// Computation on a GPU takes as long as it takes there.
void Rank::computed(std::uint64_t node) {
    compute_sum_ += cluster_.events.now() - static_cast<Time>(records_[node].start);
    complete(node);
}

Time Rank::duration(const Node& node) const {
    if (cluster_.config.semantics == "trace" && (node.has & kHasDurationNs) != 0) return node.duration_ns;
    return node.duration_micros == 0 ? 1 : node.duration_micros * 1000;
}

void Rank::access_memory(std::uint32_t index) {
    const Node& node = program_.nodes[index];
    require(node, kHasTensor, "tensor_size");
    cluster_.memory.access(id_, node.tensor_size, bind<&Rank::complete>(this, index));
}

void Rank::communicate(std::uint32_t index) {
    const Node& node = program_.nodes[index];
    if (node.is_cpu) refuse(node, "communicates and is marked as an operation of the CPU (is_cpu_op)");
    if (node.type == NodeType::Coll) return collective(index);
    require(node, kHasCommSize, "comm_size");
    require(node, kHasTag, "comm_tag");
    node.type == NodeType::Send ? send(index) : receive(index);
}

void Rank::send(std::uint32_t index) {
    const Node& node = program_.nodes[index];
    require(node, kHasDst, "comm_dst");
    if ((node.has & kHasSrc) != 0 && node.comm_src != id_)
        refuse(node, "sends in the name of another rank (comm_src)");
    const auto tag = static_cast<std::int64_t>(static_cast<std::uint64_t>(node.comm_tag) % kPointToPointTags);
    const std::int32_t peer = checked_peer(node, node.comm_dst);
    MessageKey key{tag, id_, peer, node.comm_size};
    if (cluster_.fold != nullptr) cluster_.fold->rename(key);
    cluster_.mailbox.send(key, {id_, peer}, bind<&Rank::complete>(this, index));
}

void Rank::receive(std::uint32_t index) {
    const Node& node = program_.nodes[index];
    require(node, kHasSrc, "comm_src");
    if ((node.has & kHasDst) != 0 && node.comm_dst != id_)
        refuse(node, "receives for another rank (comm_dst)");
    const auto tag = static_cast<std::int64_t>(static_cast<std::uint64_t>(node.comm_tag) % kPointToPointTags);
    MessageKey key{tag, checked_peer(node, node.comm_src), id_, node.comm_size};
    if (cluster_.fold != nullptr) cluster_.fold->rename(key);
    cluster_.mailbox.receive(key, bind<&Rank::complete>(this, index));
}

void Rank::collective(std::uint32_t index) {
    const Node& node = program_.nodes[index];
    require(node, kHasCommType, "comm_type");
    auto request = request_of(node, cluster_.config);
    if (!request) {
        cluster_.events.after(id_, duration(node), bind<&Rank::complete>(this, index));
        return;
    }
    request->node = index;
    request->blocks = cluster_.uneven.find(id_, index);
    if (node.comm_type != CommType::Barrier) require(node, kHasCommSize, "comm_size");
    if (!cluster_.groups.contains(node.group)) {
        refuse(node, "uses the communicator group " + std::to_string(node.group) + ", which does not exist");
    }
    if (cluster_.groups.sorted_position(node.group, id_) < 0) {
        refuse(node, "uses the communicator group " + std::to_string(node.group) +
                         ", of which the rank is no member");
    }
    if (is_rooted(request->kind) && (node.has & kHasSrc) != 0) {
        request->root = checked_peer(node, node.comm_src);
        if (cluster_.groups.sorted_position(node.group, request->root) < 0) {
            refuse(node, "has a root (comm_src) that is no member of its group");
        }
    }
    if (Gpus* gpus = cluster_.mailbox.network().gpus()) {
        if (request->blocks != nullptr)
            refuse(node, "has other amounts on other ranks, which the GPU model has no programs for");
        if (!gpus->collective(node, id_, bind<&Rank::collective_done>(this, index)))
            cluster_.events.after(id_, 0, bind<&Rank::complete>(this, index));
        return;
    }
    if (!scheduler_.launch(*request)) cluster_.events.after(id_, 0, bind<&Rank::complete>(this, index));
}

void Rank::collective_done(std::uint64_t index) { collective_ended(static_cast<std::uint32_t>(index)); }

// The library's own time comes last: before the messages it could bring the collectives of a group out of
// order on some of its ranks.
void Rank::collective_ended(std::uint32_t index) {
    const Node& node = program_.nodes[index];
    const Time own = library_time(cluster_.config, node.comm_type, node.comm_size);
    if (own == 0) return complete(index);
    cluster_.events.after(id_, own, bind<&Rank::complete>(this, index));
}

void Rank::require(const Node& node, std::uint16_t attribute, const char* name) const {
    if ((node.has & attribute) == 0)
        refuse(node, std::string("has no attribute '") + name + "', which it needs");
}

void Rank::refuse(const Node& node, const std::string& problem) const {
    throw WorkloadFormatError("Node " + std::to_string(node.id) + " ('" + node.name + "') of rank " +
                              std::to_string(id_) + " " + problem +
                              ". Correct the workload or convert it again.");
}

std::int32_t Rank::checked_peer(const Node& node, std::int64_t peer) const {
    if (peer < 0 || peer >= cluster_.config.num_ranks()) {
        refuse(node, "names rank " + std::to_string(peer) + ", but there are " +
                         std::to_string(cluster_.config.num_ranks()) + " ranks");
    }
    return static_cast<std::int32_t>(peer);
}

}  // namespace chakrascope::engine
