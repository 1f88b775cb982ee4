// Messages between ranks: the matching of sends with receives, and the interface of networks.
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

// The message that ASTRA-sim's congestion-unaware network undercharges most: its ranks differ in several
// dimensions, and the network charges the lowest one alone.
struct Undercharged {
    Route route{};
    std::uint64_t size = 0;
    Time charged = 0;
    Time whole = 0;  // the time with the latency and the bandwidth of every dimension; 0: no such message
};

class Gpus;

// Carries a message from its source to its destination and then notifies the mailbox.
class Network {
  public:
    virtual ~Network() = default;
    virtual void carry(std::uint32_t message) = 0;
    // How long a message takes on a network without queues; nothing on all other networks.
    virtual std::optional<Time> delay(Route, std::uint64_t) const { return std::nullopt; }
    virtual const std::vector<LinkUse>& links() const = 0;
    // The report of fabric models; null for other networks.
    virtual const FabricReport* report() const { return nullptr; }
    // Whether the run stopped because packet trains distorted the congestion marks that senders
    // react to.
    virtual bool misled_by_trains() const { return false; }
    // The worst message of a network that charges one dimension of several; null for other networks.
    virtual const Undercharged* undercharged() const { return nullptr; }
    // The GPUs that the network connects; null for all other networks.
    virtual Gpus* gpus() { return nullptr; }
};

// Matching by arrival, as in ASTRA-sim's packet-level networks: the bytes that arrive between two
// ranks under one tag are only counted, and the receives consume them in the order in which they
// were posted.
class ArrivedBytes {
  public:
    // Consume the bytes of the key if they have arrived; else `received` runs when they have.
    bool take(const MessageKey& key, Callback received);
    // Count an arrived message, and run the receives that it completes.
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
        std::uint32_t first = kNone;  // of the awaited messages
        std::uint32_t last = kNone;
    };

    std::uint32_t keep(const Awaited& awaited);

    MessageMap<Account> accounts_;
    std::vector<Awaited> awaited_;
    std::vector<std::uint32_t> free_;  // free indices of `awaited_`
};

// The k-th send of a key meets the k-th receive of the same key, except in the mode that repeats
// ASTRA-sim's packet-level networks. At most one side of a key is ahead of the other, so each key
// needs only one list of unmatched messages.
class Mailbox {
  public:
    Mailbox(const Config& config, EventQueue& events);

    // Send now; `delivered` runs when the message is at its destination, whether or not it is
    // received. A message sent in line leaves after the earlier in-line messages on the same path,
    // even on a network without queues.
    void send(const MessageKey& key, Route route, Callback delivered, bool in_line = false);
    // Receive; `received` runs at the arrival, or later in this tick if the message has already
    // arrived.
    void receive(const MessageKey& key, Callback received);
    // The same for a message that waits for its receiver's request, which queues behind the
    // messages that the receiver is sending to the sender.
    void send_on_request(const MessageKey& key, Route route, Callback delivered, bool in_line = false);
    void receive_on_request(const MessageKey& key, Callback received);

    // Called by the network when a message is at its destination.
    void arrived(std::uint64_t message);
    // Called by a network whose ranks each have their own mailbox: a message sent here is at its
    // destination, or a message of that key arrived from its source.
    void delivered(std::uint64_t message);
    void came(const MessageKey& key);
    const MessageKey& key(std::uint32_t message) const { return messages_[message].key; }
    // Whether a callback is registered for the delivery of the message.
    bool is_awaited(std::uint32_t message) const { return bool(messages_[message].delivered); }
    // Whether the message requests another one from its destination, see `receive_on_request`.
    bool is_request(std::uint32_t message) const { return messages_[message].request; }
    Route route(std::uint32_t message) const { return messages_[message].route; }
    std::uint64_t size(std::uint32_t message) const { return messages_[message].key.size; }
    Network& network() { return *network_; }
    // The send time of the message that is arriving; without one, now.
    Time begun() const { return begun_ == kNow ? events_.now() : begun_; }

  private:
    static constexpr std::uint32_t kNone = 0xFFFFFFFF;
    static constexpr Time kNow = ~Time{0};
    struct Message {
        MessageKey key;
        Route route{};
        Callback delivered;
        Callback received;
        Time begun = 0;    // when it was sent
        Time awaited = 0;  // since when `received` waits
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
    struct Meeting {  // both halves of a rendezvous store the actions that follow the control message
        MessageKey key;
        Callback callback;
        std::uint64_t number = 0;  // number of the message in its stream
        bool in_line = false;
    };
    struct Request {
        std::uint64_t behind;  // the previous message in its stream
        std::uint32_t message;
    };
    struct Stream {  // the messages in flight from one rank to another
        std::uint64_t begun = 0;
        std::set<std::uint64_t> under_way;
        std::deque<Request> requests;
        Time free = 0;  // when the last in-line message has left
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
    const bool cuts_;                // whether sizes are cut to 32 bits, as in ASTRA-sim
    const Time message_cost_;        // time for which each message occupies its sender
    const bool matches_by_arrival_;  // otherwise by the order of issue
    const bool apart_;               // each rank has its own mailbox
    ArrivedBytes arrived_bytes_;
    std::unique_ptr<Network> network_;
    std::vector<Message> messages_;
    std::vector<Time> sender_free_;  // by rank
    std::vector<std::uint32_t> free_;
    MessageMap<Unmatched> unmatched_;
    std::vector<Meeting> meetings_;
    std::vector<std::uint64_t> free_meetings_;
    std::map<std::pair<std::int32_t, std::int32_t>, Stream> streams_;  // by source and destination
};

std::unique_ptr<Network> make_unaware_network(const Config& config, EventQueue& events, Mailbox& mailbox);
std::unique_ptr<Network> make_aware_network(const Config& config, EventQueue& events, Mailbox& mailbox);
std::unique_ptr<Network> make_flow_network(const Config& config, EventQueue& events, Mailbox& mailbox);
std::unique_ptr<Network> make_gpu_network(const Config& config, EventQueue& events, Mailbox& mailbox);
std::unique_ptr<Network> make_external_network(const Config& config, EventQueue& events, Mailbox& mailbox);
std::unique_ptr<Network> make_packet_network(const Config& config, EventQueue& events, Mailbox& mailbox);

// Bytes per nanosecond, from a bandwidth in units of 2^30 bytes per second.
inline double bytes_per_ns(double bandwidth) { return bandwidth * 1073741824.0 / 1000000000.0; }

}  // namespace chakrascope::engine
