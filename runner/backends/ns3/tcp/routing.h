// SPDX-License-Identifier: GPL-2.0-only
// Static routes, which choose among equal-cost paths per connection, as real switches do. The routing
// of ns-3 chooses per packet, or always takes the first path.
#pragma once

#include <ns3/ipv4-routing-helper.h>
#include <ns3/ipv4-routing-protocol.h>
#include <ns3/ipv4.h>
#include <ns3/net-device.h>

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace chakrascope::tcp {

// The parameter types of a member function. ns-3 3.37 passes the callbacks of routing by value, and
// later versions pass them by reference.
template <class>
struct Parameters;
template <class Result, class Class, class... Types>
struct Parameters<Result (Class::*)(Types...)> {
    template <std::size_t place>
    using At = std::tuple_element_t<place, std::tuple<Types...>>;
};

// The routing table of a node, with the interfaces on shortest paths to every host.
class FlowRouting final : public ns3::Ipv4RoutingProtocol {
  public:
    static ns3::TypeId GetTypeId();

    void set_own(ns3::Ipv4Address address, bool forwards, std::uint32_t salt);
    // Set the devices over which packets to a host are routed.
    void set(ns3::Ipv4Address host, std::vector<ns3::Ptr<ns3::NetDevice>> ways);

    ns3::Ptr<ns3::Ipv4Route> RouteOutput(ns3::Ptr<ns3::Packet> packet, const ns3::Ipv4Header& header,
                                         ns3::Ptr<ns3::NetDevice> out,
                                         ns3::Socket::SocketErrno& error) override;

    using Input = Parameters<decltype(&ns3::Ipv4RoutingProtocol::RouteInput)>;
    bool RouteInput(ns3::Ptr<const ns3::Packet> packet, const ns3::Ipv4Header& header,
                    ns3::Ptr<const ns3::NetDevice> in, Input::At<3> forward, Input::At<4> multicast,
                    Input::At<5> deliver, Input::At<6> fail) override;

    void NotifyInterfaceUp(std::uint32_t) override {}
    void NotifyInterfaceDown(std::uint32_t) override {}
    void NotifyAddAddress(std::uint32_t, ns3::Ipv4InterfaceAddress) override {}
    void NotifyRemoveAddress(std::uint32_t, ns3::Ipv4InterfaceAddress) override {}
    void SetIpv4(ns3::Ptr<ns3::Ipv4> ipv4) override { ipv4_ = ipv4; }
    void PrintRoutingTable(ns3::Ptr<ns3::OutputStreamWrapper> stream, ns3::Time::Unit unit) const override;

  private:
    ns3::Ptr<ns3::Ipv4Route> route(const ns3::Packet* packet, const ns3::Ipv4Header& header) const;
    std::size_t choice(const ns3::Packet* packet, const ns3::Ipv4Header& header, std::size_t ways) const;

    ns3::Ptr<ns3::Ipv4> ipv4_;
    ns3::Ipv4Address own_;
    bool forwards_ = false;
    std::uint32_t salt_ = 0;
    std::unordered_map<std::uint32_t, std::vector<ns3::Ptr<ns3::NetDevice>>> ways_;
};

// Creates an empty routing table for every node.
class FlowRoutingHelper final : public ns3::Ipv4RoutingHelper {
  public:
    ns3::Ipv4RoutingHelper* Copy() const override { return new FlowRoutingHelper(*this); }
    ns3::Ptr<ns3::Ipv4RoutingProtocol> Create(ns3::Ptr<ns3::Node>) const override {
        return ns3::CreateObject<FlowRouting>();
    }
};

}  // namespace chakrascope::tcp
