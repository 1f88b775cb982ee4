#include "remote_memory.h"

#include "../errors.h"

namespace chakrascope::engine {
namespace {

std::int32_t ranks_per_server(const Config& config) {
    if (config.memory_type != MemoryType::PerNode) return static_cast<std::int32_t>(config.num_ranks());
    const std::int64_t covered = static_cast<std::int64_t>(config.num_nodes) * config.num_npus_per_node;
    if (config.num_npus_per_node < 1 || covered < config.num_ranks()) {
        throw ConfigError("'num-nodes' times 'num-npus-per-node' is " + std::to_string(covered) +
                          ", but there are " + std::to_string(config.num_ranks()) +
                          " ranks; every rank needs a node.");
    }
    return config.num_npus_per_node;
}

}  // namespace

RemoteMemory::RemoteMemory(const Config& config, EventQueue& events)
    : events_(events),
      present_(config.memory_type != MemoryType::None),
      queued_(config.memory_type != MemoryType::PerNpu),
      ranks_per_server_(ranks_per_server(config)),
      latency_(static_cast<std::uint64_t>(config.remote_mem_latency)),
      bandwidth_(static_cast<std::uint64_t>(config.remote_mem_bw)),
      servers_(static_cast<std::size_t>((config.num_ranks() - 1) / ranks_per_server_ + 1)) {}

void RemoteMemory::access(std::int32_t rank, std::uint64_t size, Callback done) {
    if (!present_) {
        throw ConfigError("Rank " + std::to_string(rank) +
                          " accesses remote memory, but the memory type is NO_MEMORY_EXPANSION; "
                          "choose another 'memory-type' in the memory configuration.");
    }
    if (!queued_) {
        events_.after(rank, duration(size), done);
        return;
    }
    const auto server = static_cast<std::size_t>(rank / ranks_per_server_);
    const Request request{rank, size, done, events_.origin()};
    if (servers_[server].busy) {
        servers_[server].waiting.push_back(request);
    } else {
        serve(server, request);
    }
}

// Serve a request for remote memory. The rank is notified first, so that the rank's next request queues
// behind requests that already wait.
void RemoteMemory::serve(std::size_t server, const Request& request) {
    servers_[server].busy = true;
    events_.set_origin(request.origin);
    events_.after(request.rank, duration(request.size), request.done);
    events_.after(request.rank, duration(request.size), bind<&RemoteMemory::served>(this, server));
}

void RemoteMemory::served(std::uint64_t server) {
    Server& free = servers_[server];
    free.busy = false;
    if (free.waiting.empty()) return;
    const Request next = free.waiting.front();
    free.waiting.pop_front();
    serve(server, next);
}

Time RemoteMemory::duration(std::uint64_t size) const {
    if (bandwidth_ == 0) return latency_;
    return latency_ + truncate(static_cast<double>(size) / static_cast<double>(bandwidth_));
}

}  // namespace chakrascope::engine
