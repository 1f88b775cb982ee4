// Everything between compute units and memories: what carries requests there and answers back.
#pragma once

#include <cstdint>
#include <vector>

#include "machine.h"

namespace chakrascope::gpu {

struct Place {
    std::int32_t gpu;
    std::int32_t unit;
};

// Whoever asked for something; told as the lines come in or get through.
class Listener {
  public:
    virtual ~Listener() = default;
    // The answers to loads are there.
    virtual void loaded(std::uint32_t) {}
    // What was stored has left the GPU, or is in its memory.
    virtual void sent(std::uint32_t) {}
    // It is in the memory of a GPU, where it can be seen.
    virtual void delivered(std::int32_t, std::uint32_t) {}
    // The unit knows that it is there.
    virtual void acknowledged(std::uint32_t) {}
};

// A control request (a semaphore, a flag of its own) or a transfer of a proxy that has arrived.
class Arrival {
  public:
    virtual ~Arrival() = default;
    virtual void arrived() = 0;
};

constexpr std::int32_t kSwitch = -1;   // of the node
constexpr std::int32_t kOutside = -2;  // the network between nodes

// What went over a directed link outside of the GPUs: from a GPU to a peer, the switch or the network
// outside.
struct LinkReport {
    std::int32_t source, destination;
    std::uint64_t bytes = 0, lines = 0;
    Fs busy = 0, queued = 0;
};

class Fabric {
  public:
    virtual ~Fabric() = default;
    // Lines first, first + 1 ... lie on the channels of a memory in turn.
    virtual void load(Place from, std::int32_t gpu, std::uint64_t first, std::uint32_t lines,
                      Listener& listener) = 0;
    virtual void store(Place from, std::int32_t gpu, std::uint64_t first, std::uint32_t lines,
                       Listener& listener) = 0;
    // The switch reads the memory of every GPU and sends the sum; or it writes to all of them.
    virtual void load_sum(Place from, const std::vector<std::int32_t>& gpus, std::uint64_t first,
                          std::uint32_t lines, Listener& listener) = 0;
    virtual void multicast(Place from, const std::vector<std::int32_t>& gpus, std::uint64_t first,
                           std::uint32_t lines, Listener& listener) = 0;
    virtual void control(Place from, std::int32_t gpu, Arrival& arrival) = 0;
    // A proxy moves bytes between memories, over the NICs where these are of different nodes.
    virtual void transfer(std::int32_t from, std::int32_t to, std::uint64_t bytes, Arrival& arrival) = 0;
    // Computation takes a share of the memory's bandwidth from now on (below 0: gives it back).
    virtual void take_memory(std::int32_t gpu, double share) = 0;
    // For how long the requests so far keep the memory busy, at its full bandwidth.
    virtual Fs memory_work(std::int32_t gpu) const = 0;
    virtual std::vector<LinkReport> links() const = 0;
};

}  // namespace chakrascope::gpu
