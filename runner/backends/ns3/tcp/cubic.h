// SPDX-License-Identifier: GPL-2.0-only
// ns-3's Cubic with the hybrid slow start of current Linux. The hybrid slow start of ns-3 checks a
// train of acknowledgements before it detects a new round. At round-trip times below 2 ms, ns-3
// therefore ends every slow start at 16 segments.
#pragma once

#include <ns3/tcp-cubic.h>

#include <cstdint>

namespace chakrascope::tcp {

class HostCubic final : public ns3::TcpCubic {
  public:
    static ns3::TypeId GetTypeId();

    void PktsAcked(ns3::Ptr<ns3::TcpSocketState> state, std::uint32_t segments,
                   const ns3::Time& smoothed) override;
    void CongestionStateSet(ns3::Ptr<ns3::TcpSocketState> state,
                            const ns3::TcpSocketState::TcpCongState_t now) override;
    ns3::Ptr<ns3::TcpCongestionOps> Fork() override;

  private:
    void look_for_the_end(ns3::TcpSocketState& state);

    bool begun_ = false;
    bool found_ = false;
    ns3::SequenceNumber32 round_end_{0};
    ns3::Time round_start_;
    ns3::Time last_ack_;
    ns3::Time shortest_;        // round-trip time of the connection; 0: none yet
    ns3::Time round_shortest_;  // shortest round-trip time of the first acknowledgements of this round
    std::uint32_t samples_ = 0;
};

}  // namespace chakrascope::tcp
