// Times of packets over the links of a path without other traffic.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "../fabric/routes.h"
#include "../packet/settings.h"
#include "sharing.h"

namespace chakrascope::engine::flow {

// The packets of a message, all full except possibly the last.
struct Packets {
    std::uint64_t count = 0;
    std::uint32_t first_bytes = 0;  // bytes on the wire
    std::uint32_t last_bytes = 0;
    std::uint64_t wire_bytes = 0;  // bytes of all packets on the wire
};

// The times (ps) at which the last packet and the previous packet reach a point.
struct Pair {
    double before = 0;
    double last = 0;
};

// Times of packets on the links of a fabric in ps, rounded as the packet model's clock does.
class Timing {
  public:
    Timing(const std::vector<Direction>& directions, const packet::Settings& settings);

    Packets packets(std::uint64_t bytes) const;
    // Return the bytes of a full packet on the wire, including headers.
    double packet_bytes() const { return packet_bytes_; }
    // Return the number of acknowledgements per data packet.
    double answers() const { return answers_; }

    // Change the rate of a link from now on.
    void set_rate(std::uint32_t link, std::uint64_t rate_bps);
    // Return the capacity of a link, and its load of acknowledgements.
    Line line(std::uint32_t link, bool leaves_host) const;

    double delay(std::uint32_t link) const { return times_[link].delay; }
    double full(std::uint32_t link) const { return times_[link].full; }
    double answer(std::uint32_t link) const { return times_[link].answer; }
    double sending(std::uint32_t link, std::uint32_t bytes) const;

    // Return the time from the start of a message until its first packet reaches the start of the hop.
    double head(std::span<const std::uint32_t> path, std::size_t hop, const Packets& packets) const;
    // Return the arrivals of the last two packets of a message. The last packet has just left the hop, after
    // a transmission time of `last` ps.
    Pair tail(std::span<const std::uint32_t> path, std::size_t hop, const Packets& packets,
              double last) const;
    // Return the arrivals of the acknowledgements of the last two packets.
    Pair answer_tail(std::span<const std::uint32_t> path, const Packets& packets, Pair times) const;
    // Return the time that a single acknowledgement takes over the path.
    double answer_time(std::span<const std::uint32_t> path) const;

  private:
    struct Times {
        double full = 0;
        double answer = 0;
        double delay = 0;
        std::uint64_t rate_bps = 0;
    };

    const packet::Settings& settings_;
    double packet_bytes_;
    double answers_;
    std::vector<Times> times_;
};

}  // namespace chakrascope::engine::flow
