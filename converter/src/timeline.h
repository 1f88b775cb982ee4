// One host thread: its nested operators, and the consecutive pieces they cut its time into.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace chakrascope::converter {

// What an event means for the operators inside it.
enum class Role : std::uint8_t { Ignored, Operator, Backward, Annotation, Module, Optimizer, DataLoader };
// The numbers are those of PHASES in timeline.py.
enum class Phase : std::uint8_t { Forward, Backward, Optimizer, Other };

// Events of one thread in order of start, enclosing ones first. *module* names the module of kModule events;
// 0 is no module.
struct EventView {
    std::span<const std::int64_t> start_ns, end_ns, sequence;
    std::span<const std::uint8_t> role;
    std::span<const std::int32_t> module;
};

// Operators in order of start, clipped to the window and the operator around them, which *parent* counts (-1:
// none); *event* counts the events.
struct OpColumns {
    std::vector<std::int32_t> event, parent, module;
    std::vector<std::int64_t> start_ns, end_ns;
    std::vector<std::uint8_t> phase, is_leaf;
};

// Stretches that touch and together are the window: the self time of *op*, or (-1) time outside any operator;
// *next_op* follows.
struct PieceColumns {
    std::vector<std::int64_t> start_ns, end_ns;
    std::vector<std::int32_t> op, next_op;
};

// Finds the operators of one thread after the other. A backward operator's module is that of the forward
// operator with its autograd sequence number, on whichever thread that ran.
class Nesting {
  public:
    // Return the operators among *events* that touch the window; *phase* is that of those nothing encloses.
    OpColumns operators(const EventView& events, std::int64_t start_ns, std::int64_t end_ns, Phase phase);

  private:
    std::unordered_map<std::int64_t, std::int32_t> module_of_sequence_;
};

// Return the pieces of the window that operators with these starts and ends cut it into.
PieceColumns cut(std::span<const std::int64_t> op_start_ns, std::span<const std::int64_t> op_end_ns,
                 std::int64_t start_ns, std::int64_t end_ns);

}  // namespace chakrascope::converter
