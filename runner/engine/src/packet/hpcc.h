// HPCC (SIGCOMM 2019): switches report the traffic of each hop, and the sender adapts its rate to a target
// utilisation.
#pragma once

#include <array>

#include "flow.h"

namespace chakrascope::packet {

// Add a port's telemetry to a packet. Fields are as narrow as on the wire, and wrap around.
void add_report(Packet& packet, const Settings& settings, const HopReport& report);

class Hpcc final : public CongestionControl {
  public:
    explicit Hpcc(const Flow& flow);
    void acknowledged(Flow& flow, const Packet& packet) override;
    // After a change of path, start again with the next report, because the counters of different ports
    // cannot be compared.
    void moved() override { window_end_ = 0; }

  private:
    struct Hop {
        HopReport last;
        double utilisation = 1;
        double rate_bps = 0;
        std::uint32_t stage = 0;
    };

    void react(Flow& flow, const Packet& packet, bool fast);
    double react_to_path(Flow& flow, const Packet& packet, bool fast, bool& heard);
    double react_per_hop(Flow& flow, const Packet& packet, bool fast, bool& heard);
    // Return the utilisation of a hop between two reports. `covered` is the time between the reports.
    double hop_utilisation(const Flow& flow, const HopReport& report, const HopReport& last,
                           Ticks& covered) const;

    const Settings& settings_;
    double rate_;
    double utilisation_ = 1;
    std::uint32_t stage_ = 0;
    std::uint64_t window_end_ = 0;
    std::array<Hop, Telemetry::kHops> hops_;
};

// The load of a port, averaged over a round-trip time, for HPCC-PINT.
class PortLoad {
  public:
    // Update the load when a data packet leaves, and return the load. Since the last update, the port has
    // sent the previous packet.
    double update(Ticks now, std::uint64_t rate_bps, std::uint64_t queued_bytes, Ticks rtt);
    void sent(Ticks now, std::uint32_t bytes) {
        last_sent_ = now;
        last_bytes_ = bytes;
    }

  private:
    double load_ = 0;
    Ticks last_sent_ = 0;
    std::uint32_t last_bytes_ = 0;
};

// Encode a load as a power of the telemetry's base, rounded up or down at random.
std::uint16_t encode_load(World& world, double load);

// HPCC-PINT (SIGCOMM 2020): HPCC with one small telemetry field, the largest load on the path.
class HpccPint final : public CongestionControl {
  public:
    explicit HpccPint(const Flow& flow);
    void acknowledged(Flow& flow, const Packet& packet) override;

  private:
    World& world_;
    const Settings& settings_;
    double rate_;
    std::uint32_t stage_ = 0;
    std::uint64_t window_end_ = 0;
};

}  // namespace chakrascope::packet
