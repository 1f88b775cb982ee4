// Splits a collective into chunks, and each chunk into phases. A plan determines the dimensions that a
// chunk visits, their order, and the queue and algorithm of each phase.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "../config.h"
#include "../workload/groups.h"
#include "../workload/program.h"
#include "implementation.h"
#include "stream.h"

namespace chakrascope::engine {

struct Blocks;

// A collective as requested by one rank.
struct CollectiveRequest {
    std::uint32_t node = 0;  // index in the rank's program
    std::uint64_t node_id = 0;
    Collective kind = Collective::AllReduce;
    std::int64_t group = 0;
    std::uint64_t size = 0;
    std::uint8_t involved = 0xFF;
    std::int64_t priority = 0;
    std::int32_t root = -1;          // the root's rank; -1 for the first member
    const Blocks* blocks = nullptr;  // blocks of an uneven collective
    // Number of concurrent pieces if ranks send without a request of the receiver; otherwise 0.
    std::uint64_t abreast = 0;
};

// Return the request for a node's collective, without node index and root. Returns nullopt if the node
// is replayed with its recorded time.
std::optional<CollectiveRequest> request_of(const Node& node, const Config& config);

// Chooses the order in which a chunk visits the network dimensions. In ASTRA-sim, the order is always
// ascending.
//
// Source of the greedy order: Rashidi et al., Themis: A Network Bandwidth-Aware Collective Scheduling
// Policy for Distributed Training of DL Models (ISCA 2022).
class DimensionOrder {
  public:
    explicit DimensionOrder(const Config& config) : config_(config), loads_(config.topology.size(), 0.0) {}

    // Whether chunks may visit dimensions in an order that is not ascending.
    bool active() const { return config_.inter_dimension_policy != InterDimensionPolicy::Ascending; }

    // Return the order in which the reduction of a chunk visits the given dimensions. The caller
    // passes them in ascending order. The gather visits the dimensions in reverse order. Chunk 0 of
    // a collective resets the load of all dimensions.
    std::vector<std::size_t> next(std::uint64_t chunk, const std::vector<std::size_t>& dimensions,
                                  Collective kind, std::uint64_t size);

  private:
    void add_loads(const std::vector<std::size_t>& order, Collective kind, std::uint64_t size);
    // Return the time that a dimension is busy with a reduce-scatter of `size` bytes, in arbitrary
    // units.
    double load(std::size_t dimension, double size) const;

    const Config& config_;
    std::vector<double> loads_;
};

// Return the ring of a rank in one network dimension.
Ring ring_of(const Config& config, std::int32_t rank, std::size_t dimension,
             const Implementation& implementation);

class Planner {
  public:
    struct Chunks {
        std::uint64_t size;
        std::uint64_t count;
    };

    Planner(const Config& config, const Groups& groups, const Implementations& implementations,
            std::int32_t rank);

    // Return the implementation of the collective. Raises ConfigError if no implementation is
    // configured.
    Choice choose(const CollectiveRequest& request);
    Chunks split(const CollectiveRequest& request, const Choice& choice) const;
    // Plan the phases of chunk number `index` of the request, which is chunk number `turn` of the
    // group.
    std::vector<Phase> plan(const CollectiveRequest& request, const Choice& choice, std::uint64_t index,
                            std::uint64_t turn, std::uint64_t chunk);

  private:
    // Positions in the queues of a dimension for three round-robin assignments.
    struct Pointers {
        std::int32_t next = 0, first = 0, last = 0;
    };
    enum class Walk : std::uint8_t { Next, First, Last };
    struct Dimension {
        std::int32_t index;
        Implementation implementation;
        Ring ring;
        bool max_tree;
    };

    // Plan a chunk of a collective that all ranks run. Bit d of `involved` is set if dimension d
    // takes part.
    std::vector<Phase> plan_everyone(Collective kind, const std::vector<Implementation>& list,
                                     std::uint8_t involved, std::uint64_t index, std::uint64_t chunk);
    // Plan a chunk of a collective that a communicator group runs. `turn` is the number of the
    // chunk in the group.
    std::vector<Phase> plan_group(Collective kind, const std::vector<Implementation>& list, const Ring& ring,
                                  std::uint64_t turn, std::uint64_t chunk);
    // Plan a chunk of a collective with a root, over a ring of all its members.
    std::vector<Phase> plan_rooted(const CollectiveRequest& request, std::uint64_t chunk);
    // Plan one part of an uneven collective, over a ring of all its members.
    std::vector<Phase> plan_uneven(const CollectiveRequest& request, const Choice& choice,
                                   std::uint64_t part);
    Ring ring_of_all(std::int64_t group) const;
    std::vector<Phase> plan_custom(const CollectiveRequest& request, const Choice& choice) const;
    // Return the name of the program for the collective; null if there is no program.
    const std::string* program_for(const CollectiveRequest& request) const;
    std::vector<Dimension> dimensions(Collective kind, const std::vector<Implementation>& list,
                                      std::uint8_t involved);
    // Return the phases of a chunk in the order of a policy that ASTRA-sim does not have.
    std::vector<Phase> ordered_phases(Collective kind, const std::vector<Dimension>& dimensions,
                                      std::uint64_t index, std::uint64_t chunk);
    std::vector<Phase> phases(Collective kind, std::vector<Dimension> dimensions, std::uint64_t chunk);
    // Append the phase in one dimension, and return the size of the chunk after the phase.
    std::uint64_t append(std::vector<Phase>& phases, Collective requested, Collective kind,
                         const Dimension& dimension, Walk walk, std::uint64_t size);
    void assign_queue(Phase& phase, std::int32_t dimension, Walk walk);

    const Config& config_;
    const Groups& groups_;
    const Implementations& implementations_;
    const std::int32_t rank_;
    std::vector<Pointers> pointers_;
    DimensionOrder order_;
    std::unordered_map<std::int64_t, Choice> choices_;
    std::array<std::vector<std::uint32_t>, kConfigured> tree_uses_;
};

}  // namespace chakrascope::engine
