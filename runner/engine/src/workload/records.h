// The records of a rank's nodes, 14 bytes each.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "../event_queue.h"
#include "program.h"

namespace chakrascope::engine {

// The record of one node; times are -1 until they are known.
struct NodeRecord {
    std::int64_t start = -1;
    std::int64_t end = -1;
    std::int32_t cause =
        -1;         // index of the node whose end let this one start, -1 at the start of the program
    Origin origin;  // the node whose start began the chain of events that ended this one; -1 for itself
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

    // Whether a node that has not begun has unfinished dependencies; `less` removes one of them and
    // returns the same.
    bool waits(std::uint32_t node) const { return own_[node].low != 0; }
    bool less(std::uint32_t node) { return --own_[node].low != 0; }

    void begin(std::uint32_t node, Time now, std::int32_t cause);
    // For a node that has begun; `origin` is another node, or none.
    void finish(std::uint32_t node, Time now, Origin origin);

  private:
    static constexpr std::uint16_t kNever = 0xFFFF, kLate = 0xFFFE;
    static constexpr std::uint32_t kOpen = 0xFFFFFFFF, kLong = 0xFFFFFFFE;

    // The start in 48 bits, except for starts after three days; the end as a duration. Until the
    // node has begun, the low bits of the start are the number of its unfinished dependencies.
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
