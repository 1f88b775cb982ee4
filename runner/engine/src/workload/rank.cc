#include "rank.h"

#include <algorithm>

#include "../errors.h"
#include "../simulation/cluster.h"
#include "../system/gpus.h"

namespace chakrascope::engine {
namespace {

bool is_compute(const Facts& facts) {
    return facts.type == NodeType::Comp && !facts.is_cpu && facts.work != Work::Communicates;
}

// Return whether a node is a kernel, which needs compute units. Host work, copies and waits need no
// compute units.
bool is_kernel(const Facts& facts) { return is_compute(facts) && facts.work == Work::Computes; }

// Return the overhead of the communication library for an operation of `size` bytes. The overhead is
// interpolated linearly between the sizes in `points`. The overhead is constant below the smallest size,
// and extrapolated from the last two sizes above the largest size. If `points` is empty, the overhead is
// 0.
Time library_time(const Config::Costs& points, std::uint64_t size) {
    if (points.empty()) return 0;
    if (size <= points.front().first || points.size() == 1) return points.front().second;
    auto right = std::find_if(points.begin(), points.end(), [&](const auto& at) { return at.first >= size; });
    if (right == points.end()) --right;
    const auto left = right - 1;
    const double slope = (static_cast<double>(right->second) - static_cast<double>(left->second)) /
                         static_cast<double>(right->first - left->first);
    const double time = static_cast<double>(left->second) + slope * static_cast<double>(size - left->first);
    return truncate(std::max(0.0, time));
}

// Return the overhead of the communication library for a collective, in addition to the time of its
// messages.
Time library_time(const Config& config, CommType kind, std::uint64_t size) {
    const auto known = config.collective_costs.find(static_cast<int>(kind));
    return known == config.collective_costs.end() ? 0 : library_time(known->second, size);
}

}  // namespace

Roofline Roofline::of(const Facts& facts, const Config& config) {
    const auto operations = static_cast<double>(facts.num_ops),
               bytes = static_cast<double>(facts.tensor_size);
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
      traced_(cluster.config.semantics == Semantics::Trace),
      endpoint_(cluster.config, cluster.events, id),
      scheduler_(*this),
      records_(program),
      slots_(traced_ ? program.lanes() : kAstraSlots) {}

void Rank::fire(std::uint64_t) {
    for (std::uint32_t node = 0; node < records_.size(); ++node) {
        if (!records_.waits(node)) make_ready(node);
    }
    scan(-1);
    test_finished();
}

void Rank::complete(std::uint64_t node) {
    if (cluster_.meetings.active()) watch_order();
    end(static_cast<std::uint32_t>(node));
}

void Rank::end(std::uint32_t node) {
    if (finished()) return;
    watch_ties();
    vacate(node);
    --taken_;
    const Origin origin = cluster_.events.origin();
    const bool own = origin.rank == id_ && origin.node == static_cast<std::int32_t>(node);
    records_.finish(node, cluster_.events.now(), own ? Origin{} : origin);
    finish_children(node);
    scan(static_cast<std::int32_t>(node));
    test_finished();
}

// Check whether the order of the current event is certain. The order may be uncertain if phases of
// collectives are computed as a whole.
void Rank::watch_order() {
    const EventQueue& events = cluster_.events;
    const bool own = events.registered() != EventQueue::kUnregistered;
    if (own ? !moments_.node(events.now(), events.registered())
            : !moments_.message(events.now(), cluster_.mailbox.begun()))
        cluster_.tied = true;
}

// Detect two nodes that end at the same time. The order of their ends can determine which nodes start
// next.
void Rank::watch_ties() {
    if (cluster_.fold == nullptr || cluster_.fold->is_given() || cluster_.config.replay_only) return;
    if (last_end_ == cluster_.events.now()) cluster_.tied = true;
    last_end_ = cluster_.events.now();
}

void Rank::finish_children(std::uint32_t node) {
    for (const std::uint32_t child : program_.children(node)) {
        if (!records_.less(child)) make_ready(child);
    }
}

void Rank::make_ready(std::uint32_t node) {
    slots_[slot(node)].ready.push(node);
    ++ready_count_;
}

// Issue ready nodes. In ASTRA-sim, nodes that an INVALID or empty node frees wait for the next
// completion of the rank. If no node is running, a rank in ASTRA-sim would hang. To avoid such a hang,
// the scan continues here.
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

// Scan the ready nodes in ascending order of id, and issue each node that has a free slot.
void Rank::scan_once(std::int32_t cause) {
    for (;;) {
        std::size_t best = slots_.size();
        for (std::size_t number = 0; number < slots_.size(); ++number) {
            const Slot& slot = slots_[number];
            if (slot.ready.empty() || (number != kNoSlot && slot.busy)) continue;
            if (best == slots_.size() || slot.ready.top() < slots_[best].ready.top()) best = number;
        }
        if (best == slots_.size()) break;
        const std::uint32_t node = slots_[best].ready.top();
        slots_[best].ready.pop();
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
    records_.begin(node, events.now(), cause);
    const Origin outer = events.origin();
    events.set_origin({id_, static_cast<std::int32_t>(node)});
    start_operation(node);
    events.set_origin(outer);
}

void Rank::occupy(std::uint32_t node) {
    const std::uint16_t number = this->slot(node);
    if (number == kNoSlot) return;
    Slot& slot = slots_[number];
    if (slot.passable > 0) ++cluster_.overtaken;
    if (is_passable(node))
        ++slot.passable;
    else
        slot.busy = true;
}

void Rank::vacate(std::uint32_t node) {
    const std::uint16_t number = this->slot(node);
    if (number == kNoSlot) return;
    Slot& slot = slots_[number];
    if (is_passable(node))
        --slot.passable;
    else
        slot.busy = false;
}

// Return whether later nodes of a lane may overtake a node. A communication may wait for a peer that
// waits for a later node of the same lane.
bool Rank::is_passable(std::uint32_t node) const {
    if (cluster_.config.overtaking <= 1) return false;
    const NodeType type = program_.facts(node).type;
    return type == NodeType::Coll || type == NodeType::Send;
}

void Rank::start_operation(std::uint32_t index) {
    const NodeType type = program_.facts(index).type;
    if (type == NodeType::Metadata) {
        scan_again_ = true;
        return skip(index);
    }
    if (cluster_.config.replay_only) return replay(index);
    switch (type) {
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

// Skip a node that takes no time. Unlike a completed node, a skipped node does not trigger another scan.
void Rank::skip(std::uint32_t node) {
    vacate(node);
    --taken_;
    records_.finish(node, cluster_.events.now(), {});
    last_skipped_ = static_cast<std::int32_t>(node);
    for (const std::uint32_t child : program_.children(node)) {
        if (!records_.less(child)) fresh_.push_back(child);
    }
}

void Rank::compute(std::uint32_t index) {
    const Facts& facts = program_.facts(index);
    const Config& config = cluster_.config;
    // Communication of unknown size and host work take their recorded times on any machine.
    if (!config.roofline_enabled || facts.is_cpu || facts.work == Work::Communicates ||
        facts.work == Work::Neither)
        return replay(index);
    require(index, kHasOps, "num_ops");
    require(index, kHasTensor, "tensor_size");
    if (facts.tensor_size == 0) return skip(index);
    const Time time = Roofline::of(facts, config).duration;
    Gpus* gpus = cluster_.mailbox.network().gpus();
    if (gpus != nullptr && is_kernel(facts))
        return gpus->compute(id_, time, facts.tensor_size, bind<&Rank::computed>(this, index));
    compute_sum_ += time;
    cluster_.events.after(id_, time, bind<&Rank::complete>(this, index));
}

void Rank::replay(std::uint32_t index) {
    const Facts& facts = program_.facts(index);
    const Time time = duration(index);
    Gpus* gpus = cluster_.mailbox.network().gpus();
    if (gpus != nullptr && is_kernel(facts))
        return gpus->compute(id_, time, 0, bind<&Rank::computed>(this, index));
    if (traced_ ? is_compute(facts) : !facts.is_cpu) compute_sum_ += time;
    if (!cluster_.sync_points.arrive(*this, index, time))
        cluster_.events.after(id_, time, bind<&Rank::complete>(this, index));
}

// Complete a computation that ran on the GPU model, which determines its duration.
void Rank::computed(std::uint64_t node) {
    compute_sum_ +=
        cluster_.events.now() - static_cast<Time>(records_.start(static_cast<std::uint32_t>(node)));
    complete(node);
}

Time Rank::duration(std::uint32_t node) const {
    if (traced_ && (program_.facts(node).has & kHasDurationNs) != 0) return program_.duration_ns(node);
    const std::uint64_t micros = program_.duration_micros(node);
    return micros == 0 ? 1 : micros * 1000;
}

void Rank::access_memory(std::uint32_t index) {
    require(index, kHasTensor, "tensor_size");
    cluster_.memory.access(id_, program_.facts(index).tensor_size, bind<&Rank::complete>(this, index));
}

void Rank::communicate(std::uint32_t index) {
    const Facts& facts = program_.facts(index);
    if (facts.is_cpu) refuse(index, "communicates and is marked as an operation of the CPU (is_cpu_op)");
    if (facts.type == NodeType::Coll) return collective(index);
    require(index, kHasCommSize, "comm_size");
    require(index, kHasTag, "comm_tag");
    facts.type == NodeType::Send ? send(index) : receive(index);
}

void Rank::send(std::uint32_t index) {
    const Facts& facts = program_.facts(index);
    require(index, kHasDst, "comm_dst");
    if ((facts.has & kHasSrc) != 0 && facts.comm_src != id_)
        refuse(index, "sends in the name of another rank (comm_src)");
    const auto tag =
        static_cast<std::int64_t>(static_cast<std::uint64_t>(facts.comm_tag) % kPointToPointTags);
    const std::int32_t peer = checked_peer(index, facts.comm_dst);
    MessageKey key{tag, id_, peer, facts.comm_size};
    if (cluster_.fold != nullptr) cluster_.fold->rename(key);
    const Callback done = bind<&Rank::complete>(this, index);
    if (cluster_.config.messages_on_request) return cluster_.mailbox.send_on_request(key, {id_, peer}, done);
    cluster_.mailbox.send(key, {id_, peer}, done);
}

void Rank::receive(std::uint32_t index) {
    const Facts& facts = program_.facts(index);
    require(index, kHasSrc, "comm_src");
    if ((facts.has & kHasDst) != 0 && facts.comm_dst != id_)
        refuse(index, "receives for another rank (comm_dst)");
    const auto tag =
        static_cast<std::int64_t>(static_cast<std::uint64_t>(facts.comm_tag) % kPointToPointTags);
    MessageKey key{tag, checked_peer(index, facts.comm_src), id_, facts.comm_size};
    if (cluster_.fold != nullptr) cluster_.fold->rename(key);
    const Callback done = bind<&Rank::message_came>(this, index);
    if (cluster_.config.messages_on_request) return cluster_.mailbox.receive_on_request(key, done);
    cluster_.mailbox.receive(key, done);
}

void Rank::message_came(std::uint64_t index) {
    const std::uint64_t size = program_.facts(static_cast<std::uint32_t>(index)).comm_size;
    const Time own = library_time(cluster_.config.message_library_costs, size);
    if (own == 0) return complete(index);
    cluster_.events.after(id_, own, bind<&Rank::complete>(this, index));
}

void Rank::collective(std::uint32_t index) {
    const Node node = program_.node(index);
    require(index, kHasCommType, "comm_type");
    auto request = request_of(node, cluster_.config);
    if (!request) {
        ++cluster_.replayed;
        cluster_.events.after(id_, duration(index), bind<&Rank::complete>(this, index));
        return;
    }
    request->node = index;
    request->blocks = cluster_.uneven.find(id_, index);
    if (node.comm_type != CommType::Barrier) require(index, kHasCommSize, "comm_size");
    if (!cluster_.groups.contains(node.group)) {
        refuse(index, "uses the communicator group " + std::to_string(node.group) + ", which does not exist");
    }
    if (cluster_.groups.sorted_position(node.group, id_) < 0) {
        refuse(index, "uses the communicator group " + std::to_string(node.group) +
                          ", of which the rank is not a member");
    }
    if (is_rooted(request->kind) && (node.has & kHasSrc) != 0) {
        request->root = checked_peer(index, node.comm_src);
        if (cluster_.groups.sorted_position(node.group, request->root) < 0) {
            refuse(index, "has a root (comm_src) that is not a member of its group");
        }
    }
    if (Gpus* gpus = cluster_.mailbox.network().gpus()) {
        if (request->blocks != nullptr) {
            throw ConfigError(words_of(index) +
                              " has other amounts on other ranks, for which there are no programs: the GPU "
                              "model cannot run "
                              "it. Next: take another backend, such as packet, where it is the messages that "
                              "it really is.");
        }
        if (!gpus->collective(node, id_, bind<&Rank::collective_done>(this, index)))
            cluster_.events.after(id_, 0, bind<&Rank::complete>(this, index));
        return;
    }
    if (!scheduler_.launch(*request)) cluster_.events.after(id_, 0, bind<&Rank::complete>(this, index));
}

void Rank::collective_done(std::uint64_t index) { collective_ended(static_cast<std::uint32_t>(index)); }

// Add the library's overhead after the messages of a collective. An overhead before the messages could
// change the order of a group's collectives on some ranks.
void Rank::collective_ended(std::uint32_t index) {
    const Facts& facts = program_.facts(index);
    const Time own = library_time(cluster_.config, facts.comm_type, facts.comm_size);
    if (own == 0) return end(index);
    cluster_.events.after(id_, own, bind<&Rank::complete>(this, index));
}

void Rank::require(std::uint32_t node, std::uint16_t attribute, const char* name) const {
    if ((program_.facts(node).has & attribute) == 0)
        refuse(node, std::string("has no attribute '") + name + "', which it needs");
}

void Rank::refuse(std::uint32_t index, const std::string& problem) const {
    throw WorkloadFormatError(words_of(index) + " " + problem +
                              ". Correct the workload or convert it again.");
}

std::string Rank::words_of(std::uint32_t index) const {
    const Node node = program_.node(index);
    return "Node " + std::to_string(node.id) + " ('" + node.name + "') of rank " + std::to_string(id_);
}

std::int32_t Rank::checked_peer(std::uint32_t node, std::int64_t peer) const {
    if (peer < 0 || peer >= cluster_.config.num_ranks()) {
        refuse(node, "names rank " + std::to_string(peer) + ", but there are " +
                         std::to_string(cluster_.config.num_ranks()) + " ranks");
    }
    return static_cast<std::int32_t>(peer);
}

}  // namespace chakrascope::engine
