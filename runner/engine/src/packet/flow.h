// One message in flight: the state of its sender and its receiver.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "world.h"

namespace chakrascope::packet {

class Host;
class Port;
struct Flow;

// How a sender adapts its rate to acknowledgements.
class CongestionControl {
  public:
    virtual ~CongestionControl() = default;
    // An acknowledgement arrived; flow.acknowledged is already updated.
    virtual void acknowledged(Flow& flow, const Packet& packet) = 0;
    virtual void finished() {}
    // The flow takes another path; from now on, only packets sent on it are acknowledged here.
    virtual void moved() {}
};

struct Flow {
    Flow(std::uint64_t id, Host& source, Host& destination, std::uint64_t size, World& world)
        : id(id), source(source), destination(destination), size(size), world(world) {}

    const std::uint64_t id;  // of the caller
    Host& source;
    Host& destination;
    const std::uint64_t size;
    World& world;
    std::uint16_t source_port = 0;
    std::size_t place = 0;  // among all flows
    int start_steps = 0;    // pending events at its start time

    // The ports by which its data leaves, from the source on, and those of its acknowledgements,
    // from the destination on.
    std::vector<Port*> forth;
    std::vector<Port*> back;
    Path forth_path;
    Path back_path;
    Port& out() const { return *forth.front(); }

    // The sender's side.
    std::uint64_t sent = 0;          // the next byte to send
    std::uint64_t acknowledged = 0;  // all bytes before this one have arrived
    double rate_bps = 0;
    double line_bps = 0;
    std::uint64_t window_bytes = 0;  // 0: unlimited
    std::uint32_t train = 1;         // the most packets in a train
    Ticks full_time = 0;             // transmission time of a full packet on its first link
    std::uint64_t held_back = 0;     // packets by which the window is enlarged
    Ticks timed_since = 0;
    std::uint64_t timed_until = 0;  // the end of the timed train, or 0
    Ticks base_rtt = 0;
    Ticks next_send = 0;
    std::uint32_t last_bytes = 0;
    Ticks last_progress = 0;
    bool done = false;
    bool started = false;
    bool waits_for_way = false;  // must be started
    std::uint64_t moved_at = 0;  // bytes from here on take the current path
    bool timer_armed = false;
    bool listed = false;        // whether the list of its interface still contains it
    std::uint32_t packets = 0;  // packets in flight, in both directions
    std::unique_ptr<CongestionControl> control;

    // The receiver's side.
    std::uint64_t expected = 0;
    std::uint64_t unacknowledged = 0;
    bool delivered = false;
    Ticks next_nack = 0;
    std::uint64_t last_nack = ~0ull;

    std::uint64_t left() const { return size - sent; }
    bool window_full() const;
    // The most packets that would leave as a train now.
    std::uint32_t train_now() const;
    // Time trains: one has left, and all bytes before this one are acknowledged.
    void left_as_train();
    void answered_until(std::uint64_t sequence);
    bool finished() const { return acknowledged >= size; }

    // Change the sending rate; the gap before the next packet changes with it.
    void change_rate(double bits_per_second);
    Ticks gap(double bits_per_second) const;
    // The rate of its first link has changed.
    void change_line(double bits_per_second);
    // A packet of this flow was lost: make sure that the sender notices, if there is a timer.
    void lost();

  private:
    void hold_back(Ticks round_trip);
    void check_progress();
};

}  // namespace chakrascope::packet
