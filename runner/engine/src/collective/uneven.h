// Collectives whose members contribute or receive different amounts: all-to-all-v, all-gather-v and
// reduce-scatter-v. They run as the messages that they really are; what each member has for each is known
// beforehand from all programs, as the members of a real one agree on it.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "../config.h"
#include "../workload/groups.h"
#include "../workload/program.h"

namespace chakrascope::engine {

// The bytes of one uneven collective: of each member (in listed order) for each. A member of an all-gather
// has the same for all, and in a reduce-scatter all have the same for one: there one row is all.
struct Blocks {
    CommType type = CommType::AllToAll;
    std::vector<std::vector<std::uint64_t>> rows;
    std::uint64_t at(std::int32_t from, std::int32_t to) const {
        if (type == CommType::AllToAll) return rows[from][to];
        return rows.front()[type == CommType::AllGather ? from : to];
    }
    std::uint64_t largest() const;
};

// How many collectives of a program, at most, list unequal amounts that the semantics do not keep.
std::uint64_t evened_collectives(const Config& config,
                                 const std::vector<std::shared_ptr<const Program>>& programs);

class UnevenCollectives {
  public:
    using Programs = std::vector<std::shared_ptr<const Program>>;

    // Find them among the collectives of all ranks: the first, second... of a group on its members are one.
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
