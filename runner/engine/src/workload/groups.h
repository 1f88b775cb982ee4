// The communicator groups of an experiment. Group 0 contains all ranks.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "../collective/ring.h"
#include "../config.h"

namespace chakrascope::engine {

class Groups {
  public:
    // Read the groups of the configuration. Raises ConfigError for a group id below 1, and for a member
    // that is not a rank or is listed twice.
    explicit Groups(const Config& config);

    bool contains(std::int64_t group) const { return group == 0 || listed_.contains(group); }
    // Whether the group contains every rank. A group of all ranks behaves like the default group.
    bool is_everyone(std::int64_t group) const;
    std::int32_t size(std::int64_t group) const;
    // Return the members of a group in their listed order; empty for the default group.
    const std::vector<std::int32_t>& members(std::int64_t group) const;
    // Return a rank's ring through the members of a group in listed order. The position is -1 if the
    // rank is not a member.
    Ring ring(std::int64_t group, std::int32_t rank) const;
    // Return the index of the rank among the sorted members; -1 if the rank is not a member.
    std::int32_t sorted_position(std::int64_t group, std::int32_t rank) const;

  private:
    struct Places {
        std::vector<std::int32_t> listed;
        std::vector<std::int32_t> sorted;
        std::vector<std::int32_t> place_of_sorted;  // position in the list for each entry of `sorted`
    };

    std::int32_t ranks_;
    std::map<std::int64_t, Places> listed_;
    std::vector<std::int32_t> none_;
};

}  // namespace chakrascope::engine
