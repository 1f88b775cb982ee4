// The interface of networks, and the mailbox that matches sends with receives.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "../config.h"
#include "../event_queue.h"
#include "../fabric/report.h"
#include "message_map.h"

namespace chakrascope::engine {

// The pair of ranks between which a message physically travels.
struct Route {
    std::int32_t source;
    std::int32_t destination;
};

struct LinkUse {
    std::int32_t source;
    std::int32_t destination;
    std::uint64_t bytes = 0;
    Time busy = 0;
    Time queued = 0;
    std::uint64_t messages = 0;
};

// The message that ASTRA-sim's congestion-unaware network undercharges most. The two ranks of the
// message differ in several dimensions, but the network charges only the lowest of these dimensions.
struct Undercharged {
    Route route{};
    std::uint64_t size = 0;
    Time charged = 0;
    Time whole = 0;  // time of the message if every dimension is charged; 0: no message is undercharged
};

class Gpus;

// The interface of networks. A network carries a message from its source to its destination, and then
// notifies the mailbox.
class Network {
  public:
    virtual ~Network() = default;
    virtual void carry(std::uint32_t message) = 0;
    // Return the time of a message on a network without queues; nullopt on all other networks.
    virtual std::optional<Time> delay(Route, std::uint64_t) const { return std::nullopt; }
    virtual const std::vector<LinkUse>& links() const = 0;
    // Return the report of a fabric model; null for all other networks.
    virtual const FabricReport* report() const { return nullptr; }
    // Whether the run stopped because packet trains distorted the congestion marks that senders
    // react to.
    virtual bool misled_by_trains() const { return false; }
    // Return the most undercharged message of a network that charges only one dimension; null for other
    // networks.
    virtual const Undercharged* undercharged() const { return nullptr; }
    // Return the GPUs of the GPU model; null for all other networks.
    virtual Gpus* gpus() { return nullptr; }
};

// Matches messages with receives by arrival, as in ASTRA-sim's packet-level networks. Only the number
// of bytes that arrive between two ranks under one tag is counted. Receives consume these bytes in the
// order in which the receives were posted.
class ArrivedBytes {
  public:
    // Consume the bytes of the key if the bytes have arrived; otherwise, `received` runs at their
    // arrival.
    bool take(const MessageKey& key, Callback received);
    // Count the bytes of an arrived message, and run the callbacks of receives that are now complete.
    void add(const MessageKey& key);

  private:
    static constexpr std::uint32_t kNone = 0xFFFFFFFF;

    struct Awaited {
        std::uint64_t size;
        Callback received;
        std::uint32_t next = kNone;
    };
    struct Account {
        std::uint64_t bytes = 0;
        std::uint32_t first = kNone;  // index of the first awaited message
        std::uint32_t last = kNone;
    };

    std::uint32_t keep(const Awaited& awaited);

    MessageMap<Account> accounts_;
    std::vector<Awaited> awaited_;
    std::vector<std::uint32_t> free_;  // free indices of `awaited_`
};

// Matches the k-th send of a key with the k-th receive of the same key, except in the mode that
// reproduces ASTRA-sim's packet-level networks. At any time, only sends or only receives of a key are
// unmatched, so each key needs only one list of unmatched messages.
class Mailbox {
  public:
    Mailbox(const Config& config, EventQueue& events);

    // Send a message now. `delivered` runs when the message reaches its destination, even if no receive
    // has been posted. A message sent in line leaves after earlier in-line messages on the same
    // path, even on a network without queues.
    void send(const MessageKey& key, Route route, Callback delivered, bool in_line = false);
    // Receive a message. `received` runs when the message arrives, or later in this tick if the message
    // has already arrived.
    void receive(const MessageKey& key, Callback received);
    // Send a message that waits for a request from its receiver. The request queues behind messages
    // that the receiver is sending to the sender.
    void send_on_request(const MessageKey& key, Route route, Callback delivered, bool in_line = false);
    void receive_on_request(const MessageKey& key, Callback received);

    // Process a message at its destination; called by the network.
    void arrived(std::uint64_t message);
    // Callbacks of networks in which each rank has a separate mailbox: `delivered` reports that a message
    // of this mailbox has reached its destination, and `came` reports a message from another rank.
    void delivered(std::uint64_t message);
    void came(const MessageKey& key);
    const MessageKey& key(std::uint32_t message) const { return messages_[message].key; }
    // Whether a callback is registered for the delivery of the message.
    bool is_awaited(std::uint32_t message) const { return bool(messages_[message].delivered); }
    // Whether the message is a request for another message from its destination (see
    // `receive_on_request`).
    bool is_request(std::uint32_t message) const { return messages_[message].request; }
    Route route(std::uint32_t message) const { return messages_[message].route; }
    std::uint64_t size(std::uint32_t message) const { return messages_[message].key.size; }
    Network& network() { return *network_; }
    // Return the send time of the message that is arriving, or the current time if no message is
    // arriving.
    Time begun() const { return begun_ == kNow ? events_.now() : begun_; }

  private:
    static constexpr std::uint32_t kNone = 0xFFFFFFFF;
    static constexpr Time kNow = ~Time{0};
    struct Message {
        MessageKey key;
        Route route{};
        Callback delivered;
        Callback received;
        Time begun = 0;    // time at which the message was sent
        Time awaited = 0;  // time since which `received` has been waiting
        Origin receiver;   // the origin of the receiver's event
        bool sent = false;
        bool there = false;
        bool request = false;
        std::uint32_t next = kNone;
    };
    struct Unmatched {
        std::uint32_t first = kNone;
        std::uint32_t last = kNone;
    };
    struct Meeting {  // one side of a rendezvous, with the action that follows the control message
        MessageKey key;
        Callback callback;
        std::uint64_t number = 0;  // number of the message in its stream
        bool in_line = false;
    };
    struct Request {
        std::uint64_t behind;  // number of the previous message in its stream
        std::uint32_t message;
    };
    struct Stream {  // the messages in flight from one rank to another
        std::uint64_t begun = 0;
        std::set<std::uint64_t> in_flight;
        std::deque<Request> requests;
        Time free = 0;  // time at which the last in-line message has left
    };

    std::uint32_t posted(const MessageKey& key, Route route, Callback delivered);
    Stream& stream(std::int32_t source, std::int32_t destination);
    void requested(std::uint64_t meeting);
    void passed(std::uint64_t meeting);
    Meeting take(std::uint64_t meeting);
    void post_send(const MessageKey& key, Route route, Callback delivered, Time not_before = 0);
    Time line_up(Route route, std::uint64_t size);
    void depart(std::uint64_t message);
    void post_receive(const MessageKey& key, Callback received);
    void meet_send(std::uint64_t meeting);
    void meet_receive(std::uint64_t meeting);
    std::uint64_t keep(MessageKey key, Callback callback);
    bool take_arrived(const MessageKey& key, Callback received);
    std::uint32_t create(const MessageKey& key);
    void hand_over(std::uint32_t message, Callback received);
    std::uint32_t match(const MessageKey& key, bool sending);
    void release(std::uint32_t message);

    EventQueue& events_;
    Time begun_ = kNow;
    const bool rendezvous_;
    const bool cuts_;                // whether sizes are truncated to 32 bits, as in ASTRA-sim
    const Time message_cost_;        // time for which each message occupies its sender
    const bool matches_by_arrival_;  // whether matching is by arrival; otherwise by the order of issue
    const bool separate_;            // whether each rank has a separate mailbox
    ArrivedBytes arrived_bytes_;
    std::unique_ptr<Network> network_;
    std::vector<Message> messages_;
    std::vector<Time> sender_free_;  // by rank
    std::vector<std::uint32_t> free_;
    MessageMap<Unmatched> unmatched_;
    std::vector<Meeting> meetings_;
    std::vector<std::uint64_t> free_meetings_;
    std::map<std::pair<std::int32_t, std::int32_t>, Stream> streams_;  // streams by source and destination
};

std::unique_ptr<Network> make_unaware_network(const Config& config, EventQueue& events, Mailbox& mailbox);
std::unique_ptr<Network> make_aware_network(const Config& config, EventQueue& events, Mailbox& mailbox);
std::unique_ptr<Network> make_flow_network(const Config& config, EventQueue& events, Mailbox& mailbox);
std::unique_ptr<Network> make_gpu_network(const Config& config, EventQueue& events, Mailbox& mailbox);
std::unique_ptr<Network> make_external_network(const Config& config, EventQueue& events, Mailbox& mailbox);
std::unique_ptr<Network> make_packet_network(const Config& config, EventQueue& events, Mailbox& mailbox);

// Convert a bandwidth in units of 2^30 bytes per second to bytes per nanosecond.
inline double bytes_per_ns(double bandwidth) { return bandwidth * 1073741824.0 / 1000000000.0; }

}  // namespace chakrascope::engine
