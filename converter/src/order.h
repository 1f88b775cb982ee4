// Topological order and replay of a graph. Nodes are numbered from 0.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace chakrascope::converter {

// Dependencies sorted by target. Node i waits for source[bounds[i]] to source[bounds[i + 1]].
struct Dependencies {
    std::span<const std::int64_t> bounds, source;
};

// Return the nodes in topological order, and on a tie in ascending order of *priority*. Fewer nodes are
// returned if there is a dependency cycle.
std::vector<std::int64_t> order_by_dependency(std::span<const std::int64_t> priority,
                                              const Dependencies& waits);

struct Times {
    std::vector<std::int64_t> start_ns, end_ns;
};

// Return the times of a replay in the order of *turns*. Each node starts when its dependencies and the
// previous node on its lane (numbered from 0) have ended.
Times replay(std::span<const std::int64_t> turns, std::span<const std::int64_t> lane,
             std::span<const std::int64_t> duration_ns, const Dependencies& waits);

// The storages that operators read and write, in order. *reads* and *writes* are bounds of slices of
// *storages*, two per operator. Operators marked in *views* change no argument: a storage that such an
// operator both reads and writes counts as unchanged.
struct Accesses {
    std::span<const std::int64_t> reads, writes;
    std::span<const std::uint8_t> views;
    std::span<const std::int64_t> storages;
};

struct Pairs {
    std::vector<std::int64_t> source, target;
};

// Return the pairs (last writer, reader) of all storages that are read, without repetitions, as indices
// of accesses.
Pairs last_writers(const Accesses& accesses);

}  // namespace chakrascope::converter
