// The network between ranks in separate processes, connected to the mailbox of one rank.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "../network/network.h"
#include "transport.h"

namespace chakrascope::engine {

// A message that this rank sent. Times are ns from the start, or -1 until the event has happened.
struct SentMessage {
    std::int32_t peer = -1;
    std::int32_t path = -1;
    std::uint64_t bytes = 0;
    std::int64_t tag = 0;
    std::int64_t posted_ns = -1;  // when its algorithm or node posted the message
    std::int64_t begun_ns = -1;   // when its first byte was passed to the network
    std::int64_t sent_ns = -1;    // when its last byte was passed to the network
};

// A received message, identified by its peer and its number among the messages of the peer.
struct ReceivedMessage {
    std::int32_t peer = -1;
    std::int32_t path = -1;
    std::uint64_t number = 0;
    std::int64_t begun_ns = -1;
    std::int64_t received_ns = -1;
};

// The log of messages of one rank.
struct Traffic {
    std::vector<SentMessage> sent;  // messages by their numbers
    std::vector<ReceivedMessage> received;
    bool waiting = false;  // whether the rank has sent all its messages, and only waits for others
};

class EmulatedNetwork final : public Network {
  public:
    // Create a network with time 0 at `start` of the monotonic clock. A finished rank continues to
    // receive messages until the event queue is stopped.
    EmulatedNetwork(EventQueue& events, Mailbox& mailbox, emulation::Transport& transport, std::int32_t rank,
                    emulation::Time start, Traffic& traffic);

    void carry(std::uint32_t message) override;
    const std::vector<LinkUse>& links() const override { return links_; }

  private:
    bool advance(std::int64_t limit);
    bool take_in();
    void note(const emulation::Event& event);
    void came(std::uint64_t arrival);
    void answered(std::uint64_t message);
    void passed(std::uint64_t message);
    std::int64_t since_start(emulation::Time time) const;
    std::uint64_t hold(const MessageKey& key);

    EventQueue& events_;
    Mailbox& mailbox_;
    emulation::Transport& transport_;
    const std::int32_t rank_;
    const emulation::Time start_;
    Traffic& traffic_;
    std::unordered_map<std::uint64_t, std::uint32_t> awaited_;  // slot in the mailbox, by message number
    std::vector<MessageKey> arrivals_;
    std::vector<std::uint64_t> free_;
    std::vector<emulation::Event> happened_;
    std::int64_t served_ = -1;  // the tick before which the transport was last called
    std::vector<LinkUse> links_;
};

}  // namespace chakrascope::engine
