// Schedules the streams of one rank. Each chunk of a collective is a stream. Streams wait in a queue
// per dimension, and start within the limit of concurrent streams.
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

    // Create and queue all chunks of a collective. Returns false if there are no chunks.
    bool launch(const CollectiveRequest& request);
    // Move the stream to its next phase, or end the stream after its last phase.
    void proceed(Stream& stream);

  private:
    struct Queue {
        std::deque<Stream*> streams;
        std::size_t running = 0;
        TickWatch watch;
    };

    // Whether the stream is served after `other`, if neither of the two streams has started.
    bool yields(const Stream& stream, const Stream& other) const;
    std::int64_t next_priority(const CollectiveRequest& request);
    Stream& create(CollectiveRun& run, std::vector<Phase> phases, std::int64_t tag);
    void recycle(Stream& stream);
    void move_on(Stream& stream);
    void ended(Stream& stream);
    void insert(Queue& queue, Stream& stream);
    void watch_ties(Queue& queue);
    // Record whether the position of a phase's end among the events of its tick is certain. Only used if
    // phases are computed as a whole.
    void watch_order(bool certain);
    static bool is_mixed(const Queue& queue);
    void release(std::int32_t queue);
    void pump(std::int32_t queue);
    void start_waiting(std::uint64_t queue);
    // Whether the chunk starts together with another chunk of the same collective, regardless of the
    // limit of active chunks.
    static bool goes_along(const Queue& queue, const Stream& stream);
    void start(Queue& queue, Stream& stream);
    // Return the first chunk that may overtake active chunks and chunks that wait for a peer; null if
    // there is no such chunk.
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
