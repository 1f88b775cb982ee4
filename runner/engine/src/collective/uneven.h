// Collectives whose members contribute or receive different amounts: all-to-all-v, all-gather-v and
// reduce-scatter-v. They run as their actual messages. The amounts of all members are read from all
// programs in advance, as real members exchange them.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "../config.h"
#include "../workload/groups.h"
#include "../workload/program.h"

namespace chakrascope::engine {

// The bytes of one uneven collective, of each member (in listed order) for each member. In an
// all-gather a member has the same amount for all, and in a reduce-scatter all have the same amount
// for a member; one row is enough there.
struct Blocks {
    CommType type = CommType::AllToAll;
    std::vector<std::vector<std::uint64_t>> rows;
    std::uint64_t at(std::int32_t from, std::int32_t to) const {
        if (type == CommType::AllToAll) return rows[from][to];
        return rows.front()[type == CommType::AllGather ? from : to];
    }
    std::uint64_t largest() const;
};

// An upper bound for the collectives of a program with unequal amounts that the semantics ignore.
std::uint64_t evened_collectives(const Config& config,
                                 const std::vector<std::shared_ptr<const Program>>& programs);

class UnevenCollectives {
  public:
    using Programs = std::vector<std::shared_ptr<const Program>>;

    // Find the uneven ones among the collectives of all ranks; members match by their k-th collective of
    // the group.
    UnevenCollectives(const Config& config, const Programs& programs,
                      const std::vector<std::int32_t>& program_of_rank);

    bool empty() const { return found_.empty(); }
    // The blocks of a node of a rank's program; null where the collective is even.
    const Blocks* find(std::int32_t rank, std::uint32_t node) const;

  private:
    void add(const std::vector<std::int32_t>& members, const std::vector<std::uint32_t>& nodes,
             std::unique_ptr<const Blocks> blocks);

    std::vector<std::unique_ptr<const Blocks>> blocks_;
    std::unordered_map<std::uint64_t, const Blocks*> found_;  // by rank and node
};

}  // namespace chakrascope::engine
