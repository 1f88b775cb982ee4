// SPDX-License-Identifier: GPL-2.0-only
// ns-3's TCP socket with two features of Linux that determine how senders behave on fast networks:
// TCP small queues, and slow start after idle.
#pragma once

#include <ns3/tcp-socket-base.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace chakrascope::tcp {

struct SenderTotals {
    std::uint64_t segments = 0;  // segments with data, including retransmissions
    std::uint64_t retransmissions = 0;
    std::uint64_t timeouts = 0;
};

class HostSocket final : public ns3::TcpSocketBase {
  public:
    struct Habits {
        // The limit on a connection's bytes in its own host's queue; 0: none.
        std::uint64_t most_unsent_bytes = 0;
        bool slow_start_after_idle = true;
        SenderTotals* totals = nullptr;
    };

    static ns3::TypeId GetTypeId();
    static ns3::Ptr<HostSocket> make(ns3::Ptr<ns3::Node> node, const std::string& control,
                                     const Habits& habits);

    // Reduce the congestion window before new data is sent after an idle time, as Linux does.
    void about_to_send();
    // Record bytes of data that have left the host or were dropped in the host.
    void left_host(std::uint32_t bytes);
    // Set a callback for each retransmitted segment. The argument of the callback is the distance of
    // the segment's first byte from the end of the written data.
    void on_retransmission(std::function<void(std::uint64_t)> callback) {
        retransmitted_ = std::move(callback);
    }

  protected:
    ns3::Ptr<ns3::TcpSocketBase> Fork() override;
    std::uint32_t AvailableWindow() const override;
    std::uint32_t SendDataPacket(ns3::SequenceNumber32 sequence, std::uint32_t most, bool ack) override;
    void ReTxTimeout() override;

  private:
    std::uint64_t most_unsent_bytes() const;
    void resume();

    Habits habits_;
    std::uint64_t unsent_bytes_ = 0;  // data bytes in the queues of this host
    mutable bool throttled_ = false;
    std::function<void(std::uint64_t)> retransmitted_;
    ns3::Time last_sent_;
    ns3::EventId resuming_;
};

}  // namespace chakrascope::tcp
