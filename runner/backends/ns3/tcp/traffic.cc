// SPDX-License-Identifier: GPL-2.0-only
// Runs the simulated network: opens connections, sends messages, and advances time.
#include <ns3/inet-socket-address.h>
#include <ns3/ipv4-queue-disc-item.h>
#include <ns3/node.h>
#include <ns3/simulator.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "network.h"
#include "wire.h"

namespace chakrascope::tcp {
namespace {

constexpr std::uint16_t kPort = 5000;
constexpr std::int64_t kPsPerNs = 1000;
constexpr std::uint32_t kTcpStart = 13;  // bytes of a TCP header up to its length field

using AcceptCallback = ns3::Callback<void, ns3::Ptr<ns3::Socket>, const ns3::Address&>;
using AskCallback = ns3::Callback<bool, ns3::Ptr<ns3::Socket>, const ns3::Address&>;
using SocketCallback = ns3::Callback<void, ns3::Ptr<ns3::Socket>>;
using FrameCallback = ns3::Callback<void, ns3::Ptr<const ns3::Packet>>;
using DropCallback = ns3::Callback<void, ns3::Ptr<const ns3::QueueDiscItem>, const char*>;

// Run the simulation until it is stopped, and return whether any event ran.
bool go_on() {
    const std::uint64_t before = ns3::Simulator::GetEventCount();
    ns3::Simulator::Run();
    return ns3::Simulator::GetEventCount() != before;
}

std::uint64_t socket_key(std::uint32_t peer, std::uint16_t own_port, std::uint16_t peer_port) {
    return std::uint64_t{peer} << 32 | std::uint64_t{own_port} << 16 | peer_port;
}

std::uint32_t big_endian(const std::uint8_t* bytes, int count) {
    std::uint32_t value = 0;
    for (int i = 0; i < count; ++i) value = value << 8 | bytes[i];
    return value;
}

// Return the key of the connection and the number of data bytes of a segment, from the first bytes of
// the segment.
std::pair<std::uint64_t, std::uint32_t> read_segment(std::uint32_t peer, const std::uint8_t* bytes,
                                                     std::uint32_t size) {
    const auto own = static_cast<std::uint16_t>(big_endian(bytes, 2));
    const auto other = static_cast<std::uint16_t>(big_endian(bytes + 2, 2));
    const std::uint32_t header = std::uint32_t{bytes[12]} >> 4 << 2;
    return {socket_key(peer, own, other), size - std::min(header, size)};
}

}  // namespace

void Network::listen(std::int32_t host) {
    const ns3::Ptr<HostSocket> socket =
        HostSocket::make(nodes_.Get(static_cast<std::uint32_t>(host)), settings.word("CONTROL"), habits_);
    socket->Bind(ns3::InetSocketAddress(ns3::Ipv4Address::GetAny(), kPort));
    socket->Listen();
    socket->SetAcceptCallback(
        AskCallback([](ns3::Ptr<ns3::Socket>, const ns3::Address&) { return true; }),
        AcceptCallback([this, host](ns3::Ptr<ns3::Socket> made, const ns3::Address& peer) {
            accept(host, made, peer);
        }));
    listeners_.push_back(socket);
}

void Network::watch_host(std::int32_t host, Device device, ns3::Ptr<ns3::QueueDisc> disc) {
    device->TraceConnectWithoutContext(
        "PhyTxEnd",
        FrameCallback([this, host](ns3::Ptr<const ns3::Packet> frame) { left_host(host, frame); }));
    const DropCallback dropped(
        [this, host](ns3::Ptr<const ns3::QueueDiscItem> item, const char*) { dropped_in_host(host, item); });
    disc->TraceConnectWithoutContext("DropBeforeEnqueue", dropped);
    disc->TraceConnectWithoutContext("DropAfterDequeue", dropped);
}

std::vector<std::unique_ptr<Connection>>& Network::between(std::int32_t low, std::int32_t high) {
    auto& found = connections_[{low, high}];
    while (found.size() < settings.number("CONNECTIONS"))
        found.push_back(
            std::make_unique<Connection>(low, high, [this](std::uint64_t message) { complete(message); }));
    return found;
}

// Open a connection. The host with the higher number connects to the host with the lower number.
void Network::open(Connection& connection) {
    connection.opened = true;
    const ns3::Ptr<HostSocket> socket = HostSocket::make(
        nodes_.Get(static_cast<std::uint32_t>(connection.high)), settings.word("CONTROL"), habits_);
    socket->Bind();
    Connection* const kept = &connection;
    socket->SetConnectCallback(
        SocketCallback([this, kept](ns3::Ptr<ns3::Socket> made) {
            kept->down.set_sender(ns3::DynamicCast<HostSocket>(made));
            ns3::Simulator::Stop();
        }),
        SocketCallback([kept](ns3::Ptr<ns3::Socket>) {
            throw std::runtime_error("host " + std::to_string(kept->high) + " cannot connect to host " +
                                     std::to_string(kept->low) + ": its segments are lost again and again");
        }));
    connection.up.set_receiver(socket);
    socket->Connect(ns3::InetSocketAddress(address_of(connection.low), kPort));
    ns3::Address own;
    socket->GetSockName(own);
    opening_[{connection.high, ns3::InetSocketAddress::ConvertFrom(own).GetPort()}] = kept;
    remember(connection.high, socket);
}

void Network::accept(std::int32_t host, ns3::Ptr<ns3::Socket> made, const ns3::Address& peer) {
    const ns3::InetSocketAddress from = ns3::InetSocketAddress::ConvertFrom(peer);
    const auto found = opening_.find({node_of(from.GetIpv4()), from.GetPort()});
    if (found == opening_.end()) throw std::runtime_error("a connection came from nowhere");
    const ns3::Ptr<HostSocket> socket = ns3::DynamicCast<HostSocket>(made);
    found->second->down.set_receiver(socket);
    found->second->up.set_sender(socket);
    opening_.erase(found);
    remember(host, socket);
    ns3::Simulator::Stop();
}

void Network::remember(std::int32_t host, ns3::Ptr<HostSocket> socket) {
    ns3::Address own, peer;
    socket->GetSockName(own);
    socket->GetPeerName(peer);
    const auto there = ns3::InetSocketAddress::ConvertFrom(peer);
    sockets_[static_cast<std::size_t>(host)][socket_key(
        there.GetIpv4().Get(), ns3::InetSocketAddress::ConvertFrom(own).GetPort(), there.GetPort())] =
        ns3::PeekPointer(socket);
    socket->SetCloseCallbacks(SocketCallback([](ns3::Ptr<ns3::Socket>) {}),
                              SocketCallback([host](ns3::Ptr<ns3::Socket>) {
                                  throw std::runtime_error("a connection of host " + std::to_string(host) +
                                                           " gave up: its segments are lost again and again");
                              }));
}

// Open all connections one after another, so that handshakes do not cause packet loss.
void Network::open_all() {
    for (std::size_t low = 0; low < hosts_.size(); ++low)
        for (std::size_t high = low + 1; high < hosts_.size(); ++high)
            for (const auto& connection : between(hosts_[low], hosts_[high])) {
                open(*connection);
                while (!connection->ready())
                    if (!go_on()) throw std::runtime_error("a connection does not open");
            }
}

void Network::send(std::uint64_t message, std::int32_t from, std::int32_t to, std::uint64_t bytes,
                   std::int64_t time_ps) {
    const auto is_host = [this](std::int32_t node) {
        return node >= 0 && node < count_ && !switches_.count(node);
    };
    if (!is_host(from) || !is_host(to) || from == to)
        throw std::runtime_error("a message goes from " + std::to_string(from) + " to " + std::to_string(to) +
                                 ", but must go from one host to another");
    ++outstanding_;
    const std::int64_t wait_ps = std::max<std::int64_t>(time_ps - now_ps(), 0);
    ns3::Simulator::Schedule(ns3::PicoSeconds(wait_ps), &Network::start, this, message, from, to, bytes);
}

void Network::start(std::uint64_t message, std::int32_t from, std::int32_t to, std::uint64_t bytes) {
    const auto& connections = between(std::min(from, to), std::max(from, to));
    Connection& connection = *connections[turns_[{from, to}]++ % connections.size()];
    if (!connection.opened) open(connection);
    connection.from(from).send(message, bytes + settings.number("MESSAGE_HEADER"));
}

void Network::complete(std::uint64_t message) {
    // Stop at the end of the current nanosecond, which is one instant for the caller, so that symmetric
    // hosts finish together.
    if (completions_.empty())
        ns3::Simulator::Schedule(ns3::PicoSeconds((kPsPerNs - now_ps() % kPsPerNs) % kPsPerNs),
                                 [] { ns3::Simulator::Stop(); });
    completions_.push_back({message, now_ps()});
    --outstanding_;
}

std::int64_t Network::now_ps() const { return ns3::Simulator::Now().GetPicoSeconds() - epoch_ps_; }

const std::vector<Completion>& Network::run(std::int64_t limit_ps) {
    completions_.clear();
    ns3::EventId limit;
    bool reached = false;
    if (limit_ps >= 0)
        limit = ns3::Simulator::Schedule(ns3::PicoSeconds(std::max<std::int64_t>(limit_ps - now_ps(), 0)),
                                         [&reached] {
                                             reached = true;
                                             ns3::Simulator::Stop();
                                         });
    else if (outstanding_ == 0)
        return completions_;
    // New connections also stop the simulation, so it is resumed until messages complete or the limit
    // is reached.
    while (completions_.empty() && !reached && go_on()) {
    }
    limit.Cancel();
    return completions_;
}

std::vector<std::pair<std::uint64_t, std::uint64_t>> Network::retransmissions() const {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> answer;
    for (const auto& [pair, connections] : connections_)
        for (const auto& connection : connections)
            for (const Stream* stream : {&connection->up, &connection->down})
                answer.insert(answer.end(), stream->retransmissions().begin(),
                              stream->retransmissions().end());
    std::sort(answer.begin(), answer.end());
    return answer;
}

void Network::left_host(std::int32_t host, ns3::Ptr<const ns3::Packet> frame) {
    std::array<std::uint8_t, kPppBytes + kIpBytes + kTcpStart> bytes{};
    if (frame->GetSize() <= bytes.size()) return;
    frame->CopyData(bytes.data(), bytes.size());
    if (bytes[kPppBytes + 9] != kTcp) return;
    const auto [key, data] =
        read_segment(big_endian(bytes.data() + kPppBytes + 16, 4), bytes.data() + kPppBytes + kIpBytes,
                     frame->GetSize() - kPppBytes - kIpBytes);
    if (data == 0) return;
    const auto found = sockets_[static_cast<std::size_t>(host)].find(key);
    if (found != sockets_[static_cast<std::size_t>(host)].end()) found->second->left_host(data);
}

void Network::dropped_in_host(std::int32_t host, ns3::Ptr<const ns3::QueueDiscItem> item) {
    const auto segment = ns3::DynamicCast<const ns3::Ipv4QueueDiscItem>(item);
    std::array<std::uint8_t, kTcpStart> bytes{};
    if (!segment || segment->GetHeader().GetProtocol() != kTcp ||
        item->GetPacket()->GetSize() <= bytes.size())
        return;
    item->GetPacket()->CopyData(bytes.data(), bytes.size());
    const auto [key, data] =
        read_segment(segment->GetHeader().GetDestination().Get(), bytes.data(), item->GetPacket()->GetSize());
    const auto found = sockets_[static_cast<std::size_t>(host)].find(key);
    if (data > 0 && found != sockets_[static_cast<std::size_t>(host)].end()) found->second->left_host(data);
}

}  // namespace chakrascope::tcp
