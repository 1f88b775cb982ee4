// The records of a rank's nodes, with 14 bytes per node.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "../event_queue.h"
#include "program.h"

namespace chakrascope::engine {

// The record of one node; times are -1 until the event has happened.
struct NodeRecord {
    std::int64_t start = -1;
    std::int64_t end = -1;
    std::int32_t cause = -1;  // index of the node whose end started this node; -1: start of the program
    Origin origin;  // node whose start began the chain of events that ended this node; -1: this node
};

class Records {
  public:
    explicit Records(const Program& program);

    std::uint32_t size() const { return static_cast<std::uint32_t>(own_.size()); }
    NodeRecord operator[](std::uint32_t node) const;
    std::int64_t start(std::uint32_t node) const;
    std::int64_t end(std::uint32_t node) const;
    bool started(std::uint32_t node) const { return own_[node].high != kNever; }
    bool ended(std::uint32_t node) const { return own_[node].duration != kOpen; }

    // Whether a node that has not begun has unfinished dependencies. `less` removes one dependency, and
    // returns whether any are left.
    bool waits(std::uint32_t node) const { return own_[node].low != 0; }
    bool less(std::uint32_t node) { return --own_[node].low != 0; }

    void begin(std::uint32_t node, Time now, std::int32_t cause);
    // Record the end of a node that has begun. `origin` is empty, or refers to another node.
    void finish(std::uint32_t node, Time now, Origin origin);

  private:
    static constexpr std::uint16_t kNever = 0xFFFF, kLate = 0xFFFE;
    static constexpr std::uint32_t kOpen = 0xFFFFFFFF, kLong = 0xFFFFFFFE;

    // The compact record of a node: a start time in 48 bits, except for starts after three days, and a
    // duration. Until the node begins, the low bits of the start contain the number of unfinished
    // dependencies.
    struct [[gnu::packed, gnu::aligned(2)]] Own {
        std::uint32_t low;
        std::uint32_t duration;
        std::int32_t cause;
        std::uint16_t high;
    };

    std::vector<Own> own_;
    std::unordered_map<std::uint32_t, std::int64_t> late_, long_;
    std::unordered_map<std::uint32_t, Origin> origins_;
};

}  // namespace chakrascope::engine
