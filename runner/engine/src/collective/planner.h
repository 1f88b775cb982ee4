// Splits a collective into chunks, and each chunk into phases: the dimensions it visits, their
// order, its queues and algorithms.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "../config.h"
#include "../workload/groups.h"
#include "dimension_order.h"
#include "request.h"
#include "stream.h"

namespace chakrascope::engine {

// The ring of a rank in one dimension of the network.
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

    // Return the implementation of the collective; raises ConfigError when nothing is configured.
    Choice choose(const CollectiveRequest& request);
    Chunks split(const CollectiveRequest& request, const Choice& choice) const;
    // Plan chunk number `index` of the request, which is chunk number `turn` of its group.
    std::vector<Phase> plan(const CollectiveRequest& request, const Choice& choice, std::uint64_t index,
                            std::uint64_t turn, std::uint64_t chunk);

  private:
    // Positions of the three round-robin walks through the queues of a dimension.
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

    // Plan a chunk of a collective of all ranks; bit d of `involved` says whether dimension d takes part.
    std::vector<Phase> plan_everyone(Collective kind, const std::vector<Implementation>& list,
                                     std::uint8_t involved, std::uint64_t index, std::uint64_t chunk);
    // Plan a chunk of a collective of a communicator group; `turn` counts the chunks of the group.
    std::vector<Phase> plan_group(Collective kind, const std::vector<Implementation>& list, const Ring& ring,
                                  std::uint64_t turn, std::uint64_t chunk);
    // Plan a chunk of a collective with a root, over a ring of all its members.
    std::vector<Phase> plan_rooted(const CollectiveRequest& request, std::uint64_t chunk);
    // Plan a part of an uneven collective, over a ring of all its members.
    std::vector<Phase> plan_uneven(const CollectiveRequest& request, const Choice& choice,
                                   std::uint64_t part);
    Ring ring_of_all(std::int64_t group) const;
    std::vector<Phase> plan_custom(const CollectiveRequest& request, const Choice& choice) const;
    // The program for the collective; null without one.
    const std::string* program_for(const CollectiveRequest& request) const;
    std::vector<Dimension> dimensions(Collective kind, const std::vector<Implementation>& list,
                                      std::uint8_t involved);
    // Phases in the order of a policy other than ASTRA-sim's.
    std::vector<Phase> ordered_phases(Collective kind, const std::vector<Dimension>& dimensions,
                                      std::uint64_t index, std::uint64_t chunk);
    std::vector<Phase> phases(Collective kind, std::vector<Dimension> dimensions, std::uint64_t chunk);
    // Append the phase of a dimension and return the chunk's size after it.
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
