// SPDX-License-Identifier: GPL-2.0-only
// Counts the traffic of one direction of a link at the sender.
#pragma once

#include <ns3/point-to-point-net-device.h>
#include <ns3/queue-disc.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace chakrascope::tcp {

// Records the bytes sent in equal intervals from time 0. Intervals are merged in pairs when there are
// too many.
struct SendHistory {
    static constexpr std::size_t kStretches = 64;

    std::int64_t width_ps = 1'000'000;
    std::array<std::uint64_t, kStretches> bytes{};

    void add(std::int64_t time_ps, std::uint64_t count);
};

class LinkMeter {
  public:
    // *overhead* is the size of a frame on the wire minus the bytes that the device sends.
    LinkMeter(std::int32_t from, std::int32_t to, std::uint64_t rate_bps, std::uint32_t overhead)
        : from(from), to(to), rate_bps_(rate_bps), overhead_(overhead) {}

    // Reset the counts, and count traffic from *start_ps*.
    void restart(std::int64_t start_ps);
    void watch(ns3::Ptr<ns3::PointToPointNetDevice> device, ns3::Ptr<ns3::QueueDisc> disc);
    // Count packets that are lost at the device at the other end of the link.
    void watch_losses(ns3::Ptr<ns3::PointToPointNetDevice> peer);
    // Set the rate of the link from now on.
    void set_rate(std::uint64_t rate_bps) { rate_bps_ = rate_bps; }
    // Update the total waiting time of queued packets.
    void settle();

    std::int32_t from;
    std::int32_t to;
    std::uint64_t bytes = 0;
    std::uint64_t packets = 0;
    std::uint64_t drops = 0;
    std::uint64_t marks = 0;
    std::uint64_t largest_queue_bytes = 0;
    std::int64_t busy_ps = 0;
    std::int64_t queued_ps = 0;
    SendHistory history;

  private:
    void sending(ns3::Ptr<const ns3::Packet> packet);
    void queued(ns3::Ptr<const ns3::QueueDiscItem> item);
    void refused(ns3::Ptr<const ns3::QueueDiscItem> item, const char* reason);
    void dropped(ns3::Ptr<const ns3::QueueDiscItem> item, const char* reason);
    void marked(ns3::Ptr<const ns3::QueueDiscItem> item, const char* reason);
    void lost(ns3::Ptr<const ns3::Packet> packet);
    void wait(std::int64_t change);

    std::uint64_t rate_bps_;
    const std::uint32_t overhead_;
    ns3::Ptr<ns3::QueueDisc> disc_;
    std::int64_t start_ps_ = 0;
    std::int64_t waiting_ = 0;
    std::int64_t changed_ps_ = 0;
};

}  // namespace chakrascope::tcp
