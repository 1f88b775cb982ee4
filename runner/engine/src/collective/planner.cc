#include "planner.h"

#include <algorithm>

#include "uneven.h"

namespace chakrascope::engine {
namespace {

using Kind = Collective;

bool is_tree(const Implementation& implementation) {
    return implementation.algorithm == Implementation::Algorithm::DoubleBinaryTree;
}

std::uint64_t size_after(Kind kind, const Implementation& implementation, std::int32_t members,
                         std::uint64_t size) {
    if (is_tree(implementation)) return size;  // double trees only run all-reduces
    if (kind == Kind::ReduceScatter) return size / static_cast<std::uint64_t>(members);
    if (kind == Kind::AllGather) return size * static_cast<std::uint64_t>(members);
    return size;
}

CommType type_that_runs(CommType type, const Config& config) {
    const auto substitute = config.collective_substitutes.find(static_cast<int>(type));
    return substitute == config.collective_substitutes.end() ? type
                                                             : static_cast<CommType>(substitute->second);
}

std::optional<Collective> simulated_kind(CommType type, const Config& config) {
    switch (type) {
        case CommType::AllReduce:
        case CommType::Barrier:
            return Collective::AllReduce;
        case CommType::AllGather:
            return Collective::AllGather;
        case CommType::AllToAll:
            return Collective::AllToAll;
        case CommType::ReduceScatter:
        case CommType::ReduceScatterBlock:
            return Collective::ReduceScatter;
        default:
            break;
    }
    if (!config.native_collectives) return std::nullopt;
    switch (type) {
        case CommType::Broadcast:
            return Collective::Broadcast;
        case CommType::Reduce:
            return Collective::Reduce;
        case CommType::Gather:
            return Collective::Gather;
        case CommType::Scatter:
            return Collective::Scatter;
        default:
            return std::nullopt;
    }
}

// Two loads count as equal if they differ by less than this fraction of the load of a chunk on the
// slowest dimension.
constexpr double kThreshold = 1.0 / 16;

}  // namespace

std::optional<CollectiveRequest> request_of(const Node& node, const Config& config) {
    const CommType type = type_that_runs(node.comm_type, config);
    const auto kind = simulated_kind(type, config);
    if (!kind) return std::nullopt;
    CollectiveRequest request;
    request.node_id = node.id;
    request.kind = *kind;
    request.group = node.group;
    // A barrier is an all-reduce of the smallest possible size.
    request.size = node.comm_type == CommType::Barrier ? 0 : node.comm_size;
    request.involved = node.involved_dims;
    request.priority = node.comm_priority;
    const auto sends_first = config.sends_first.find(static_cast<int>(type));
    if (sends_first != config.sends_first.end())
        request.abreast = static_cast<std::uint64_t>(sends_first->second);
    return request;
}

std::vector<std::size_t> DimensionOrder::next(std::uint64_t chunk, const std::vector<std::size_t>& dimensions,
                                              Collective kind, std::uint64_t size) {
    std::vector<std::size_t> order = dimensions;
    if (order.size() < 2) return order;
    if (config_.inter_dimension_policy == InterDimensionPolicy::RoundRobin) {
        std::rotate(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(chunk % order.size()),
                    order.end());
        return order;
    }
    if (chunk == 0) std::fill(loads_.begin(), loads_.end(), 0.0);
    const auto less = [this](std::size_t a, std::size_t b) { return loads_[a] < loads_[b]; };
    const auto [low, high] = std::minmax_element(order.begin(), order.end(), less);
    double threshold = 0;
    for (const std::size_t d : order)
        threshold = std::max(threshold, load(d, kThreshold * static_cast<double>(size)));
    if (loads_[*high] - loads_[*low] >= threshold) std::stable_sort(order.begin(), order.end(), less);
    add_loads(order, kind, size);
    return order;
}

// Add the load of a chunk to each dimension. A reduction in a dimension makes the chunk smaller. A
// gather goes through the same chunk sizes in reverse.
void DimensionOrder::add_loads(const std::vector<std::size_t>& order, Collective kind, std::uint64_t size) {
    double bytes = static_cast<double>(size);
    if (kind == Collective::AllGather) {
        for (const std::size_t d : order) bytes *= config_.npus_count[d];
    }
    for (const std::size_t d : order) {
        loads_[d] += load(d, bytes);
        bytes /= config_.npus_count[d];
    }
}

double DimensionOrder::load(std::size_t dimension, double size) const {
    const double ranks = config_.npus_count[dimension];
    return size * (ranks - 1) / ranks / config_.reached_bandwidth(dimension);
}

Ring ring_of(const Config& config, std::int32_t rank, std::size_t dimension,
             const Implementation& implementation) {
    if (implementation.whole) return {0, 1, static_cast<std::int32_t>(config.num_ranks()), rank};
    std::int32_t stride = 1;
    for (std::size_t d = 0; d < dimension; ++d) stride *= config.npus_count[d];
    const std::int32_t count = config.npus_count[dimension];
    const std::int32_t position = rank / stride % count;
    return {rank - position * stride, stride, count, position};
}

Planner::Planner(const Config& config, const Groups& groups, const Implementations& implementations,
                 std::int32_t rank)
    : config_(config),
      groups_(groups),
      implementations_(implementations),
      rank_(rank),
      pointers_(config.topology.size()),
      order_(config) {
    for (Pointers& pointers : pointers_) pointers.last = config.num_queues_per_dim / 2;
    for (auto& uses : tree_uses_) uses.assign(config.topology.size(), 0);
}

// Return the implementation of the group's first collective of this kind, which later collectives of
// the group also use.
Choice Planner::choose(const CollectiveRequest& request) {
    if (is_rooted(request.kind)) return {};
    if (const std::string* program = program_for(request)) return {nullptr, program, true};
    const auto key =
        request.group * static_cast<std::int64_t>(kConfigured) + static_cast<std::int64_t>(request.kind);
    const auto known = choices_.find(key);
    if (request.group != 0 && known != choices_.end()) return known->second;
    return choices_[key] = implementations_.choose(request.kind, request.node_id);
}

// Return the program for a collective. Programs support neither collectives along only some dimensions
// nor uneven blocks.
const std::string* Planner::program_for(const CollectiveRequest& request) const {
    if (request.blocks != nullptr) return nullptr;
    const std::size_t flags = std::min<std::size_t>(4, config_.npus_count.size());
    for (std::size_t d = 0; request.group == 0 && d < flags; ++d) {
        if (config_.npus_count[d] > 1 && (request.involved >> d & 1U) == 0) return nullptr;
    }
    return implementations_.program(request.kind, ring_of_all(request.group).count, request.size);
}

// Split a collective into equal chunks of at least one byte per rank. A custom algorithm processes all
// data in one chunk.
Planner::Chunks Planner::split(const CollectiveRequest& request, const Choice& choice) const {
    const auto preferred = static_cast<std::uint64_t>(config_.preferred_dataset_splits);
    const std::uint64_t splits = request.abreast > 0 ? request.abreast : preferred;
    const auto ranks = static_cast<std::uint64_t>(config_.num_ranks());
    const std::uint64_t chunk = request.size / splits;
    if (request.blocks != nullptr)
        return {0, std::clamp<std::uint64_t>(request.blocks->largest(), 1, splits)};
    if (choice.custom != nullptr) return {request.size, 1};
    if (request.kind == Kind::AllGather || is_rooted(request.kind)) {
        if (request.size == 0) return {0, 0};
        if (chunk == 0) return {request.size, 1};
    } else if (ranks > chunk) {
        return {ranks, splits};
    }
    return {chunk, (request.size + chunk - 1) / chunk};
}

std::vector<Phase> Planner::plan(const CollectiveRequest& request, const Choice& choice, std::uint64_t index,
                                 std::uint64_t turn, std::uint64_t chunk) {
    if (request.blocks != nullptr) return plan_uneven(request, choice, index);
    if (is_rooted(request.kind)) return plan_rooted(request, chunk);
    if (choice.custom != nullptr) return plan_custom(request, choice);
    if (groups_.is_everyone(request.group)) {
        const std::uint8_t involved = request.group == 0 ? request.involved : 0xFF;
        return plan_everyone(request.kind, *choice.native, involved, index, chunk);
    }
    return plan_group(request.kind, *choice.native, groups_.ring(request.group, rank_), turn, chunk);
}

std::vector<Phase> Planner::plan_everyone(Kind kind, const std::vector<Implementation>& list,
                                          std::uint8_t involved, std::uint64_t index, std::uint64_t chunk) {
    const std::vector<Dimension> visited = dimensions(kind, list, involved);
    if (order_.active() && kind != Kind::AllToAll) return ordered_phases(kind, visited, index, chunk);
    return phases(kind, visited, chunk);
}

// Split an all-reduce into a reduce-scatter along every dimension, and an all-gather along the same
// dimensions in reverse order.
std::vector<Phase> Planner::ordered_phases(Kind kind, const std::vector<Dimension>& dimensions,
                                           std::uint64_t index, std::uint64_t chunk) {
    std::vector<std::size_t> places;
    for (std::size_t d = 0; d < config_.topology.size(); ++d) {
        for (const Dimension& dimension : dimensions) {
            if (dimension.index == static_cast<std::int32_t>(d)) places.push_back(d);
        }
    }
    const std::vector<std::size_t> order = order_.next(index, places, kind, chunk);
    const auto at = [&](std::size_t d) {
        return *std::find_if(dimensions.begin(), dimensions.end(), [d](const Dimension& dimension) {
            return dimension.index == static_cast<std::int32_t>(d);
        });
    };
    std::vector<Phase> phases;
    std::uint64_t size = chunk;
    if (kind != Kind::AllGather) {
        for (const std::size_t d : order)
            size = append(phases, kind, Kind::ReduceScatter, at(d), Walk::First, size);
    }
    if (kind != Kind::ReduceScatter) {
        for (auto d = order.rbegin(); d != order.rend(); ++d) {
            size = append(phases, kind, Kind::AllGather, at(*d), Walk::Last, size);
        }
    }
    return phases;
}

std::vector<Phase> Planner::plan_group(Kind kind, const std::vector<Implementation>& list, const Ring& ring,
                                       std::uint64_t turn, std::uint64_t chunk) {
    if (ring.count < 2) return {};
    const Implementation implementation = list.size() == 1 ? list.front() : Implementation{};
    return phases(kind, {{0, implementation, ring, turn % 2 == 0}}, chunk);
}

std::vector<Phase> Planner::plan_rooted(const CollectiveRequest& request, std::uint64_t chunk) {
    const Ring ring = ring_of_all(request.group);
    if (ring.count < 2) return {};
    std::vector<Phase> phases = this->phases(request.kind, {{0, Implementation{}, ring, true}}, chunk);
    if (request.root >= 0) {
        phases.front().root =
            request.group == 0 ? request.root : groups_.ring(request.group, request.root).position;
    }
    return phases;
}

Ring Planner::ring_of_all(std::int64_t group) const {
    if (group != 0) return groups_.ring(group, rank_);
    return {0, 1, static_cast<std::int32_t>(config_.num_ranks()), rank_};
}

std::vector<Phase> Planner::plan_uneven(const CollectiveRequest& request, const Choice& choice,
                                        std::uint64_t part) {
    Phase phase;
    phase.kind = request.kind;
    if (choice.native != nullptr) phase.implementation = choice.native->front();
    phase.ring = ring_of_all(request.group);
    phase.blocks = request.blocks;
    phase.part = part;
    phase.parts = split(request, choice).count;
    assign_queue(phase, 0, Walk::Next);
    return {phase};
}

std::vector<Phase> Planner::plan_custom(const CollectiveRequest& request, const Choice& choice) const {
    Phase phase;
    phase.kind = request.kind;
    phase.custom = choice.custom;
    if (choice.program) {
        phase.ring = ring_of_all(request.group);
        return {phase};
    }
    if (!groups_.members(request.group).empty()) phase.ring = groups_.ring(request.group, rank_);
    phase.ring.position = groups_.sorted_position(request.group, rank_);
    return {phase};
}

std::vector<Planner::Dimension> Planner::dimensions(Kind kind, const std::vector<Implementation>& list,
                                                    std::uint8_t involved) {
    std::vector<Dimension> found;
    for (std::size_t d = 0; d < list.size(); ++d) {
        const Ring ring = ring_of(config_, rank_, d, list[d]);
        // ASTRA-sim reads only four flags; dimensions beyond the fourth always take part.
        if (ring.count < 2 || (d < 4 && (involved >> d & 1U) == 0)) continue;
        found.push_back({static_cast<std::int32_t>(d), list[d], ring, true});
    }
    if (kind == Kind::AllGather) std::reverse(found.begin(), found.end());
    return found;
}

std::vector<Phase> Planner::phases(Kind kind, std::vector<Dimension> dimensions, std::uint64_t chunk) {
    std::vector<Phase> phases;
    std::uint64_t size = chunk;
    if (kind != Kind::AllReduce || config_.collective_optimization == CollectiveOptimization::Baseline) {
        for (const Dimension& dimension : dimensions)
            size = append(phases, kind, kind, dimension, Walk::Next, size);
        return phases;
    }
    if (dimensions.empty()) return phases;
    const Dimension top = dimensions.back();
    dimensions.pop_back();
    for (const Dimension& dimension : dimensions) {
        size = append(phases, kind, Kind::ReduceScatter, dimension, Walk::First, size);
    }
    size = append(phases, kind, Kind::AllReduce, top, Walk::First, size);
    for (auto dimension = dimensions.rbegin(); dimension != dimensions.rend(); ++dimension) {
        size = append(phases, kind, Kind::AllGather, *dimension, Walk::Last, size);
    }
    return phases;
}

std::uint64_t Planner::append(std::vector<Phase>& phases, Kind requested, Kind kind,
                              const Dimension& dimension, Walk walk, std::uint64_t size) {
    Phase phase;
    phase.kind = kind;
    phase.implementation = dimension.implementation;
    phase.ring = dimension.ring;
    phase.size = size;
    phase.max_tree = dimension.max_tree;
    if (is_tree(dimension.implementation) && !dimension.ring.local) {
        phase.max_tree = tree_uses_[static_cast<std::size_t>(requested)][dimension.index]++ % 2 == 0;
    }
    assign_queue(phase, dimension.index, walk);
    phases.push_back(phase);
    return size_after(kind, dimension.implementation, dimension.ring.count, size);
}

void Planner::assign_queue(Phase& phase, std::int32_t dimension, Walk walk) {
    Pointers& pointers = pointers_[dimension];
    const std::int32_t queues = config_.num_queues_per_dim, half = queues / 2;
    std::int32_t index = 0;
    switch (walk) {
        case Walk::Next:
            index = pointers.next;
            pointers.next = (index + 1) % queues;
            phase.clockwise = queues == 1 || index < half;
            break;
        case Walk::First:
            index = pointers.first;
            pointers.first = index + 1 >= half ? 0 : index + 1;
            break;
        case Walk::Last:
            index = pointers.last;
            pointers.last = index + 1 == queues ? half : index + 1;
            phase.clockwise = false;
            break;
    }
    phase.dimension = dimension;
    phase.queue = dimension * queues + index;
}

}  // namespace chakrascope::engine
