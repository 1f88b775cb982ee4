// The timeline of a host thread: its nested operators, and the consecutive pieces into which operators
// divide its time.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace chakrascope::converter {

// The property that an event assigns to the operators inside the event.
enum class Role : std::uint8_t { Ignored, Operator, Backward, Annotation, Module, Optimizer, DataLoader };
// The phase of an operator; the numbers are the same as in PHASES of timeline.py.
enum class Phase : std::uint8_t { Forward, Backward, Optimizer, Other };

// Events of one thread in order of start; enclosing events precede inner events. *module* is the module
// of Module events, and 0 for other events.
struct EventView {
    std::span<const std::int64_t> start_ns, end_ns, sequence;
    std::span<const std::uint8_t> role;
    std::span<const std::int32_t> module;
};

// Operators in order of start, clipped to the window and to the enclosing operator. *parent* is the
// index of the enclosing operator (-1: none), and *event* is the index of the operator's event.
struct OpColumns {
    std::vector<std::int32_t> event, parent, module;
    std::vector<std::int64_t> start_ns, end_ns;
    std::vector<std::uint8_t> phase, is_leaf;
};

// Consecutive intervals that fill the window. An interval is self time of the operator *op*, or time
// outside any operator (-1). *next_op* is the operator of the next interval.
struct PieceColumns {
    std::vector<std::int64_t> start_ns, end_ns;
    std::vector<std::int32_t> op, next_op;
};

// Finds the operators of threads, one thread at a time. A backward operator has the module of the
// forward operator with the same autograd sequence number, on any thread.
class Nesting {
  public:
    // Return the operators among *events* that overlap the window. *phase* is the phase of operators
    // that are not enclosed by an event with a phase.
    OpColumns operators(const EventView& events, std::int64_t start_ns, std::int64_t end_ns, Phase phase);

  private:
    std::unordered_map<std::int64_t, std::int32_t> module_of_sequence_;
};

// Divide the window into pieces at the starts and ends of operators.
PieceColumns cut(std::span<const std::int64_t> op_start_ns, std::span<const std::int64_t> op_end_ns,
                 std::int64_t start_ns, std::int64_t end_ns);

// Columns of a thread's pieces (see PieceColumns), of its marks in order of time, and of its bursts of
// work (no bursts: the thread works all the time). At a mark, the thread issues work, or stops until
// *resume_ns* (with *waits*: until a node of the graph ends). A stop within a call has a separate node
// for the time from *resume_ns* until the call returns at *return_ns* (-1: no call).
struct ChainInput {
    std::span<const std::int64_t> piece_start_ns, piece_end_ns;
    std::span<const std::int32_t> piece_op;
    std::span<const std::int64_t> mark_time_ns, mark_resume_ns, mark_return_ns;
    std::span<const std::uint8_t> mark_waits;
    std::span<const std::int64_t> burst_start_ns, burst_end_ns;
};

// Columns of the nodes of a thread. Each node has a measured start, a duration, the piece that names
// the node (-1: none), and the mark of the call in which the thread stops (*stop*; -1: none). Each mark
// has the node that issues its work, and the node that runs after the wait (-1: none). Each burst has a
// first and a last node.
struct ChainColumns {
    std::vector<std::int64_t> start_ns, duration_ns;
    std::vector<std::int32_t> piece, stop, issuer, resumed, burst_first, burst_last;
    std::int64_t wait_ns = 0;
};

// Return a host thread's nodes as a chain. Each node lasts as long as the thread spent in it.
// Time in which the thread was stopped belongs to no node.
ChainColumns host_chain(const ChainInput& input, std::int32_t num_ops);

}  // namespace chakrascope::converter
