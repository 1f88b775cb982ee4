// HPCC (SIGCOMM 2019): switches report what each hop carried, the sender aims at a target utilisation.
#pragma once

#include <array>

#include "flow.h"

namespace chakrascope::packet {

// Write the telemetry of a port into a packet; fields are as narrow as on the wire and wrap around.
void add_report(Packet& packet, const Settings& settings, const HopReport& report);

class Hpcc final : public CongestionControl {
  public:
    explicit Hpcc(const Flow& flow);
    void acknowledged(Flow& flow, const Packet& packet) override;
    // Counters of other ports cannot be compared: restart with the next report.
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
    // The utilisation of a hop since the last report, and the time it covers.
    double hop_utilisation(const Flow& flow, const HopReport& report, const HopReport& last,
                           Ticks& covered) const;

    const Settings& settings_;
    double rate_;
    double utilisation_ = 1;
    std::uint32_t stage_ = 0;
    std::uint64_t window_end_ = 0;
    std::array<Hop, Telemetry::kHops> hops_;
};

// How busy a port is, averaged over a round trip, for HPCC-PINT.
class PortLoad {
  public:
    // The load when a data packet leaves: its traffic is the previous packet.
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

// A load as a power of the telemetry's base, rounded randomly to one of the two nearest powers.
std::uint16_t encode_load(World& world, double load);

// HPCC-PINT: HPCC with the largest load of the path in one small field (SIGCOMM 2020).
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
