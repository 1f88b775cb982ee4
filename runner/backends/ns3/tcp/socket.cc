// SPDX-License-Identifier: GPL-2.0-only
#include "socket.h"

#include <ns3/node.h>
#include <ns3/object-factory.h>
#include <ns3/rtt-estimator.h>
#include <ns3/simulator.h>
#include <ns3/tcp-congestion-ops.h>
#include <ns3/tcp-l4-protocol.h>
#include <ns3/tcp-prr-recovery.h>
#include <ns3/tcp-socket-state.h>
#include <ns3/tcp-tx-buffer.h>

#include <algorithm>

#include "cubic.h"

namespace chakrascope::tcp {
namespace {

// Linux's sk_pacing_shift: a host queues about a millisecond of data at the current rate of a
// connection.
constexpr double kHostQueueS = 1.0 / 1024;
constexpr double kSlowStartGain = 2.0;
constexpr double kAvoidanceGain = 1.2;
constexpr double kLargestBurst = 65536;  // bytes per call of the network card's driver
constexpr std::uint32_t kFewestSegments = 4;

}  // namespace

ns3::TypeId HostSocket::GetTypeId() {
    static const ns3::TypeId id = ns3::TypeId("chakrascope::tcp::HostSocket")
                                      .SetParent<ns3::TcpSocketBase>()
                                      .AddConstructor<HostSocket>();
    return id;
}

ns3::Ptr<HostSocket> HostSocket::make(ns3::Ptr<ns3::Node> node, const std::string& control,
                                      const Habits& habits) {
    const ns3::Ptr<ns3::TcpL4Protocol> protocol = node->GetObject<ns3::TcpL4Protocol>();
    HostCubic::GetTypeId();  // registers the type name with ns-3
    ns3::ObjectFactory factory;
    factory.SetTypeId(control);
    const ns3::Ptr<HostSocket> socket = ns3::CreateObject<HostSocket>();
    socket->habits_ = habits;
    socket->SetNode(node);
    socket->SetTcp(protocol);
    socket->SetRtt(ns3::CreateObject<ns3::RttMeanDeviation>());
    socket->SetCongestionControlAlgorithm(factory.Create<ns3::TcpCongestionOps>());
    socket->SetRecoveryAlgorithm(ns3::CreateObject<ns3::TcpPrrRecovery>());
    protocol->AddSocket(socket);
    return socket;
}

ns3::Ptr<ns3::TcpSocketBase> HostSocket::Fork() { return ns3::CopyObject<HostSocket>(this); }

// Reduce the congestion window after an idle time, like Linux's tcp_cwnd_restart. The window is halved
// for each timeout that has passed, but not below the initial window.
void HostSocket::about_to_send() {
    const bool quiet = m_txBuffer->Size() == 0;
    const ns3::Time idle = ns3::Simulator::Now() - last_sent_;
    const ns3::Time timeout = m_rto.Get();
    if (!habits_.slow_start_after_idle || !quiet || idle <= timeout) return;
    if (m_congestionControl->HasCongControl()) return;  // BBR has its own handling of idle times
    const std::uint32_t initial = m_tcb->m_initialCWnd * m_tcb->m_segmentSize;
    std::uint32_t window = m_tcb->m_cWnd;
    const std::uint32_t floor = std::min(initial, window);
    m_tcb->m_ssThresh = std::max<std::uint32_t>(m_tcb->m_ssThresh, window / 4 * 3);
    for (ns3::Time rest = idle - timeout; rest.IsStrictlyPositive() && window > floor; rest -= timeout)
        window /= 2;
    m_tcb->m_cWnd = m_tcb->m_cWndInfl = std::max(window, floor);
}

void HostSocket::left_host(std::uint32_t bytes) {
    unsent_bytes_ -= std::min<std::uint64_t>(bytes, unsent_bytes_);
    // Resume sending in a separate event, like the interrupt of a network card.
    if (throttled_ && unsent_bytes_ < most_unsent_bytes() && resuming_.IsExpired())
        resuming_ = ns3::Simulator::ScheduleNow(&HostSocket::resume, this);
}

void HostSocket::resume() {
    throttled_ = false;
    if (m_state == ESTABLISHED || m_state == CLOSE_WAIT) SendPendingData(m_connected);
}

// Return the limit of TCP small queues. A sender stops while its host has queued this many bytes of the
// connection.
std::uint64_t HostSocket::most_unsent_bytes() const {
    const double round_s = m_rtt->GetNSamples() > 0 ? m_rtt->GetEstimate().GetSeconds() : 0;
    if (round_s <= 0) return habits_.most_unsent_bytes;
    const double window = m_tcb->m_cWnd;
    const double gain = m_tcb->m_cWnd < m_tcb->m_ssThresh / 2 ? kSlowStartGain : kAvoidanceGain;
    const double share = gain * window / round_s * kHostQueueS;
    const double least =
        std::max<double>(kFewestSegments * m_tcb->m_segmentSize, 2 * std::min(kLargestBurst, share));
    return std::min(habits_.most_unsent_bytes, static_cast<std::uint64_t>(std::max(least, share)));
}

std::uint32_t HostSocket::AvailableWindow() const {
    if (habits_.most_unsent_bytes && unsent_bytes_ >= most_unsent_bytes()) {
        throttled_ = true;
        return 0;
    }
    return ns3::TcpSocketBase::AvailableWindow();
}

std::uint32_t HostSocket::SendDataPacket(ns3::SequenceNumber32 sequence, std::uint32_t most, bool ack) {
    const bool again = sequence < m_tcb->m_highTxMark.Get();
    ++habits_.totals->segments;
    if (again) {
        ++habits_.totals->retransmissions;
        if (retransmitted_) retransmitted_(static_cast<std::uint64_t>(m_txBuffer->TailSequence() - sequence));
    }
    last_sent_ = ns3::Simulator::Now();
    // The segment is counted before it is sent, because it may leave the host during the call.
    const std::uint32_t expected = std::min(most, m_txBuffer->SizeFromSequence(sequence));
    unsent_bytes_ += expected;
    const std::uint32_t sent = ns3::TcpSocketBase::SendDataPacket(sequence, most, ack);
    unsent_bytes_ -= std::min<std::uint64_t>(expected - std::min(sent, expected), unsent_bytes_);
    return sent;
}

void HostSocket::ReTxTimeout() {
    if (m_state == ESTABLISHED && m_txBuffer->Size() > 0) ++habits_.totals->timeouts;
    ns3::TcpSocketBase::ReTxTimeout();
}

}  // namespace chakrascope::tcp
