// Messages between ranks: matching of sends with receives, and the networks that carry them.
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

// The ranks a message really travels between.
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

class Gpus;

// Carries a message from its source to its destination and then tells the mailbox.
class Network {
  public:
    virtual ~Network() = default;
    virtual void carry(std::uint32_t message) = 0;
    // How long a message takes where none keeps another waiting; nothing on all other networks.
    virtual std::optional<Time> delay(Route, std::uint64_t) const { return std::nullopt; }
    virtual const std::vector<LinkUse>& links() const = 0;
    // What the models of a fabric tell beside; null for the others.
    virtual const FabricReport* report() const { return nullptr; }
    // Whether senders would heed marks that depend on trains of packets, so that it stopped.
    virtual bool misled_by_trains() const { return false; }
    // The GPUs whose network it is; null for all other networks.
    virtual Gpus* gpus() { return nullptr; }
};

// Matching by arrival, as in ASTRA-sim's packet-level networks: of what arrives between two ranks under one
// tag only the bytes are counted, and the receives take theirs in the order in which they were posted.
class ArrivedBytes {
  public:
    // Take the bytes of the key if they are there already; else `received` runs once they are.
    bool take(const MessageKey& key, Callback received);
    // Count a message that arrived, and run the receives that it completes.
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
        std::uint32_t first = kNone;  // of those awaited
        std::uint32_t last = kNone;
    };

    std::uint32_t keep(const Awaited& awaited);

    MessageMap<Account> accounts_;
    std::vector<Awaited> awaited_;
    std::vector<std::uint32_t> free_;  // places among these
};

// The k-th send of a key meets the k-th receive of the same key, unless ASTRA-sim's packet-level networks are
// repeated. At most one side of a key is ahead of the other, so each key needs only one list of unmatched
// messages.
class Mailbox {
  public:
    Mailbox(const Config& config, EventQueue& events);

    // Send now; `delivered` runs when the message is at its destination, whether or not it is received.
    // What is sent in line leaves behind what went the same way in line before, also where the network lets
    // no message wait for another.
    void send(const MessageKey& key, Route route, Callback delivered, bool in_line = false);
    // Receive; `received` runs at the arrival, or later in this tick when the message is already there.
    void receive(const MessageKey& key, Callback received);
    // The same where a message waits for its receiver's request: it comes in order, behind the messages that
    // the receiver is sending to the sender.
    void send_on_request(const MessageKey& key, Route route, Callback delivered, bool in_line = false);
    void receive_on_request(const MessageKey& key, Callback received);

    // The network's report that a message is at its destination.
    void arrived(std::uint64_t message);
    // The reports of a network whose ranks each have a mailbox of their own: that a message sent here is at
    // its destination, and that one of that key came from its source.
    void delivered(std::uint64_t message);
    void came(const MessageKey& key);
    const MessageKey& key(std::uint32_t message) const { return messages_[message].key; }
    // Whether anything waits for the message to be delivered.
    bool is_awaited(std::uint32_t message) const { return bool(messages_[message].delivered); }
    // Whether the message asks its destination for another one, see `receive_on_request`.
    bool is_request(std::uint32_t message) const { return messages_[message].request; }
    Route route(std::uint32_t message) const { return messages_[message].route; }
    std::uint64_t size(std::uint32_t message) const { return messages_[message].key.size; }
    Network& network() { return *network_; }
    // When the message was sent that arrives now; without one, now.
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
        Origin receiver;   // what led to that
        bool sent = false;
        bool there = false;
        bool request = false;
        std::uint32_t next = kNone;
    };
    struct Unmatched {
        std::uint32_t first = kNone;
        std::uint32_t last = kNone;
    };
    struct Meeting {  // both halves of a rendezvous keep what to do once the control message is through
        MessageKey key;
        Callback callback;
        std::uint64_t number = 0;  // of the message in its stream
        bool in_line = false;
    };
    struct Request {
        std::uint64_t behind;  // the message of its stream that it follows
        std::uint32_t message;
    };
    struct Stream {  // what is on its way from one rank to another
        std::uint64_t begun = 0;
        std::set<std::uint64_t> under_way;
        std::deque<Request> requests;
        Time free = 0;  // when the last message in line has left
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
    const bool cuts_;                // to 32 bits, as ASTRA-sim does
    const Time message_cost_;        // keeps the sender busy before each message
    const bool matches_by_arrival_;  // else in the order of issue
    const bool apart_;               // each rank has a mailbox of its own
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

// Bytes per nanosecond of a bandwidth given in units of 2^30 bytes per second.
inline double bytes_per_ns(double bandwidth) { return bandwidth * 1073741824.0 / 1000000000.0; }

}  // namespace chakrascope::engine
