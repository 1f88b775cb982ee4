// A host thread of a rank that drives a device as a chain of nodes, cut where it issues work or waits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace chakrascope::converter {

// Columns of the thread's pieces (see timeline.h), its marks in order of time, and the bursts in which it
// works (none: all the time). A mark is a moment at which the thread issues work, or stops until *resume_ns*,
// for something in the graph if *waits*. A stop in a call that returns at *return_ns* (-1: in none) has a
// node of its own, which takes the time from *resume_ns* on.
struct ChainInput {
    std::span<const std::int64_t> piece_start_ns, piece_end_ns;
    std::span<const std::int32_t> piece_op;
    std::span<const std::int64_t> mark_time_ns, mark_resume_ns, mark_return_ns;
    std::span<const std::uint8_t> mark_waits;
    std::span<const std::int64_t> burst_start_ns, burst_end_ns;
};

// The nodes: when each was measured to start, its duration, and the piece it is named after (-1: none). Of
// each mark, the node that issues its work, and the one that runs when the thread has waited (-1: none). Of
// each burst, its first and last node. *stop* is the mark whose call a node is (-1: none's).
struct ChainColumns {
    std::vector<std::int64_t> start_ns, duration_ns;
    std::vector<std::int32_t> piece, stop, issuer, resumed, burst_first, burst_last;
    std::int64_t wait_ns = 0;
};

// Walk along the thread. Each node takes the time the thread spent in it; the time it was stopped is
// nobody's.
ChainColumns host_chain(const ChainInput& input, std::int32_t num_ops);

}  // namespace chakrascope::converter
