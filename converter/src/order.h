// Orders of a graph's nodes, and its replay. Nodes are numbered from 0.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace chakrascope::converter {

// Dependencies by target: node i waits for source[bounds[i]] to source[bounds[i + 1]].
struct Dependencies {
    std::span<const std::int64_t> bounds, source;
};

// Return the nodes so that each comes after those it waits for; of several, that of lowest *priority* first.
// Fewer are returned if nodes wait for each other in a cycle.
std::vector<std::int64_t> order_by_dependency(std::span<const std::int64_t> priority,
                                              const Dependencies& waits);

struct Times {
    std::vector<std::int64_t> start_ns, end_ns;
};

// Start the nodes, taken in the order of *turns*, when what they wait for and the node before them on their
// lane (numbered from 0) have ended.
Times replay(std::span<const std::int64_t> turns, std::span<const std::int64_t> lane,
             std::span<const std::int64_t> duration_ns, const Dependencies& waits);

// What operators read and write, in order: *reads* and *writes* are slices of *storages*, two bounds each.
// What one of *views* writes to a storage that it reads is that storage itself, unchanged.
struct Accesses {
    std::span<const std::int64_t> reads, writes;
    std::span<const std::uint8_t> views;
    std::span<const std::int64_t> storages;
};

struct Pairs {
    std::vector<std::int64_t> source, target;
};

// Return (last writer, reader) for each storage that is read, each pair once, as numbers of accesses.
Pairs last_writers(const Accesses& accesses);

}  // namespace chakrascope::converter
