// SPDX-License-Identifier: GPL-2.0-only
#include "cubic.h"

#include <ns3/simulator.h>

#include <algorithm>

namespace chakrascope::tcp {
namespace {

// The parameters of hybrid slow start in Linux.
constexpr std::uint32_t kLowWindow = 16;  // segments below which slow start continues
constexpr std::uint32_t kSamples = 8;
constexpr std::int64_t kTrainGapUs = 2'000;
constexpr std::int64_t kLeastDelayUs = 4'000;
constexpr std::int64_t kMostDelayUs = 16'000;

}  // namespace

ns3::TypeId HostCubic::GetTypeId() {
    static const ns3::TypeId id =
        ns3::TypeId("chakrascope::tcp::HostCubic").SetParent<ns3::TcpCubic>().AddConstructor<HostCubic>();
    return id;
}

ns3::Ptr<ns3::TcpCongestionOps> HostCubic::Fork() { return ns3::CopyObject<HostCubic>(this); }

void HostCubic::PktsAcked(ns3::Ptr<ns3::TcpSocketState> state, std::uint32_t segments,
                          const ns3::Time& smoothed) {
    ns3::TcpCubic::PktsAcked(state, segments, smoothed);
    look_for_the_end(*state);
}

void HostCubic::CongestionStateSet(ns3::Ptr<ns3::TcpSocketState> state,
                                   const ns3::TcpSocketState::TcpCongState_t now) {
    ns3::TcpCubic::CongestionStateSet(state, now);
    if (now != ns3::TcpSocketState::CA_LOSS) return;
    begun_ = found_ = false;
    shortest_ = {};
}

// Check for the end of slow start. Slow start ends if round-trip times increase. Slow start also ends
// if the acknowledgements of one window arrive over half a round-trip time, because the window then
// fills the path.
void HostCubic::look_for_the_end(ns3::TcpSocketState& state) {
    const ns3::Time now = ns3::Simulator::Now(), sample = state.m_lastRtt.Get();
    if (!sample.IsStrictlyPositive()) return;
    if (shortest_.IsZero() || sample < shortest_) shortest_ = sample;
    if (!begun_ || state.m_lastAckedSeq > round_end_) {
        begun_ = true;
        round_end_ = state.m_highTxMark.Get();
        round_start_ = last_ack_ = now;
        round_shortest_ = ns3::Time::Max();
        samples_ = 0;
    }
    const std::uint32_t window = state.m_cWnd.Get();
    if (found_ || window > state.m_ssThresh.Get() || window < kLowWindow * state.m_segmentSize) return;
    if (now - last_ack_ <= ns3::MicroSeconds(kTrainGapUs)) {
        last_ack_ = now;
        found_ = now - round_start_ > shortest_ / 2;
    }
    if (samples_ < kSamples) {
        round_shortest_ = std::min(round_shortest_, sample);
        ++samples_;
    } else {
        const ns3::Time longer =
            std::clamp(shortest_ / 8, ns3::MicroSeconds(kLeastDelayUs), ns3::MicroSeconds(kMostDelayUs));
        found_ = found_ || round_shortest_ > shortest_ + longer;
    }
    if (found_) state.m_ssThresh = window;
}

}  // namespace chakrascope::tcp
