// A shared bus between the network interface and the memory of a rank (LogGP model).
//
// The bus has two partner ports, NPU and MEM, which pass data to each other. The NPU port has a
// separate inner bus to the accelerator. Source of the model: Alexandrov et al., LogGP: Incorporating
// Long Messages into the LogP Model (1995).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "../config.h"
#include "../event_queue.h"

namespace chakrascope::engine {

struct Bundle;

class BusPort {
  public:
    struct Parameters {
        std::int64_t L, o, g;
        double G;
        std::int64_t reduction_delay;
    };
    struct Item {
        std::int64_t size = 0;
        bool processed = false;
        bool send_back = false;
        std::function<void()> done;
    };

    BusPort(const Parameters& parameters, EventQueue& events, std::int32_t rank);
    void partner_with(BusPort& partner) { partner_ = &partner; }
    // Attach an inner bus to this port. `near` is the side of the inner bus that faces this port.
    void attach(BusPort& near, BusPort& far);

    void request(Item item);

  private:
    enum class State : std::uint8_t { Free, Sending, Receiving };

    void push_out(Item item);
    void kick();
    bool arbitrate();
    void begin();
    void accept(Item item, double offset);
    void send_done(std::uint64_t);
    void receive_done(std::uint64_t);
    void start_processing();
    void processing_done(std::uint64_t);
    // Pass an item to its next stage, which is the processing, the output of the port, or the owner of
    // the port.
    void to_processing(Item item);
    void to_output(Item item);
    void to_owner(std::deque<Item>& from);

    const Parameters parameters_;
    EventQueue& events_;
    const std::int32_t rank_;
    BusPort* partner_ = nullptr;
    BusPort* inner_near_ = nullptr;
    BusPort* inner_far_ = nullptr;
    State current_ = State::Free, previous_ = State::Free;
    Time last_ = 0;
    int streak_ = 0;
    bool processing_ = false;
    std::deque<Item> out_, in_, waiting_;
};

class SharedBus {
  public:
    SharedBus(const Config& config, EventQueue& events, std::int32_t rank);
    void request(const Bundle& bundle, Callback done);

  private:
    BusPort npu_, memory_, inner_npu_, inner_memory_;
};

}  // namespace chakrascope::engine
