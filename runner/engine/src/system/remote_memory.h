// Remote memory: a memory expansion per rank, a memory expansion per node, or one pool for the whole
// cluster.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "../config.h"
#include "../event_queue.h"

namespace chakrascope::engine {

class RemoteMemory {
  public:
    // Create the remote memory. Raises ConfigError for an unknown memory type, or for a node layout
    // that does not cover all ranks.
    RemoteMemory(const Config& config, EventQueue& events);

    // Access `size` bytes of remote memory for a rank. Raises ConfigError if there is no remote memory.
    void access(std::int32_t rank, std::uint64_t size, Callback done);

  private:
    struct Request {
        std::int32_t rank;
        std::uint64_t size;
        Callback done;
        Origin origin;
    };
    struct Server {
        bool busy = false;
        std::deque<Request> waiting;
    };

    void serve(std::size_t server, const Request& request);
    void served(std::uint64_t server);
    Time duration(std::uint64_t size) const;

    EventQueue& events_;
    const bool present_;
    const bool queued_;
    const std::int32_t ranks_per_server_;
    const std::uint64_t latency_;
    const std::uint64_t bandwidth_;
    std::vector<Server> servers_;
};

}  // namespace chakrascope::engine
