// SPDX-License-Identifier: GPL-2.0-only
#include "meter.h"

#include <ns3/callback.h>
#include <ns3/simulator.h>

#include <algorithm>

namespace chakrascope::tcp {
namespace {

constexpr double kPsPerS = 1e12;

std::int64_t now_ps() { return ns3::Simulator::Now().GetPicoSeconds(); }

}  // namespace

void SendHistory::add(std::int64_t time_ps, std::uint64_t count) {
    while (time_ps / width_ps >= static_cast<std::int64_t>(kStretches)) {
        for (std::size_t i = 0; i < kStretches / 2; ++i) bytes[i] = bytes[2 * i] + bytes[2 * i + 1];
        std::fill(bytes.begin() + kStretches / 2, bytes.end(), 0);
        width_ps *= 2;
    }
    bytes[static_cast<std::size_t>(time_ps / width_ps)] += count;
}

void LinkMeter::restart(std::int64_t start_ps) {
    start_ps_ = changed_ps_ = start_ps;
    bytes = packets = drops = marks = largest_queue_bytes = 0;
    busy_ps = queued_ps = 0;
    history = {};
}

void LinkMeter::watch(ns3::Ptr<ns3::PointToPointNetDevice> device, ns3::Ptr<ns3::QueueDisc> disc) {
    disc_ = disc;
    device->TraceConnectWithoutContext("PhyTxBegin", ns3::MakeCallback(&LinkMeter::sending, this));
    disc->TraceConnectWithoutContext("Enqueue", ns3::MakeCallback(&LinkMeter::queued, this));
    disc->TraceConnectWithoutContext("DropBeforeEnqueue", ns3::MakeCallback(&LinkMeter::refused, this));
    disc->TraceConnectWithoutContext("DropAfterDequeue", ns3::MakeCallback(&LinkMeter::dropped, this));
    disc->TraceConnectWithoutContext("Mark", ns3::MakeCallback(&LinkMeter::marked, this));
}

void LinkMeter::watch_losses(ns3::Ptr<ns3::PointToPointNetDevice> peer) {
    peer->TraceConnectWithoutContext("PhyRxDrop", ns3::MakeCallback(&LinkMeter::lost, this));
}

void LinkMeter::settle() { wait(0); }

void LinkMeter::sending(ns3::Ptr<const ns3::Packet> packet) {
    const std::uint64_t size = packet->GetSize() + overhead_;
    bytes += size;
    ++packets;
    busy_ps +=
        static_cast<std::int64_t>(static_cast<double>(size) * 8 * kPsPerS / static_cast<double>(rate_bps_));
    history.add(now_ps() - start_ps_, size);
    wait(-1);
}

void LinkMeter::queued(ns3::Ptr<const ns3::QueueDiscItem>) {
    wait(1);
    largest_queue_bytes = std::max<std::uint64_t>(largest_queue_bytes, disc_->GetNBytes());
}

void LinkMeter::refused(ns3::Ptr<const ns3::QueueDiscItem>, const char*) { ++drops; }

void LinkMeter::dropped(ns3::Ptr<const ns3::QueueDiscItem>, const char*) {
    ++drops;
    wait(-1);
}

void LinkMeter::marked(ns3::Ptr<const ns3::QueueDiscItem>, const char*) { ++marks; }

void LinkMeter::lost(ns3::Ptr<const ns3::Packet>) { ++drops; }

void LinkMeter::wait(std::int64_t change) {
    const std::int64_t now = now_ps();
    queued_ps += waiting_ * (now - changed_ps_);
    changed_ps_ = now;
    waiting_ += change;
}

}  // namespace chakrascope::tcp
