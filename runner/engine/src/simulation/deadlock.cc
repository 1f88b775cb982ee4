// Finds a cycle of operations that wait for each other in a deadlock.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "stalls.h"

namespace chakrascope::engine {
namespace {

// A node of a rank that has begun or cannot begin yet.
struct Place {
    std::int32_t rank;
    std::uint32_t node;
    auto operator<=>(const Place&) const = default;
};

// The graph of waits between nodes, which is built during the search.
class WaitGraph {
  public:
    WaitGraph(const Cluster& cluster, const std::deque<Rank>& ranks) : cluster_(cluster), ranks_(ranks) {}

    std::vector<Place> waits_for(Place place) {
        const Rank& rank = ranks_[place.rank];
        const Facts& node = rank.program().facts(place.node);
        if (!begun(place)) return waits_to_begin(place);
        if (node.type == NodeType::Coll) {
            const std::pair<std::int64_t, std::uint64_t> turn{node.group,
                                                              count_collectives(rank, node.group)};
            const auto known = absent_.find(turn);
            return known != absent_.end() ? known->second : absent_[turn] = absent_members(turn);
        }
        if (node.type == NodeType::Recv) return counterparts(node, NodeType::Send, node.comm_src, place.rank);
        if (node.type == NodeType::Send) return counterparts(node, NodeType::Recv, node.comm_dst, place.rank);
        return {};
    }

    bool begun(Place place) const { return ranks_[place.rank].records().started(place.node); }

  private:
    // Return the unfinished dependencies of a node. If there are none, return the nodes that occupy the lane
    // of the node.
    std::vector<Place> waits_to_begin(Place place) {
        std::vector<Place> found;
        for (const std::uint32_t parent : parents(place)) {
            const Place before{place.rank, parent};
            if (!ranks_[before.rank].records().ended(parent)) found.push_back(before);
        }
        if (!found.empty()) return found;
        const Rank& rank = ranks_[place.rank];
        for (std::uint32_t i = 0; i < rank.records().size(); ++i) {
            if (rank.records().started(i) && !rank.records().ended(i) &&
                rank.slot(i) == rank.slot(place.node))
                found.push_back({place.rank, i});
        }
        return found;
    }

    // Return the nodes of a group's k-th collective on the members that have not begun this collective.
    std::vector<Place> absent_members(std::pair<std::int64_t, std::uint64_t> turn) {
        const auto [group, reached] = turn;
        std::vector<Place> found;
        for (const Rank& rank : ranks_) {
            if (cluster_.groups.sorted_position(group, rank.id()) < 0) continue;
            if (count_collectives(rank, group) >= reached) continue;
            add_first_waiting(found, rank, [group = group](const Facts& node) {
                return node.type == NodeType::Coll && node.group == group;
            });
        }
        return found;
    }

    // Return the matching send or receive of the peer, if the peer has not begun this operation.
    std::vector<Place> counterparts(const Facts& node, NodeType type, std::int64_t peer, std::int32_t self) {
        std::vector<Place> found;
        add_first_waiting(found, ranks_[static_cast<std::size_t>(peer)], [&](const Facts& theirs) {
            return theirs.type == type && theirs.comm_tag == node.comm_tag &&
                   theirs.comm_size == node.comm_size &&
                   (type == NodeType::Send ? theirs.comm_dst : theirs.comm_src) == self;
        });
        return found;
    }

    // Add the node of a rank that would begin first among the nodes that have not begun. This node need not
    // have the lowest id.
    template <class Fits>
    void add_first_waiting(std::vector<Place>& found, const Rank& rank, Fits fits) {
        for (const std::uint32_t i : waiting(rank)) {
            if (!fits(rank.program().facts(i))) continue;
            found.push_back({rank.id(), i});
            return;
        }
    }

    // Return a rank's nodes that have not begun, in topological order.
    const std::vector<std::uint32_t>& waiting(const Rank& rank) {
        const auto [entry, created] = waiting_.try_emplace(rank.id());
        std::vector<std::uint32_t>& order = entry->second;
        if (!created) return order;
        for (const std::uint32_t node : rank.program().in_order()) {
            if (!rank.records().started(node)) order.push_back(node);
        }
        return order;
    }

    const std::vector<std::uint32_t>& parents(Place place) {
        auto& lists = parents_[place.rank];
        if (lists.empty()) {
            const Program& program = ranks_[place.rank].program();
            lists.resize(program.size());
            for (std::uint32_t parent = 0; parent < program.size(); ++parent) {
                for (const std::uint32_t child : program.children(parent)) lists[child].push_back(parent);
            }
        }
        return lists[place.node];
    }

    const Cluster& cluster_;
    const std::deque<Rank>& ranks_;
    std::map<std::int32_t, std::vector<std::vector<std::uint32_t>>> parents_;
    std::map<std::pair<std::int64_t, std::uint64_t>, std::vector<Place>> absent_;
    std::map<std::int32_t, std::vector<std::uint32_t>> waiting_;
};

// Searches depth-first. A node that is already on the path closes a cycle.
class Search {
  public:
    Search(const Cluster& cluster, const std::deque<Rank>& ranks) : graph_(cluster, ranks) {}

    std::vector<Place> from(Place start) {
        if (!seen_.insert(start).second) return {};
        std::vector<Step> way{{start, graph_.waits_for(start), 0}};
        while (!way.empty()) {
            Step& last = way.back();
            if (last.next == last.waits.size()) {
                way.pop_back();
                continue;
            }
            const Place place = last.waits[last.next++];
            if (seen_.insert(place).second) {
                way.push_back({place, graph_.waits_for(place), 0});
                continue;
            }
            const auto again =
                std::find_if(way.begin(), way.end(), [&](const Step& step) { return step.place == place; });
            if (again == way.end()) continue;
            std::vector<Place> cycle;
            for (auto step = again; step != way.end(); ++step) cycle.push_back(step->place);
            return cycle;
        }
        return {};
    }

    const WaitGraph& graph() const { return graph_; }

  private:
    struct Step {
        Place place;
        std::vector<Place> waits;
        std::size_t next;
    };

    WaitGraph graph_;
    std::set<Place> seen_;
};

}  // namespace

std::vector<Blocked> find_deadlock(const Cluster& cluster, const std::deque<Rank>& ranks) {
    if (cluster.fold != nullptr) return {};
    Search search(cluster, ranks);
    for (const Rank& rank : ranks) {
        if (rank.finished()) continue;
        for (std::uint32_t i = 0; i < rank.records().size(); ++i) {
            if (!rank.records().started(i) || rank.records().ended(i)) continue;
            const std::vector<Place> cycle = search.from({rank.id(), i});
            if (cycle.empty()) continue;
            std::vector<Blocked> blocked;
            for (const Place& place : cycle) {
                const Node node = ranks[place.rank].program().node(place.node);
                blocked.push_back({place.rank, static_cast<std::int64_t>(node.id), node.name,
                                   operation_of(node), search.graph().begun(place)});
            }
            return blocked;
        }
    }
    return {};
}

}  // namespace chakrascope::engine
