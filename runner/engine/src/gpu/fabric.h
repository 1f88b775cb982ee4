// The interface of the fabric between compute units and memories: it carries requests there and
// answers back.
#pragma once

#include <cstdint>
#include <vector>

#include "machine.h"

namespace chakrascope::gpu {

struct Place {
    std::int32_t gpu;
    std::int32_t unit;
};

// The issuer of requests, which is notified as lines arrive.
class Listener {
  public:
    virtual ~Listener() = default;
    // The answers to loads have arrived.
    virtual void loaded(std::uint32_t) {}
    // The stores have left the GPU, or are in its memory.
    virtual void sent(std::uint32_t) {}
    // The stores are visible in the memory of a GPU.
    virtual void delivered(std::int32_t, std::uint32_t) {}
    // The unit has the acknowledgement.
    virtual void acknowledged(std::uint32_t) {}
};

// A control request (a semaphore or a flag) or a transfer of a proxy has arrived.
class Arrival {
  public:
    virtual ~Arrival() = default;
    virtual void arrived() = 0;
};

constexpr std::int32_t kSwitch = -1;   // of the node
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
    // Lines first, first + 1 ... are interleaved over the channels of a memory.
    virtual void load(Place from, std::int32_t gpu, std::uint64_t first, std::uint32_t lines,
                      Listener& listener) = 0;
    virtual void store(Place from, std::int32_t gpu, std::uint64_t first, std::uint32_t lines,
                       Listener& listener) = 0;
    // The switch reads the memory of every GPU and returns the sum; or it writes to all of them.
    virtual void load_sum(Place from, const std::vector<std::int32_t>& gpus, std::uint64_t first,
                          std::uint32_t lines, Listener& listener) = 0;
    virtual void multicast(Place from, const std::vector<std::int32_t>& gpus, std::uint64_t first,
                           std::uint32_t lines, Listener& listener) = 0;
    virtual void control(Place from, std::int32_t gpu, Arrival& arrival) = 0;
    // A proxy moves bytes between memories, over the NICs if these are in different nodes.
    virtual void transfer(std::int32_t from, std::int32_t to, std::uint64_t bytes, Arrival& arrival) = 0;
    // Computation takes a share of the memory's bandwidth from now on (below 0: gives it back).
    virtual void take_memory(std::int32_t gpu, double share) = 0;
    // For how long the requests so far occupy the memory, at its full bandwidth.
    virtual Fs memory_work(std::int32_t gpu) const = 0;
    virtual std::vector<LinkReport> links() const = 0;
};

}  // namespace chakrascope::gpu
