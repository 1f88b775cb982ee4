// Uneven collectives, in which members contribute or receive different amounts: all-to-all-v,
// all-gather-v and reduce-scatter-v. Uneven collectives are simulated with their actual messages. The
// amounts of all members are read from all programs in advance, because real members also exchange the
// amounts.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "../config.h"
#include "../workload/groups.h"
#include "../workload/program.h"

namespace chakrascope::engine {

// The bytes that each member of an uneven collective has for each other member, in the listed order of
// members. An all-gather only has one row, because a member has the same amount for all members. A
// reduce-scatter also has only one row, because all members have the same amount for one member.
struct Blocks {
    CommType type = CommType::AllToAll;
    std::vector<std::vector<std::uint64_t>> rows;
    std::uint64_t at(std::int32_t from, std::int32_t to) const {
        if (type == CommType::AllToAll) return rows[from][to];
        return rows.front()[type == CommType::AllGather ? from : to];
    }
    std::uint64_t largest() const;
};

// Return an upper bound of the number of uneven collectives that the semantics treat as even.
std::uint64_t evened_collectives(const Config& config,
                                 const std::vector<std::shared_ptr<const Program>>& programs);

class UnevenCollectives {
  public:
    using Programs = std::vector<std::shared_ptr<const Program>>;

    // Find the uneven collectives of all ranks. The k-th collectives of a group on all members belong
    // together.
    UnevenCollectives(const Config& config, const Programs& programs,
                      const std::vector<std::int32_t>& program_of_rank);

    bool empty() const { return by_node_.empty(); }
    // Return the blocks of the collective of a node; null if the collective is even.
    const Blocks* find(std::int32_t rank, std::uint32_t node) const;

  private:
    void add(const std::vector<std::int32_t>& members, const std::vector<std::uint32_t>& nodes,
             std::unique_ptr<const Blocks> blocks);

    std::vector<std::unique_ptr<const Blocks>> blocks_;
    std::unordered_map<std::uint64_t, const Blocks*> by_node_;  // blocks by rank and node
};

}  // namespace chakrascope::engine
