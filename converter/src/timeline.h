// One host thread: its nested operators, and the consecutive pieces into which they cut its time.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace chakrascope::converter {

// The property that an event gives to the operators inside it.
enum class Role : std::uint8_t { Ignored, Operator, Backward, Annotation, Module, Optimizer, DataLoader };
// The same numbers as PHASES in timeline.py.
enum class Phase : std::uint8_t { Forward, Backward, Optimizer, Other };

// Events of one thread in order of start, enclosing ones first. *module* is the module of kModule
// events; 0 means none.
struct EventView {
    std::span<const std::int64_t> start_ns, end_ns, sequence;
    std::span<const std::uint8_t> role;
    std::span<const std::int32_t> module;
};

// Operators in order of start, clipped to the window and to the enclosing operator, whose index is
// *parent* (-1: none); *event* is the index of the event.
struct OpColumns {
    std::vector<std::int32_t> event, parent, module;
    std::vector<std::int64_t> start_ns, end_ns;
    std::vector<std::uint8_t> phase, is_leaf;
};

// Consecutive intervals that fill the window: the self time of *op*, or (-1) time outside any
// operator; *next_op* follows.
struct PieceColumns {
    std::vector<std::int64_t> start_ns, end_ns;
    std::vector<std::int32_t> op, next_op;
};

// Finds the operators of threads, one thread after the other. A backward operator's module is that
// of the forward operator with the same autograd sequence number, on any thread.
class Nesting {
  public:
    // Return the operators among *events* that overlap the window; *phase* applies to those that
    // nothing encloses.
    OpColumns operators(const EventView& events, std::int64_t start_ns, std::int64_t end_ns, Phase phase);

  private:
    std::unordered_map<std::int64_t, std::int32_t> module_of_sequence_;
};

// Cut the window into pieces at these starts and ends of operators.
PieceColumns cut(std::span<const std::int64_t> op_start_ns, std::span<const std::int64_t> op_end_ns,
                 std::int64_t start_ns, std::int64_t end_ns);

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
