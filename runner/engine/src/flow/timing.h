// How long packets take over the links of a path without any other traffic.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "../fabric/routes.h"
#include "../packet/settings.h"
#include "sharing.h"

namespace chakrascope::engine::flow {

// The packets of one message: all are full except perhaps the last one.
struct Packets {
    std::uint64_t count = 0;
    std::uint32_t first_bytes = 0;  // on the wire
    std::uint32_t last_bytes = 0;
    std::uint64_t wire_bytes = 0;  // of all of them
};

// The times at which the last packet and the one before it reach some point; ps.
struct Pair {
    double before = 0;
    double last = 0;
};

// Times of packets on the links of a fabric, rounded as by the packet model's clock; in ps.
class Timing {
  public:
    Timing(const std::vector<Direction>& directions, const packet::Settings& settings);

    Packets packets(std::uint64_t bytes) const;
    // Bytes of a full packet on the wire.
    double packet_bytes() const { return packet_bytes_; }
    // Acknowledgements for each packet of data.
    double answers() const { return answers_; }

    // Set another rate of a link from now on.
    void set_rate(std::uint32_t link, std::uint64_t rate_bps);
    // The capacity of a link.
    Line line(std::uint32_t link, bool leaves_host) const;

    double delay(std::uint32_t link) const { return times_[link].delay; }
    double full(std::uint32_t link) const { return times_[link].full; }
    double answer(std::uint32_t link) const { return times_[link].answer; }
    double sending(std::uint32_t link, std::uint32_t bytes) const;

    // The time from the start of a message until its first packet is at the start of the hop.
    double head(std::span<const std::uint32_t> path, std::size_t hop, const Packets& packets) const;
    // The time from the departure of the last packet from the hop, where it took `last` ps, until
    // both last packets have arrived.
    Pair tail(std::span<const std::uint32_t> path, std::size_t hop, const Packets& packets,
              double last) const;
    // The same for the acknowledgements of these packets.
    Pair answer_tail(std::span<const std::uint32_t> path, const Packets& packets, Pair times) const;
    // A single acknowledgement.
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
