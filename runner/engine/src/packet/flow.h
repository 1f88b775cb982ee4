// A flow is one message in flight: the state of its sender and of its receiver.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "world.h"

namespace chakrascope::packet {

class Host;
class Port;
struct Flow;

// Congestion control: adapts the rate of a sender to acknowledgements.
class CongestionControl {
  public:
    virtual ~CongestionControl() = default;
    // Called for an acknowledgement, after flow.acknowledged has been updated.
    virtual void acknowledged(Flow& flow, const Packet& packet) = 0;
    virtual void finished() {}
    // Called when the flow changes its path. From then on, `acknowledged` is only called for packets on the
    // new path.
    virtual void moved() {}
};

struct Flow {
    Flow(std::uint64_t id, Host& source, Host& destination, std::uint64_t size, World& world)
        : id(id), source(source), destination(destination), size(size), world(world) {}

    const std::uint64_t id;  // id given by the caller
    Host& source;
    Host& destination;
    const std::uint64_t size;
    World& world;
    std::uint16_t source_port = 0;
    std::size_t place = 0;  // index among all flows
    int start_steps = 0;    // number of pending events at its start time

    // The outgoing ports on the path of the data, starting at the source (`forth`), and on the path of the
    // acknowledgements, starting at the destination (`back`).
    std::vector<Port*> forth;
    std::vector<Port*> back;
    Path forth_path;
    Path back_path;
    Port& out() const { return *forth.front(); }

    // State of the sender.
    std::uint64_t sent = 0;          // offset of the next byte to send
    std::uint64_t acknowledged = 0;  // all bytes before this offset have arrived
    double rate_bps = 0;
    double line_bps = 0;
    std::uint64_t window_bytes = 0;  // 0: unlimited
    std::uint32_t train = 1;         // maximum number of packets in a train
    Ticks full_time = 0;             // transmission time of a full packet on its first link
    std::uint64_t held_back = 0;     // number of packets by which the window is enlarged
    Ticks timed_since = 0;
    std::uint64_t timed_until = 0;  // end offset of the timed train; 0: no timed train
    Ticks base_rtt = 0;
    Ticks next_send = 0;
    std::uint32_t last_bytes = 0;
    Ticks last_progress = 0;
    bool done = false;
    bool started = false;
    bool waits_for_way = false;  // whether the flow starts only when a path exists
    std::uint64_t moved_at = 0;  // bytes from this offset take the current path
    bool timer_armed = false;
    bool listed = false;        // whether the flow is still in the list of its interface
    std::uint32_t packets = 0;  // number of packets in flight, in both directions
    std::unique_ptr<CongestionControl> control;

    // State of the receiver.
    std::uint64_t expected = 0;
    std::uint64_t unacknowledged = 0;
    bool delivered = false;
    Ticks next_nack = 0;
    std::uint64_t last_nack = ~0ull;

    std::uint64_t left() const { return size - sent; }
    bool window_full() const;
    // Return the number of packets that may leave as one train now.
    std::uint32_t train_now() const;
    // Measure the round-trip time of trains: it starts when a train has left (`left_as_train`) and ends when
    // all bytes before `sequence` are acknowledged (`answered_until`).
    void left_as_train();
    void answered_until(std::uint64_t sequence);
    bool finished() const { return acknowledged >= size; }

    // Change the sending rate and the gap before the next packet.
    void change_rate(double bits_per_second);
    Ticks gap(double bits_per_second) const;
    // Adapt the flow to a new rate of its first link.
    void change_line(double bits_per_second);
    // Called when a packet is lost: start the retransmission timer, if the settings have a timeout.
    void lost();

  private:
    void hold_back(Ticks round_trip);
    void check_progress();
};

}  // namespace chakrascope::packet
