// The interface of fabrics, which carry requests from compute units to memories, and answers back.
#pragma once

#include <cstdint>
#include <vector>

#include "machine.h"

namespace chakrascope::gpu {

struct Place {
    std::int32_t gpu;
    std::int32_t unit;
};

// Issues requests, and is notified of their progress.
class Listener {
  public:
    virtual ~Listener() = default;
    // Answers to loads have arrived.
    virtual void loaded(std::uint32_t) {}
    // Stores have left the GPU, or reached its own memory.
    virtual void sent(std::uint32_t) {}
    // Stores are visible in the memory of a GPU.
    virtual void delivered(std::int32_t, std::uint32_t) {}
    // Stores have been acknowledged at the compute unit.
    virtual void acknowledged(std::uint32_t) {}
};

// Notified when a control request (semaphore or flag) or a proxy's transfer arrives.
class Arrival {
  public:
    virtual ~Arrival() = default;
    virtual void arrived() = 0;
};

constexpr std::int32_t kSwitch = -1;   // the switch of a node
constexpr std::int32_t kOutside = -2;  // the network between nodes

// Traffic of a directed link that leaves a GPU, to a peer, the switch or the network between nodes.
struct LinkReport {
    std::int32_t source, destination;
    std::uint64_t bytes = 0, lines = 0;
    Fs busy = 0, queued = 0;
};

class Fabric {
  public:
    virtual ~Fabric() = default;
    // Load or store lines `first`, `first` + 1, ..., which are interleaved over a GPU's memory channels.
    virtual void load(Place from, std::int32_t gpu, std::uint64_t first, std::uint32_t lines,
                      Listener& listener) = 0;
    virtual void store(Place from, std::int32_t gpu, std::uint64_t first, std::uint32_t lines,
                       Listener& listener) = 0;
    // Let the switch sum up lines from the memories of all GPUs (`load_sum`), or write lines to all
    // (`multicast`).
    virtual void load_sum(Place from, const std::vector<std::int32_t>& gpus, std::uint64_t first,
                          std::uint32_t lines, Listener& listener) = 0;
    virtual void multicast(Place from, const std::vector<std::int32_t>& gpus, std::uint64_t first,
                           std::uint32_t lines, Listener& listener) = 0;
    virtual void control(Place from, std::int32_t gpu, Arrival& arrival) = 0;
    // Let a proxy move bytes between the memories of two GPUs, over NICs if these are in different nodes.
    virtual void transfer(std::int32_t from, std::int32_t to, std::uint64_t bytes, Arrival& arrival) = 0;
    // Reserve a share of the memory bandwidth for computation from now on; a negative share releases it.
    virtual void take_memory(std::int32_t gpu, double share) = 0;
    // Return the time that the memory needs for all requests so far, at full bandwidth.
    virtual Fs memory_work(std::int32_t gpu) const = 0;
    virtual std::vector<LinkReport> links() const = 0;
};

}  // namespace chakrascope::gpu
