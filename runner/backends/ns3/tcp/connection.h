// SPDX-License-Identifier: GPL-2.0-only
// A TCP connection between two hosts, and its messages. Both directions share a connection, and
// messages queue.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <unordered_map>

#include "socket.h"

namespace chakrascope::tcp {

// One direction of a connection. Messages are consecutive byte ranges of a stream. A message is
// complete when its last byte has been received.
class Stream {
  public:
    using Complete = std::function<void(std::uint64_t message)>;

    explicit Stream(Complete complete) : complete_(std::move(complete)) {}

    void send(std::uint64_t message, std::uint64_t bytes);
    // Set the two ends of the stream, when the connection is established.
    void set_sender(ns3::Ptr<HostSocket> socket);
    void set_receiver(ns3::Ptr<HostSocket> socket);
    bool ready() const { return sender_ && receiver_; }
    // Return the number of retransmitted segments of each message with retransmissions.
    const std::unordered_map<std::uint64_t, std::uint64_t>& retransmissions() const {
        return retransmissions_;
    }

  private:
    struct Message {
        std::uint64_t id;
        std::uint64_t end;  // offset of the message's end in the stream
    };

    void write();
    void room(ns3::Ptr<ns3::Socket>, std::uint32_t) { write(); }
    void read(ns3::Ptr<ns3::Socket> socket);
    void sent_again(std::uint64_t before_end);

    const Complete complete_;
    ns3::Ptr<HostSocket> sender_;
    ns3::Ptr<HostSocket> receiver_;
    std::deque<Message> in_flight_;
    std::deque<Message> recent_;  // messages in flight, and messages that may still be retransmitted
    std::unordered_map<std::uint64_t, std::uint64_t> retransmissions_;
    std::uint64_t requested_ = 0;
    std::uint64_t written_ = 0;
    std::uint64_t received_ = 0;
};

struct Connection {
    Connection(std::int32_t low, std::int32_t high, const Stream::Complete& complete)
        : low(low), high(high), up(complete), down(complete) {}

    bool ready() const { return up.ready() && down.ready(); }
    Stream& from(std::int32_t host) { return host == low ? up : down; }

    const std::int32_t low;
    const std::int32_t high;
    Stream up;    // from the lower to the higher host number
    Stream down;  // from the higher to the lower host number
    bool opened = false;
};

}  // namespace chakrascope::tcp
