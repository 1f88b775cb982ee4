// The endpoint of a rank, which simulates the time to move data between network interface and memory.
#pragma once

#include <cstdint>
#include <memory>

#include "../collective/algorithm.h"
#include "../config.h"
#include "../event_queue.h"

namespace chakrascope::engine {

class SharedBus;

// A piece of data that moves through the endpoint of a rank.
struct Bundle {
    std::uint64_t size = 0;
    Side side = Side::ToMemory;
    bool processed = false;  // whether the data is reduced with data in memory
    bool send_back = false;
    bool bypass = false;  // whether the delay is fixed, as for rings of communicator groups
};

class Endpoint {
  public:
    Endpoint(const Config& config, EventQueue& events, std::int32_t rank);
    ~Endpoint();
    Endpoint(const Endpoint&) = delete;
    Endpoint& operator=(const Endpoint&) = delete;

    void pass(const Bundle& bundle, Callback done);

    // Return the delay of a bundle without a shared bus. `reduction` is the additional time to reduce
    // the data.
    Time delay(bool bypass) const;
    Time reduction(std::uint64_t size) const;

  private:
    struct Held {
        std::uint64_t size;
        Callback done;
    };

    void processed(std::uint64_t held);
    std::uint64_t hold(std::uint64_t size, Callback done);

    EventQueue& events_;
    std::int32_t rank_;
    Time delay_;
    double memory_bandwidth_;  // in bytes per second
    std::vector<Held> held_;
    std::vector<std::uint32_t> free_;
    std::unique_ptr<SharedBus> bus_;
};

}  // namespace chakrascope::engine
