// SPDX-License-Identifier: GPL-2.0-only
// The whole network: its nodes and links, the ways between hosts, and the messages on them.
#pragma once

#include <deque>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "host.h"
#include "settings.h"
#include "switch.h"

namespace chakrascope::packet {

struct Completion {
    std::uint64_t flow;
    bool acknowledged;  // else delivered
    Ticks time;
};

struct LinkReport {
    std::int32_t from;
    std::int32_t to;
    PortUse use;
    SendHistory history;
};

class Fabric {
  public:
    Settings settings;
    bool report_delivered = true;
    bool report_acknowledged = true;

    // Describe the network: all nodes, then links, then build once. Errors are std::runtime_error.
    void set_nodes(std::int32_t count, const std::set<std::int32_t>& switches);
    void add_link(std::int32_t a, std::int32_t b, std::uint64_t rate_bps, Ticks delay, double loss);
    void build();

    // Send a message at that time, not before now.
    void send(std::uint64_t id, std::int32_t source, std::int32_t destination, std::uint64_t bytes,
              Ticks time);
    // Advance to the next completion, and to the end of its time step, but not past the limit.
    const std::vector<Completion>& run(Ticks limit);

    std::vector<LinkReport> links() const;
    std::uint64_t data_packets() const { return pool_.data_packets; }
    bool idle() const;

  private:
    struct Path {
        Ticks rtt = 0;
        std::uint64_t product_bytes = 0;  // of bandwidth and delay
    };

    std::int64_t place_among_ways(std::int32_t node) const;
    void route_to(std::int32_t host);
    Path measure(std::int32_t source, std::int32_t destination);
    void measure_all();
    const Path& path(std::int32_t source, std::int32_t destination);
    void begin(Flow* flow);
    void begin_late(Flow* flow, int events);
    void begin_settling();
    void settle();
    void forget_done();
    void complete(Flow& flow, bool acknowledged);
    std::vector<Port*>& ways(std::int32_t node, std::int32_t destination);
    bool is_host(std::int32_t node) const { return hosts_[static_cast<std::size_t>(node)] != nullptr; }
    std::deque<Port>& ports(std::int32_t node);

    PacketPool pool_;
    Host::Reports reports_;
    std::vector<std::unique_ptr<Host>> hosts_;       // by node, null for switches
    std::vector<std::unique_ptr<Switch>> switches_;  // by node, null for hosts
    std::vector<std::vector<std::vector<Port*>>> host_routes_;
    std::unordered_map<std::uint64_t, Path> paths_;
    Path longest_;  // the largest of each over all pairs of hosts
    std::unordered_map<std::uint64_t, std::uint16_t> next_port_;
    std::unordered_map<std::uint64_t, std::unique_ptr<Flow>> flows_;
    std::vector<std::uint64_t> done_;  // acknowledged messages that something may still refer to
    ns3::EventId limit_;
    ns3::EventId look_;
    std::uint64_t events_before_ = 0;
    std::vector<Completion> completions_;
};

}  // namespace chakrascope::packet
