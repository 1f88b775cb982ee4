// Records of nodes as columns, for some ranks at a time, because all ranks may have a hundred million nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "simulation.h"

namespace chakrascope::engine {

// A row per executed node.
struct NodeColumns {
    std::vector<std::int32_t> rank;
    std::vector<std::int64_t> node_id, start_ns, end_ns, cause;
    std::vector<std::uint8_t> cause_is_dependency;
    std::vector<std::int32_t> origin_rank;
    std::vector<std::int64_t> origin_node;
};

// A row per executed node of a collective; values that the file lacks are -1.
struct CollectiveColumns {
    std::vector<std::int32_t> rank;
    std::vector<std::int64_t> node_id, start_ns, end_ns, origin_start_ns;
    std::vector<std::int16_t> comm_type;
    std::vector<std::int64_t> group, size_bytes;
};

// Return the nodes of the simulated ranks with indices from `first` to `last`, exclusive.
NodeColumns node_columns(const Output& output, std::size_t first, std::size_t last);

// Return the collectives of the simulated ranks or, with `of_all`, of every rank. The collectives of other
// ranks are copied from their representatives.
CollectiveColumns collective_columns(const Output& output, bool of_all);

}  // namespace chakrascope::engine
