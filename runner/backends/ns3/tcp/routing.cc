// SPDX-License-Identifier: GPL-2.0-only
#include "routing.h"

#include <ns3/ipv4-route.h>
#include <ns3/output-stream-wrapper.h>

#include <array>
#include <utility>

#include "wire.h"

namespace chakrascope::tcp {
namespace {

constexpr std::uint32_t kPortBytes = 4;

// Return a hash of the value: the 64-bit finalizer of MurmurHash3, in which each input bit flips half
// of the output bits on average.
std::uint64_t mixed(std::uint64_t value) {
    value ^= value >> 33;
    value *= 0xff51afd7ed558ccdull;
    value ^= value >> 33;
    value *= 0xc4ceb9fe1a85ec53ull;
    return value ^ (value >> 33);
}

}  // namespace

ns3::TypeId FlowRouting::GetTypeId() {
    static const ns3::TypeId id = ns3::TypeId("chakrascope::tcp::FlowRouting")
                                      .SetParent<ns3::Ipv4RoutingProtocol>()
                                      .AddConstructor<FlowRouting>();
    return id;
}

void FlowRouting::set_own(ns3::Ipv4Address address, bool forwards, std::uint32_t salt) {
    own_ = address;
    forwards_ = forwards;
    salt_ = salt;
}

void FlowRouting::set(ns3::Ipv4Address host, std::vector<ns3::Ptr<ns3::NetDevice>> ways) {
    ways_[host.Get()] = std::move(ways);
}

ns3::Ptr<ns3::Ipv4Route> FlowRouting::RouteOutput(ns3::Ptr<ns3::Packet> packet, const ns3::Ipv4Header& header,
                                                  ns3::Ptr<ns3::NetDevice>, ns3::Socket::SocketErrno& error) {
    const ns3::Ptr<ns3::Ipv4Route> found = route(ns3::PeekPointer(packet), header);
    error = found ? ns3::Socket::ERROR_NOTERROR : ns3::Socket::ERROR_NOROUTETOHOST;
    return found;
}

bool FlowRouting::RouteInput(ns3::Ptr<const ns3::Packet> packet, const ns3::Ipv4Header& header,
                             ns3::Ptr<const ns3::NetDevice> in, Input::At<3> forward, Input::At<4>,
                             Input::At<5> deliver, Input::At<6> fail) {
    if (header.GetDestination() == own_) {
        deliver(packet, header, static_cast<std::uint32_t>(ipv4_->GetInterfaceForDevice(in)));
        return true;
    }
    const ns3::Ptr<ns3::Ipv4Route> found = forwards_ ? route(ns3::PeekPointer(packet), header) : nullptr;
    if (!found) {
        fail(packet, header, ns3::Socket::ERROR_NOROUTETOHOST);
        return false;
    }
    forward(found, packet, header);
    return true;
}

void FlowRouting::PrintRoutingTable(ns3::Ptr<ns3::OutputStreamWrapper> stream, ns3::Time::Unit) const {
    for (const auto& [host, ways] : ways_)
        *stream->GetStream() << ns3::Ipv4Address(host) << ": " << ways.size() << " ways\n";
}

ns3::Ptr<ns3::Ipv4Route> FlowRouting::route(const ns3::Packet* packet, const ns3::Ipv4Header& header) const {
    const auto found = ways_.find(header.GetDestination().Get());
    if (found == ways_.end()) return nullptr;
    const auto& ways = found->second;
    const ns3::Ptr<ns3::Ipv4Route> route = ns3::Create<ns3::Ipv4Route>();
    route->SetDestination(header.GetDestination());
    route->SetGateway(header.GetDestination());
    route->SetSource(own_);
    route->SetOutputDevice(ways[ways.size() == 1 ? 0 : choice(packet, header, ways.size())]);
    return route;
}

// Return the index of the path for a segment, from a hash of its addresses and ports. All segments of
// one direction of a connection take the same path.
std::size_t FlowRouting::choice(const ns3::Packet* packet, const ns3::Ipv4Header& header,
                                std::size_t ways) const {
    std::uint64_t ports = 0;
    if (packet && header.GetProtocol() == kTcp && packet->GetSize() >= kPortBytes) {
        std::array<std::uint8_t, kPortBytes> bytes{};
        packet->CopyData(bytes.data(), kPortBytes);
        for (const std::uint8_t byte : bytes) ports = ports << 8 | byte;
    }
    const std::uint64_t ends = std::uint64_t{header.GetSource().Get()} << 32 | header.GetDestination().Get();
    return mixed(mixed(mixed(ends) ^ ports) ^ salt_) % ways;
}

}  // namespace chakrascope::tcp
