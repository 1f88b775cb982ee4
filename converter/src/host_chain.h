// A host thread of a device, as a chain of nodes: a new node begins where the thread issues work or waits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace chakrascope::converter {

// Columns of the thread's pieces (see timeline.h), its marks in order of time, and the bursts in
// which it works (none: all the time). At a mark, the thread issues work, or stops until *resume_ns* (if
// *waits*, until a node of the graph ends). A stop in a call that returns at *return_ns* (-1: in none) has
// a separate node, which takes the time from *resume_ns* on.
struct ChainInput {
    std::span<const std::int64_t> piece_start_ns, piece_end_ns;
    std::span<const std::int32_t> piece_op;
    std::span<const std::int64_t> mark_time_ns, mark_resume_ns, mark_return_ns;
    std::span<const std::uint8_t> mark_waits;
    std::span<const std::int64_t> burst_start_ns, burst_end_ns;
};

// For each node, its measured start, its duration, the piece that names it (-1: none), and the mark
// in whose call it stops (*stop*; -1: none). For each mark, the node that issues its work, and the
// node that runs after the wait (-1: none). For each burst, its first and last node.
struct ChainColumns {
    std::vector<std::int64_t> start_ns, duration_ns;
    std::vector<std::int32_t> piece, stop, issuer, resumed, burst_first, burst_last;
    std::int64_t wait_ns = 0;
};

// Walk along the thread. Each node takes the time the thread spent in it; time in which the thread
// was stopped belongs to no node.
ChainColumns host_chain(const ChainInput& input, std::int32_t num_ops);

}  // namespace chakrascope::converter
