// Computes the critical path, by walking back through the records of one rank at a time, and the slack
// of events.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace chakrascope::engine {

// The records of one rank, in ascending order of node id.
struct RankRecords {
    std::span<const std::int64_t> node, start, end, cause;
    std::span<const bool> cause_is_dependency;
    std::span<const std::int32_t> origin_rank;
    std::span<const std::int64_t> origin_node;
};

// One step of the critical path. Node -1 stands for idle time of the rank.
struct PathStep {
    std::int32_t rank;
    std::int64_t node;
    std::int64_t start, end;
    std::int32_t origin_rank;
    std::int64_t origin_node;
    std::int64_t own_start;
    std::int64_t cause;  // node whose end started the origin, on the same rank
    bool cause_is_dependency;
};

// Walks from the node that ends last back to time 0. The walk needs the records of only one rank at a
// time, which is the rank that `rank()` returns.
class PathWalk {
  public:
    PathWalk(std::int32_t rank, std::int64_t node, std::int64_t makespan, std::int64_t most_steps)
        : rank_(rank), node_(node), until_(makespan), most_steps_(most_steps) {}

    std::int32_t rank() const { return rank_; }
    bool done() const { return done_; }
    // Return the steps that have been walked so far, with the latest step first.
    const std::vector<PathStep>& steps() const { return steps_; }

    // Continue the walk until the records of another rank are needed or time 0 is reached. Raises
    // BackendError if a node is missing in the records, or if waits form a cycle.
    void advance(const RankRecords& records);

  private:
    std::size_t find(const RankRecords& records, std::int64_t node) const;
    void visit(const RankRecords& records);
    void resolve(const RankRecords& records);

    std::int32_t rank_;
    std::int64_t node_;
    std::int64_t until_;
    const std::int64_t most_steps_;
    PathStep open_{};  // the step to complete once the records of the origin's rank are available
    bool is_open_ = false;
    bool done_ = false;
    std::vector<PathStep> steps_;
};

// Lower `room` (the slack of each event, ns) until the slack of each event is at most the slack of each
// successor plus the gap to the successor. The successors of event i are listed from first[i] to
// first[i + 1]. `order` contains all events in order of time.
void lower_room(std::span<std::int64_t> room, std::span<const std::int32_t> order,
                std::span<const std::int64_t> first, std::span<const std::int32_t> waiting,
                std::span<const std::int64_t> gap);

}  // namespace chakrascope::engine
