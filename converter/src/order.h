// Orderings of a graph's nodes, and its replay. Nodes are numbered from 0.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace chakrascope::converter {

// Dependencies by target: node i waits for source[bounds[i]] to source[bounds[i + 1]].
struct Dependencies {
    std::span<const std::int64_t> bounds, source;
};

// Return the nodes in topological order; on a tie, the one with the lowest *priority* first. Fewer
// nodes are returned if there is a dependency cycle.
std::vector<std::int64_t> order_by_dependency(std::span<const std::int64_t> priority,
                                              const Dependencies& waits);

struct Times {
    std::vector<std::int64_t> start_ns, end_ns;
};

// Start each node, in the order of *turns*, when its dependencies and the previous node on its lane
// (numbered from 0) have ended.
Times replay(std::span<const std::int64_t> turns, std::span<const std::int64_t> lane,
             std::span<const std::int64_t> duration_ns, const Dependencies& waits);

// Storages that operators read and write, in order: *reads* and *writes* are slices of *storages*,
// with two bounds each. An operator in *views* does not change a storage that it both reads and writes.
struct Accesses {
    std::span<const std::int64_t> reads, writes;
    std::span<const std::uint8_t> views;
    std::span<const std::int64_t> storages;
};

struct Pairs {
    std::vector<std::int64_t> source, target;
};

// Return (last writer, reader) for each storage that is read, each pair once, as indices of
// accesses.
Pairs last_writers(const Accesses& accesses);

}  // namespace chakrascope::converter
