// The interface of the fabric, which carries requests from compute units to memories, and answers back.
#pragma once

#include <cstdint>
#include <vector>

#include "machine.h"

namespace chakrascope::gpu {

struct Place {
    std::int32_t gpu;
    std::int32_t unit;
};

// The issuer of requests, which is notified when lines arrive.
class Listener {
  public:
    virtual ~Listener() = default;
    // Process the arrival of answers to loads.
    virtual void loaded(std::uint32_t) {}
    // Process stores that have left the GPU, or that are already in the GPU's own memory.
    virtual void sent(std::uint32_t) {}
    // Process stores that are visible in the memory of a GPU.
    virtual void delivered(std::int32_t, std::uint32_t) {}
    // Process the acknowledgement of stores at the compute unit.
    virtual void acknowledged(std::uint32_t) {}
};

// Receives the arrival of a control request (semaphore or flag) or of a proxy's transfer.
class Arrival {
  public:
    virtual ~Arrival() = default;
    virtual void arrived() = 0;
};

constexpr std::int32_t kSwitch = -1;   // the switch of a node
constexpr std::int32_t kOutside = -2;  // the network between nodes

// The traffic of a directed link outside the GPUs: from a GPU to a peer, the switch or the network
// between nodes.
struct LinkReport {
    std::int32_t source, destination;
    std::uint64_t bytes = 0, lines = 0;
    Fs busy = 0, queued = 0;
};

class Fabric {
  public:
    virtual ~Fabric() = default;
    // Load or store lines. Lines `first`, `first` + 1, ... are interleaved over the memory channels of
    // a GPU.
    virtual void load(Place from, std::int32_t gpu, std::uint64_t first, std::uint32_t lines,
                      Listener& listener) = 0;
    virtual void store(Place from, std::int32_t gpu, std::uint64_t first, std::uint32_t lines,
                       Listener& listener) = 0;
    // Let the switch read lines from the memory of every GPU and return the sum (`load_sum`), or write
    // lines to every GPU (`multicast`).
    virtual void load_sum(Place from, const std::vector<std::int32_t>& gpus, std::uint64_t first,
                          std::uint32_t lines, Listener& listener) = 0;
    virtual void multicast(Place from, const std::vector<std::int32_t>& gpus, std::uint64_t first,
                           std::uint32_t lines, Listener& listener) = 0;
    virtual void control(Place from, std::int32_t gpu, Arrival& arrival) = 0;
    // Move bytes between the memories of two GPUs by a proxy, over the NICs if the GPUs are in
    // different nodes.
    virtual void transfer(std::int32_t from, std::int32_t to, std::uint64_t bytes, Arrival& arrival) = 0;
    // Reserve a share of the memory bandwidth for computation from now on. A negative share releases
    // memory bandwidth.
    virtual void take_memory(std::int32_t gpu, double share) = 0;
    // Return the time that the memory needs for all requests so far at full bandwidth.
    virtual Fs memory_work(std::int32_t gpu) const = 0;
    virtual std::vector<LinkReport> links() const = 0;
};

}  // namespace chakrascope::gpu
