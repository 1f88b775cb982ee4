// The streams of one rank: created chunk by chunk, queued per dimension, started as far as concurrency
// allows.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "planner.h"
#include "stream.h"

namespace chakrascope {

class Rank;

// A collective as one rank asks for it.
struct CollectiveRequest {
    std::uint32_t node = 0;  // index in the rank's program
    std::uint64_t node_id = 0;
    Collective kind = Collective::AllReduce;
    std::int64_t group = 0;
    std::uint64_t size = 0;
    std::uint8_t involved = 0xFF;
    std::int64_t priority = 0;
    std::int32_t root = -1;  // the rank that is the root, -1 for the first member
};

class StreamScheduler {
  public:
    explicit StreamScheduler(Rank& rank);

    // Create and queue all chunks; returns false when there is nothing to do.
    bool launch(const CollectiveRequest& request);
    // Bring the stream to its next phase, or end it.
    void proceed(Stream& stream);

  private:
    struct Queue {
        std::deque<Stream*> streams;
        std::size_t running = 0;
        TickWatch watch;
    };
    struct Chunks {
        std::uint64_t size;
        std::uint64_t count;
    };

    Chunks split(const CollectiveRequest& request) const;
    const Choice& choose(const CollectiveRequest& request);
    // Plan chunk number `index` of the request, chunk number `turn` of its group.
    std::vector<Phase> plan(const CollectiveRequest& request, const Choice& choice, std::uint64_t index,
                            std::uint64_t turn, std::uint64_t chunk);
    // Whether the stream is served after another that has not started either.
    bool yields(const Stream& stream, const Stream& other) const;
    std::int64_t next_priority(const CollectiveRequest& request);
    Stream& create(CollectiveRun& run, std::vector<Phase> phases, std::int64_t tag);
    void recycle(Stream& stream);
    void move_on(Stream& stream);
    void ended(Stream& stream);
    void insert(Queue& queue, Stream& stream);
    void watch_ties(Queue& queue);
    void release(std::int32_t queue);
    void pump(std::int32_t queue);
    void start_waiting(std::uint64_t queue);

    Rank& rank_;
    Planner planner_;
    std::size_t concurrency_;
    std::vector<Queue> queues_;
    std::unordered_map<std::uint32_t, CollectiveRun> runs_;
    std::unordered_map<std::int64_t, std::uint64_t> streams_of_group_;
    std::unordered_map<std::int64_t, Choice> choices_;
    std::int64_t priorities_ = 0;
    std::uint64_t serials_ = 0;
    Mover mover_;  // what the current event began with
    std::deque<Stream> pool_;
    std::vector<Stream*> free_;
};

}  // namespace chakrascope
