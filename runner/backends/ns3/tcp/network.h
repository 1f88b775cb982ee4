// SPDX-License-Identifier: GPL-2.0-only
// A network of ns-3 hosts, switches and links, with TCP connections between the hosts.
#pragma once

#include <ns3/error-model.h>
#include <ns3/flow-monitor-helper.h>
#include <ns3/node-container.h>
#include <ns3/point-to-point-net-device.h>
#include <ns3/queue-disc.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "connection.h"
#include "meter.h"
#include "settings.h"

namespace chakrascope::tcp {

struct Completion {
    std::uint64_t message;
    std::int64_t time_ps;
};

// The statistics of ns-3's flow monitor for one direction of a connection.
struct MonitoredFlow {
    std::int32_t from, to;
    std::uint16_t from_port, to_port;
    std::uint64_t sent_packets, received_packets, sent_bytes, received_bytes, lost_packets;
    std::int64_t delay_ns, jitter_ns;  // sums over received packets
};

class Network {
  public:
    Settings settings;

    void set_nodes(std::int32_t count, const std::set<std::int32_t>& switches);
    void add_link(std::int32_t a, std::int32_t b, std::uint64_t rate_bps, std::int64_t delay_ps, double loss,
                  std::uint64_t mark_bytes);
    // Change the rate of a link at a time of the job. A link with rate 0 is down.
    void add_change(std::int64_t time_ps, std::size_t link, std::uint64_t rate_bps);
    // Build the network, open the connections that exist before the job starts, and start the clock of
    // the job.
    void build();

    void send(std::uint64_t message, std::int32_t from, std::int32_t to, std::uint64_t bytes,
              std::int64_t time_ps);
    // Simulate until the end of the first nanosecond in which messages complete, but not past the limit
    // (below 0: no limit).
    const std::vector<Completion>& run(std::int64_t limit_ps);
    std::int64_t now_ps() const;
    bool idle() const { return outstanding_ == 0; }

    std::vector<const LinkMeter*> links();
    std::vector<std::pair<std::uint64_t, std::uint64_t>> retransmissions() const;
    const SenderTotals& totals() const { return totals_; }
    // Return the statistics of the flow monitor, if it is enabled. The flow monitor also writes a file
    // if the settings contain a file name.
    std::vector<MonitoredFlow> monitored();

  private:
    struct LinkPlan {
        std::int32_t a, b;
        std::uint64_t rate_bps;
        std::int64_t delay_ps;
        double loss;
        std::uint64_t mark_bytes;
    };
    struct LinkChange {
        std::int64_t time_ps;
        std::size_t link;
        std::uint64_t rate_bps;
    };
    using Pair = std::tuple<std::int32_t, std::int32_t>;
    using Device = ns3::Ptr<ns3::PointToPointNetDevice>;
    // One direction of a link.
    struct Way {
        std::int32_t peer;
        Device device;
        std::size_t link;
    };

    void set_defaults() const;
    void make_link(std::size_t place);
    void set_rate(Device device, std::uint64_t rate_bps) const;
    void lose_all(std::size_t link, bool lost);
    ns3::Ptr<ns3::QueueDisc> make_disc(std::int32_t owner, const LinkPlan& plan, Device device) const;
    void name_nodes();
    void make_routes();
    std::vector<std::int32_t> hops_to(std::int32_t host) const;
    void schedule_changes();
    void change(std::size_t first, std::size_t end);
    void listen(std::int32_t host);
    void watch_host(std::int32_t host, Device device, ns3::Ptr<ns3::QueueDisc> disc);
    std::vector<std::unique_ptr<Connection>>& between(std::int32_t low, std::int32_t high);
    void open(Connection& connection);
    void open_all();
    void accept(std::int32_t host, ns3::Ptr<ns3::Socket> socket, const ns3::Address& peer);
    void remember(std::int32_t host, ns3::Ptr<HostSocket> socket);
    void start(std::uint64_t message, std::int32_t from, std::int32_t to, std::uint64_t bytes);
    void complete(std::uint64_t message);
    void left_host(std::int32_t host, ns3::Ptr<const ns3::Packet> packet);
    void dropped_in_host(std::int32_t host, ns3::Ptr<const ns3::QueueDiscItem> item);

    std::int32_t count_ = 0;
    std::set<std::int32_t> switches_;
    std::vector<std::int32_t> hosts_;
    std::vector<LinkPlan> plans_;
    std::vector<LinkChange> changes_;
    std::vector<bool> down_;  // whether each link is down
    ns3::NodeContainer nodes_;
    std::vector<std::vector<Way>> neighbours_;
    // The devices at both ends of each link, with error models that lose arriving packets.
    std::vector<std::array<Device, 2>> ends_;
    std::vector<std::array<ns3::Ptr<ns3::ErrorModel>, 2>> losses_;
    std::vector<std::unique_ptr<LinkMeter>> meters_;
    HostSocket::Habits habits_;
    SenderTotals totals_;
    std::vector<ns3::Ptr<HostSocket>> listeners_;
    std::map<Pair, std::vector<std::unique_ptr<Connection>>> connections_;
    // Pending connections, by the number and the port of the connecting host.
    std::map<std::tuple<std::int32_t, std::uint16_t>, Connection*> opening_;
    // The sockets of each host, by the address of the peer and both ports.
    std::vector<std::unordered_map<std::uint64_t, HostSocket*>> sockets_;
    std::map<Pair, std::uint64_t> turns_;
    std::unique_ptr<ns3::FlowMonitorHelper> monitor_;
    std::vector<Completion> completions_;
    std::uint64_t outstanding_ = 0;
    std::int64_t epoch_ps_ = 0;
};

}  // namespace chakrascope::tcp
