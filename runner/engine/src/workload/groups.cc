#include "groups.h"

#include <algorithm>
#include <numeric>

#include "../errors.h"

namespace chakrascope::engine {

Groups::Groups(const Config& config) : ranks_(static_cast<std::int32_t>(config.num_ranks())) {
    for (const auto& [id, members] : config.groups) {
        const std::string name = "Communicator group " + std::to_string(id);
        if (id < 1) throw ConfigError(name + " has no valid number; groups are numbered from 1.");
        Places places;
        places.listed = members;
        places.place_of_sorted.resize(members.size());
        std::iota(places.place_of_sorted.begin(), places.place_of_sorted.end(), 0);
        std::sort(places.place_of_sorted.begin(), places.place_of_sorted.end(),
                  [&](std::int32_t a, std::int32_t b) { return members[a] < members[b]; });
        for (const std::int32_t place : places.place_of_sorted) {
            const std::int32_t rank = members[place];
            if (rank < 0 || rank >= ranks_) {
                throw ConfigError(name + " names rank " + std::to_string(rank) + ", but there are " +
                                  std::to_string(ranks_) +
                                  " ranks; correct the group or enlarge the network.");
            }
            if (!places.sorted.empty() && places.sorted.back() == rank) {
                throw ConfigError(name + " lists rank " + std::to_string(rank) + " twice; list it once.");
            }
            places.sorted.push_back(rank);
        }
        listed_.emplace(id, std::move(places));
    }
}

bool Groups::is_everyone(std::int64_t group) const { return group == 0 || size(group) == ranks_; }

std::int32_t Groups::size(std::int64_t group) const {
    return group == 0 ? ranks_ : static_cast<std::int32_t>(listed_.at(group).listed.size());
}

const std::vector<std::int32_t>& Groups::members(std::int64_t group) const {
    return group == 0 ? none_ : listed_.at(group).listed;
}

Ring Groups::ring(std::int64_t group, std::int32_t rank) const {
    const Places& places = listed_.at(group);
    const std::int32_t sorted = sorted_position(group, rank);
    const std::int32_t position = sorted < 0 ? -1 : places.place_of_sorted[sorted];
    return {0, 1, static_cast<std::int32_t>(places.listed.size()), position, places.listed.data(), true};
}

std::int32_t Groups::sorted_position(std::int64_t group, std::int32_t rank) const {
    if (group == 0) return rank;
    const auto& sorted = listed_.at(group).sorted;
    const auto place = std::lower_bound(sorted.begin(), sorted.end(), rank);
    return place == sorted.end() || *place != rank ? -1 : static_cast<std::int32_t>(place - sorted.begin());
}

}  // namespace chakrascope::engine
