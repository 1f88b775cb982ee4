// A switch whose ports share a buffer, with priority flow control and ECN marking.
#pragma once

#include <deque>
#include <vector>

#include "hpcc.h"
#include "port.h"

namespace chakrascope::packet {

class Switch final : public Node {
  public:
    Switch(std::int32_t id, World& world) : Node(id, false), world_(world), settings_(world.settings) {}

    Port& add_port();
    std::deque<Port>& ports() { return ports_; }

    // Set the buffer size for the links that are up. Called again when links change. `interface_rate_bps` is
    // the rate of the hosts' interfaces, and `longest_rtt` the averaging time of HPCC-PINT.
    void build(std::uint64_t interface_rate_bps, Ticks longest_rtt);
    // Return the number of bytes from one port that an empty buffer accepts before the port is paused.
    std::uint64_t smallest_share() const;
    Packet* next(Port& port) override;
    void receive(Port& port, Packet* packet) override;
    std::uint64_t discard(Port& port) override;
    bool near_pause(const Port& port) const override;

  private:
    // The buffer space that data from one port occupies.
    struct Ingress {
        std::uint64_t bytes = 0;           // bytes in the reserve and the shared pool
        std::uint64_t headroom_bytes = 0;  // headroom: data that arrived before the pause took effect
        std::uint64_t headroom_limit = 0;
        unsigned shift = 3;
        bool pausing = false;
    };
    struct Marking {
        double low = 0;
        double high = 0;
        double probability = 0;
    };

    bool admit(std::size_t ingress, std::uint32_t bytes);
    void release(std::size_t ingress, std::uint32_t bytes);
    std::uint64_t shared(const Ingress& ingress) const;
    std::uint64_t threshold(const Ingress& ingress) const;
    void end_trains();
    void end_trains_near_marks(const Port& out);
    void pause_if_needed(std::size_t ingress);
    void resume_if_possible(std::size_t ingress);
    void send_pause(std::size_t ingress, Kind kind);
    bool should_mark(std::size_t egress) const;
    Port* way_out(Packet& packet);
    void leave(Port& port, Packet* packet);
    void report_load(Port& port, Packet& packet);

    World& world_;
    const Settings& settings_;
    std::deque<Port> ports_;
    std::vector<Port*> by_number_;
    std::vector<Ingress> ingress_;
    std::vector<Marking> marking_;
    std::vector<std::uint64_t> waiting_bytes_;  // bytes of queued data for each port
    std::vector<PortLoad> loads_;               // load of each port, for HPCC-PINT
    Ticks longest_rtt_ = 0;
    std::uint64_t pool_bytes_ = 0;  // shared buffer, without reserve and headroom
    std::uint64_t shared_bytes_ = 0;
};

}  // namespace chakrascope::packet
