// The streams of one rank: created chunk by chunk, queued per dimension, started as far as
// concurrency allows.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "planner.h"
#include "stream.h"

namespace chakrascope::engine {

class Rank;

class StreamScheduler {
  public:
    explicit StreamScheduler(Rank& rank);

    // Create and queue all chunks; returns false when there is nothing to do.
    bool launch(const CollectiveRequest& request);
    // Move the stream to its next phase, or end it.
    void proceed(Stream& stream);

  private:
    struct Queue {
        std::deque<Stream*> streams;
        std::size_t running = 0;
        TickWatch watch;
    };

    // Whether the stream is served after another stream that has not started either.
    bool yields(const Stream& stream, const Stream& other) const;
    std::int64_t next_priority(const CollectiveRequest& request);
    Stream& create(CollectiveRun& run, std::vector<Phase> phases, std::int64_t tag);
    void recycle(Stream& stream);
    void move_on(Stream& stream);
    void ended(Stream& stream);
    void insert(Queue& queue, Stream& stream);
    void watch_ties(Queue& queue);
    // For phases computed as a whole: whether the order of the effects of a phase's end is certain.
    void watch_order(bool certain);
    static bool is_mixed(const Queue& queue);
    void release(std::int32_t queue);
    void pump(std::int32_t queue);
    void start_waiting(std::uint64_t queue);
    // Whether the chunk starts together with another chunk of its collective, regardless of the limit of
    // active chunks.
    static bool goes_along(const Queue& queue, const Stream& stream);
    void start(Queue& queue, Stream& stream);
    // The first chunk that may overtake those that are active or wait for a peer; null when there
    // is none.
    Stream* overtaker(const Queue& queue) const;
    Planner& planner(std::int64_t group);

    Rank& rank_;
    std::unordered_map<std::int64_t, Planner> planners_;
    std::size_t concurrency_;
    std::vector<Queue> queues_;
    std::unordered_map<std::uint32_t, CollectiveRun> runs_;
    std::unordered_map<std::int64_t, std::uint64_t> streams_of_group_;
    std::int64_t priorities_ = 0;
    std::uint64_t serials_ = 0;
    Mover mover_;  // the origin of the current event
    std::deque<Stream> pool_;
    std::vector<Stream*> free_;
};

}  // namespace chakrascope::engine
