// SPDX-License-Identifier: GPL-2.0-only
// Builds the simulated network.
#include "network.h"

#include <ns3/boolean.h>
#include <ns3/config.h>
#include <ns3/data-rate.h>
#include <ns3/double.h>
#include <ns3/error-model.h>
#include <ns3/internet-stack-helper.h>
#include <ns3/ipv4-flow-classifier.h>
#include <ns3/ipv4-interface-address.h>
#include <ns3/ipv4.h>
#include <ns3/node.h>
#include <ns3/object-factory.h>
#include <ns3/point-to-point-helper.h>
#include <ns3/queue-size.h>
#include <ns3/rng-seed-manager.h>
#include <ns3/simulator.h>
#include <ns3/string.h>
#include <ns3/traffic-control-layer.h>
#include <ns3/uinteger.h>

#include <algorithm>
#include <deque>
#include <stdexcept>

#include "routing.h"
#include "wire.h"

namespace chakrascope::tcp {
namespace {

constexpr std::uint32_t kMostHops = 255;
constexpr std::uint64_t kNoPacingBps = 1'000'000'000'000'000;  // ns-3's BBR is limited to 4 Gbit/s
constexpr std::uint32_t kSynTimeoutS = 1;
constexpr std::uint32_t kMostRetries = 15;  // Linux's tcp_retries2

ns3::QueueSize bytes_of(std::uint64_t count) {
    return {ns3::QueueSizeUnit::BYTES, static_cast<std::uint32_t>(count)};
}

ns3::QueueSize packets_of(std::uint64_t count) {
    return {ns3::QueueSizeUnit::PACKETS, static_cast<std::uint32_t>(std::max<std::uint64_t>(count, 1))};
}

ns3::TimeValue nanoseconds(std::uint64_t count) { return ns3::TimeValue(ns3::NanoSeconds(count)); }

}  // namespace

void Network::set_nodes(std::int32_t count, const std::set<std::int32_t>& switches) {
    if (count < 1 || count > kMostNodes) throw std::runtime_error("there are too few or too many nodes");
    count_ = count;
    switches_ = switches;
    for (std::int32_t node = 0; node < count; ++node)
        if (!switches.count(node)) hosts_.push_back(node);
}

void Network::add_link(std::int32_t a, std::int32_t b, std::uint64_t rate_bps, std::int64_t delay_ps,
                       double loss, std::uint64_t mark_bytes) {
    if (std::min(a, b) < 0 || std::max(a, b) >= count_ || a == b || rate_bps == 0)
        throw std::runtime_error("a link joins what cannot be joined");
    plans_.push_back({a, b, rate_bps, delay_ps, loss, mark_bytes});
}

void Network::add_change(std::int64_t time_ps, std::size_t link, std::uint64_t rate_bps) {
    if (link >= plans_.size() || time_ps < 0) throw std::runtime_error("a link changes that there is not");
    if (!changes_.empty() && time_ps < changes_.back().time_ps)
        throw std::runtime_error("links change in no order of time");
    changes_.push_back({time_ps, link, rate_bps});
}

void Network::build() {
    set_defaults();
    nodes_.Create(static_cast<std::uint32_t>(count_));
    ns3::InternetStackHelper stack;
    stack.SetIpv6StackInstall(false);
    stack.SetRoutingHelper(FlowRoutingHelper());
    stack.Install(nodes_);
    neighbours_.resize(static_cast<std::size_t>(count_));
    sockets_.resize(static_cast<std::size_t>(count_));
    down_.resize(plans_.size());
    for (std::size_t place = 0; place < plans_.size(); ++place) make_link(place);
    name_nodes();
    make_routes();
    for (const std::int32_t to : hosts_)
        for (const std::vector<std::int32_t> hops = hops_to(to); const std::int32_t from : hosts_)
            if (hops[static_cast<std::size_t>(from)] < 0)
                throw std::runtime_error("no way leads from host " + std::to_string(from) + " to host " +
                                         std::to_string(to) + " (hosts do not forward)");
    habits_.most_unsent_bytes = settings.number("LIMIT_OUTPUT_BYTES");
    habits_.slow_start_after_idle = settings.number("SLOW_START_AFTER_IDLE") != 0;
    habits_.totals = &totals_;
    for (const std::int32_t host : hosts_) listen(host);
    if (settings.number("FLOW_MONITOR")) {
        ns3::NodeContainer ends;
        for (const std::int32_t host : hosts_) ends.Add(nodes_.Get(static_cast<std::uint32_t>(host)));
        monitor_ = std::make_unique<ns3::FlowMonitorHelper>();
        monitor_->Install(ends);
    }
    // Simulate the first nanosecond, in which ns-3 initialises the nodes by events.
    ns3::Simulator::Schedule(ns3::NanoSeconds(1), [] { ns3::Simulator::Stop(); });
    ns3::Simulator::Run();
    if (settings.number("CONNECT_FIRST")) open_all();
    epoch_ps_ = ns3::Simulator::Now().GetPicoSeconds();
    for (const auto& meter : meters_) meter->restart(epoch_ps_);
    schedule_changes();
    totals_ = {};
}

void Network::set_defaults() const {
    using ns3::BooleanValue;
    using ns3::UintegerValue;
    using ns3::Config::SetDefault;
    ns3::RngSeedManager::SetSeed(1);
    ns3::RngSeedManager::SetRun(settings.number("SEED"));
    SetDefault("ns3::Ipv4L3Protocol::DefaultTtl", UintegerValue(kMostHops));
    SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(settings.number("MSS")));
    SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(settings.number("INITIAL_WINDOW")));
    SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(settings.number("SEND_BUFFER")));
    SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(settings.number("RECEIVE_BUFFER")));
    SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(settings.number("ACK_EVERY")));
    SetDefault("ns3::TcpSocket::DelAckTimeout", nanoseconds(settings.number("DELAYED_ACK_NS")));
    SetDefault("ns3::TcpSocket::ConnTimeout", ns3::TimeValue(ns3::Seconds(kSynTimeoutS)));
    SetDefault("ns3::TcpSocket::DataRetries", UintegerValue(kMostRetries));
    SetDefault("ns3::TcpSocket::TcpNoDelay", BooleanValue(true));
    SetDefault("ns3::TcpSocketBase::MinRto", nanoseconds(settings.number("MIN_RTO_NS")));
    SetDefault("ns3::TcpCubic::HyStart", BooleanValue(false));  // `HostCubic` implements hybrid slow start
    // Timestamps of ns-3 have a resolution of 1 ms, which is too coarse for short round-trip times.
    // Without timestamps, ns-3 measures the times of segments.
    SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(false));
    SetDefault("ns3::TcpSocketState::MaxPacingRate", ns3::DataRateValue(ns3::DataRate(kNoPacingBps)));
    SetDefault("ns3::TcpSocketBase::UseEcn", ns3::StringValue(settings.number("ECN") ? "On" : "Off"));
}

void Network::set_rate(Device device, std::uint64_t rate_bps) const {
    const std::uint64_t overhead = settings.number("FRAME_OVERHEAD") - kPppBytes;
    const std::int64_t gap_ps =
        static_cast<std::int64_t>(static_cast<double>(overhead) * 8e12 / static_cast<double>(rate_bps));
    device->SetDataRate(ns3::DataRate(rate_bps));
    device->SetInterframeGap(ns3::PicoSeconds(gap_ps));
}

void Network::make_link(std::size_t place) {
    const LinkPlan& plan = plans_[place];
    const auto overhead = static_cast<std::uint32_t>(settings.number("FRAME_OVERHEAD") - kPppBytes);
    const bool changes = std::any_of(changes_.begin(), changes_.end(),
                                     [place](const LinkChange& change) { return change.link == place; });
    ns3::PointToPointHelper helper;
    helper.SetDeviceAttribute("Mtu", ns3::UintegerValue(settings.number("MTU")));
    helper.SetChannelAttribute("Delay", ns3::TimeValue(ns3::PicoSeconds(plan.delay_ps)));
    helper.SetQueue("ns3::DropTailQueue", "MaxSize", ns3::QueueSizeValue(packets_of(1)));
    const std::array<std::int32_t, 2> ends{plan.a, plan.b};
    const ns3::NetDeviceContainer made = helper.Install(nodes_.Get(static_cast<std::uint32_t>(plan.a)),
                                                        nodes_.Get(static_cast<std::uint32_t>(plan.b)));
    ends_.emplace_back();
    losses_.emplace_back();
    for (std::size_t end = 0; end < ends.size(); ++end) {
        const std::int32_t owner = ends[end], peer = ends[1 - end];
        const Device device =
            ns3::DynamicCast<ns3::PointToPointNetDevice>(made.Get(static_cast<std::uint32_t>(end)));
        const Device other =
            ns3::DynamicCast<ns3::PointToPointNetDevice>(made.Get(static_cast<std::uint32_t>(1 - end)));
        set_rate(device, plan.rate_bps);
        ends_.back()[end] = device;
        const ns3::Ptr<ns3::Node> node = nodes_.Get(static_cast<std::uint32_t>(owner));
        const ns3::Ptr<ns3::QueueDisc> disc = make_disc(owner, plan, device);
        const ns3::Ptr<ns3::Ipv4> ipv4 = node->GetObject<ns3::Ipv4>();
        const std::uint32_t interface = ipv4->AddInterface(device);
        ipv4->AddAddress(interface, ns3::Ipv4InterfaceAddress(address_of(owner), ns3::Ipv4Mask(kMask)));
        ipv4->SetUp(interface);
        ipv4->SetForwarding(interface, switches_.count(owner) > 0);
        meters_.push_back(std::make_unique<LinkMeter>(owner, peer, plan.rate_bps, overhead));
        meters_.back()->watch(device, disc);
        if (plan.loss > 0) {
            const ns3::Ptr<ns3::RateErrorModel> errors = ns3::CreateObject<ns3::RateErrorModel>();
            errors->SetUnit(ns3::RateErrorModel::ERROR_UNIT_PACKET);
            errors->SetRate(plan.loss);
            other->SetReceiveErrorModel(errors);
            losses_.back()[1 - end] = errors;
        }
        if (plan.loss > 0 || changes) meters_.back()->watch_losses(other);
        if (!switches_.count(owner)) watch_host(owner, device, disc);
        if (settings.has("PCAP"))
            helper.EnablePcap(
                settings.word("PCAP") + "/" + std::to_string(owner) + "-" + std::to_string(peer) + ".pcap",
                device, false, true);
        neighbours_[static_cast<std::size_t>(owner)].push_back({peer, device, place});
    }
}

ns3::Ptr<ns3::QueueDisc> Network::make_disc(std::int32_t owner, const LinkPlan& plan, Device device) const {
    const bool in_switch = switches_.count(owner) > 0;
    const std::string kind = settings.word(in_switch ? "SWITCH_DISC" : "HOST_DISC");
    const std::uint64_t mtu = settings.number("MTU"), buffer = settings.number("BUFFER");
    const std::uint64_t packets = in_switch ? buffer / mtu : settings.number("HOST_PACKETS");
    ns3::ObjectFactory factory;
    if (kind == "fifo") {
        factory.SetTypeId("ns3::FifoQueueDisc");
        factory.Set("MaxSize", ns3::QueueSizeValue(in_switch ? bytes_of(buffer) : packets_of(packets)));
    } else if (kind == "fq-codel") {
        factory.SetTypeId("ns3::FqCoDelQueueDisc");
        factory.Set("MaxSize", ns3::QueueSizeValue(packets_of(packets)));
    } else if (kind == "red") {
        const bool step = plan.mark_bytes > 0;
        factory.SetTypeId("ns3::RedQueueDisc");
        factory.Set("MaxSize", ns3::QueueSizeValue(bytes_of(buffer)));
        factory.Set("MeanPktSize", ns3::UintegerValue(mtu));
        factory.Set("LinkBandwidth", ns3::DataRateValue(ns3::DataRate(plan.rate_bps)));
        factory.Set("LinkDelay", ns3::TimeValue(ns3::PicoSeconds(plan.delay_ps)));
        factory.Set("UseEcn", ns3::BooleanValue(settings.number("ECN") != 0));
        factory.Set("UseHardDrop", ns3::BooleanValue(settings.number("ECN") == 0));
        const std::uint64_t low = step ? plan.mark_bytes : settings.number("RED_MIN");
        const std::uint64_t high = step ? plan.mark_bytes : settings.number("RED_MAX");
        factory.Set("MinTh", ns3::DoubleValue(static_cast<double>(low)));
        factory.Set("MaxTh", ns3::DoubleValue(static_cast<double>(high)));
        if (step) {  // marks depend on the instantaneous queue, as for DCTCP
            factory.Set("QW", ns3::DoubleValue(1));
            factory.Set("Gentle", ns3::BooleanValue(false));
        }
    } else {
        throw std::runtime_error("there is no queue disc '" + kind + "'");
    }
    const ns3::Ptr<ns3::QueueDisc> disc = factory.Create<ns3::QueueDisc>();
    device->GetNode()->GetObject<ns3::TrafficControlLayer>()->SetRootQueueDiscOnDevice(device, disc);
    return disc;
}

void Network::name_nodes() {
    for (std::int32_t node = 0; node < count_; ++node) {
        const auto ipv4 = nodes_.Get(static_cast<std::uint32_t>(node))->GetObject<ns3::Ipv4>();
        ns3::DynamicCast<FlowRouting>(ipv4->GetRoutingProtocol())
            ->set_own(
                address_of(node), switches_.count(node) > 0,
                static_cast<std::uint32_t>(settings.number("SEED") << 20) + static_cast<std::uint32_t>(node));
    }
}

// Return the distance in hops of every node from the host, over links that are up; -1 if there is no
// path. Hosts do not forward packets.
std::vector<std::int32_t> Network::hops_to(std::int32_t host) const {
    std::vector<std::int32_t> hops(static_cast<std::size_t>(count_), -1);
    std::deque<std::int32_t> border{host};
    hops[static_cast<std::size_t>(host)] = 0;
    while (!border.empty()) {
        const std::int32_t node = border.front();
        border.pop_front();
        if (node != host && !switches_.count(node)) continue;
        for (const Way& way : neighbours_[static_cast<std::size_t>(node)]) {
            if (down_[way.link] || hops[static_cast<std::size_t>(way.peer)] >= 0) continue;
            hops[static_cast<std::size_t>(way.peer)] = hops[static_cast<std::size_t>(node)] + 1;
            border.push_back(way.peer);
        }
    }
    return hops;
}

// Set the routes of all nodes to all shortest paths (by hops) to every host. A node without a path
// keeps its old route; its segments are lost on a link that is down, and retransmitted.
void Network::make_routes() {
    for (const std::int32_t host : hosts_) {
        const std::vector<std::int32_t> hops = hops_to(host);
        for (std::int32_t node = 0; node < count_; ++node) {
            const std::int32_t away = hops[static_cast<std::size_t>(node)];
            if (away <= 0) continue;
            std::vector<ns3::Ptr<ns3::NetDevice>> ways;
            for (const Way& way : neighbours_[static_cast<std::size_t>(node)])
                if (!down_[way.link] && hops[static_cast<std::size_t>(way.peer)] == away - 1 &&
                    (way.peer == host || switches_.count(way.peer)))
                    ways.push_back(way.device);
            const auto ipv4 = nodes_.Get(static_cast<std::uint32_t>(node))->GetObject<ns3::Ipv4>();
            ns3::DynamicCast<FlowRouting>(ipv4->GetRoutingProtocol())->set(address_of(host), std::move(ways));
        }
    }
}

// Schedule link changes, with one event for all links that change at the same time, so that routes are
// recomputed only once.
void Network::schedule_changes() {
    for (std::size_t first = 0, end = 0; first < changes_.size(); first = end) {
        while (end < changes_.size() && changes_[end].time_ps == changes_[first].time_ps) ++end;
        ns3::Simulator::Schedule(ns3::PicoSeconds(changes_[first].time_ps), &Network::change, this, first,
                                 end);
    }
}

void Network::change(std::size_t first, std::size_t end) {
    bool other_ways = false;
    for (std::size_t place = first; place < end; ++place) {
        const auto [time_ps, link, rate_bps] = changes_[place];
        const bool down = rate_bps == 0;
        if (down != down_[link]) {
            other_ways = true;
            down_[link] = down;
            lose_all(link, down);
        }
        for (std::size_t side = 0; side < 2 && !down; ++side) {
            set_rate(ends_[link][side], rate_bps);
            meters_[2 * link + side]->set_rate(rate_bps);
        }
    }
    if (other_ways) make_routes();
}

// Let a link lose all packets while the link is down, including packets in flight when the link goes
// down.
void Network::lose_all(std::size_t link, bool lost) {
    for (std::size_t side = 0; side < 2; ++side) {
        ns3::Ptr<ns3::ErrorModel> model = losses_[link][side];
        if (lost) {
            const ns3::Ptr<ns3::RateErrorModel> all = ns3::CreateObject<ns3::RateErrorModel>();
            all->SetUnit(ns3::RateErrorModel::ERROR_UNIT_PACKET);
            all->SetRate(1);
            model = all;
        }
        ends_[link][side]->SetReceiveErrorModel(model);
    }
}

std::vector<const LinkMeter*> Network::links() {
    std::vector<const LinkMeter*> answer;
    for (const auto& meter : meters_) {
        meter->settle();
        answer.push_back(meter.get());
    }
    return answer;
}

std::vector<MonitoredFlow> Network::monitored() {
    std::vector<MonitoredFlow> answer;
    if (!monitor_) return answer;
    const ns3::Ptr<ns3::FlowMonitor> monitor = monitor_->GetMonitor();
    monitor->CheckForLostPackets();
    const auto classifier = ns3::DynamicCast<ns3::Ipv4FlowClassifier>(monitor_->GetClassifier());
    for (const auto& [id, seen] : monitor->GetFlowStats()) {
        const ns3::Ipv4FlowClassifier::FiveTuple ends = classifier->FindFlow(id);
        answer.push_back({node_of(ends.sourceAddress), node_of(ends.destinationAddress), ends.sourcePort,
                          ends.destinationPort, seen.txPackets, seen.rxPackets, seen.txBytes, seen.rxBytes,
                          seen.lostPackets, seen.delaySum.GetNanoSeconds(), seen.jitterSum.GetNanoSeconds()});
    }
    if (settings.has("FLOW_MONITOR_FILE"))
        monitor->SerializeToXmlFile(settings.word("FLOW_MONITOR_FILE"), false, true);
    return answer;
}

}  // namespace chakrascope::tcp
