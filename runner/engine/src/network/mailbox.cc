// Matches sends with receives, and implements the rendezvous protocol.
#include <algorithm>
#include <array>

#include "network.h"

namespace chakrascope::engine {
namespace {
constexpr std::uint64_t kControlBytes = 8192;
constexpr std::uint64_t kRequestBytes = 64;
constexpr std::int64_t kControlTags = 1'000'000'000;

// Return the size of a rendezvous message as in ASTRA-sim, which stores the size in a signed 32-bit
// integer. ASTRA-sim aborts if this integer is not positive; in that case, the size is returned
// unchanged.
std::uint64_t cut(std::uint64_t size) {
    const auto left = static_cast<std::int32_t>(static_cast<std::uint32_t>(size));
    return left > 0 ? static_cast<std::uint64_t>(left) : size;
}

MessageKey without_size(MessageKey key) {
    key.size = 0;
    return key;
}
}  // namespace

bool ArrivedBytes::take(const MessageKey& key, Callback received) {
    const std::size_t place = accounts_.find_or_add(without_size(key)).first;
    Account& account = accounts_[place];
    if (account.first != kNone || account.bytes < key.size) {
        const std::uint32_t awaited = keep({key.size, received});
        (account.first == kNone ? account.first : awaited_[account.last].next) = awaited;
        account.last = awaited;
        return false;
    }
    account.bytes -= key.size;
    if (account.bytes == 0) accounts_.erase(place);
    return true;
}

std::uint32_t ArrivedBytes::keep(const Awaited& awaited) {
    if (free_.empty()) {
        awaited_.push_back(awaited);
        return static_cast<std::uint32_t>(awaited_.size() - 1);
    }
    const std::uint32_t place = free_.back();
    free_.pop_back();
    awaited_[place] = awaited;
    return place;
}

void ArrivedBytes::add(const MessageKey& key) {
    const MessageKey pair = without_size(key);
    std::size_t place = accounts_.find_or_add(pair).first;
    accounts_[place].bytes += key.size;
    // A completed receive may post another receive, which may complete immediately. The account of the
    // pair of ranks is therefore looked up in each iteration.
    for (; place != MessageMap<Account>::kNone; place = accounts_.find(pair)) {
        Account& account = accounts_[place];
        if (account.first == kNone || account.bytes < awaited_[account.first].size) return;
        const Awaited first = awaited_[account.first];
        free_.push_back(account.first);
        account.first = first.next;
        account.bytes -= first.size;
        if (account.bytes == 0 && account.first == kNone) accounts_.erase(place);
        first.received();
    }
}

Mailbox::Mailbox(const Config& config, EventQueue& events)
    : events_(events),
      rendezvous_(config.rendezvous),
      cuts_(config.semantics == Semantics::AstraSim),
      message_cost_(config.message_cost_ns),
      matches_by_arrival_(config.has_clock_of_its_own() && config.semantics == Semantics::AstraSim),
      separate_(static_cast<bool>(config.network_between)) {
    if (config.network_between) {
        network_ = config.network_between(events, *this);
    } else if (config.gpu) {
        network_ = make_gpu_network(config, events, *this);
    } else if (config.external_network) {
        network_ = make_external_network(config, events, *this);
    } else {
        constexpr std::array make{make_unaware_network, make_aware_network, make_flow_network,
                                  make_packet_network};
        network_ = make[static_cast<std::size_t>(config.network_model)](config, events, *this);
    }
}

void Mailbox::send(const MessageKey& key, Route route, Callback delivered, bool in_line) {
    if (!rendezvous_) return post_send(key, route, delivered, in_line ? line_up(route, key.size) : 0);
    const MessageKey control{key.tag + kControlTags, key.destination, key.source, kControlBytes, key.range};
    post_receive(control, bind<&Mailbox::meet_send>(this, keep(key, delivered)));
}

void Mailbox::receive(const MessageKey& key, Callback received) {
    if (!rendezvous_) return post_receive(key, received);
    const MessageKey control{key.tag + kControlTags, key.destination, key.source, kControlBytes, key.range};
    post_send(control, {control.source, control.destination},
              bind<&Mailbox::meet_receive>(this, keep(key, received)));
}

void Mailbox::meet_send(std::uint64_t meeting) {
    const Meeting waiting = take(meeting);
    post_send(waiting.key, {waiting.key.source, waiting.key.destination}, waiting.callback);
}

void Mailbox::meet_receive(std::uint64_t meeting) {
    const Meeting waiting = take(meeting);
    post_receive(waiting.key, waiting.callback);
}

Mailbox::Meeting Mailbox::take(std::uint64_t meeting) {
    free_meetings_.push_back(meeting);
    return meetings_[meeting];
}

void Mailbox::send_on_request(const MessageKey& key, Route route, Callback delivered, bool in_line) {
    const MessageKey request{key.tag + kControlTags, route.destination, route.source, kRequestBytes,
                             key.range};
    const std::uint64_t meeting = keep(key, delivered);
    meetings_[meeting].in_line = in_line;
    const Callback leave = bind<&Mailbox::requested>(this, meeting);
    // If a request has already arrived, the message leaves before other messages of the same tick.
    if (take_arrived(request, leave)) leave();
}

void Mailbox::receive_on_request(const MessageKey& key, Callback received) {
    post_receive(key, received);
    const MessageKey request{key.tag + kControlTags, key.destination, key.source, kRequestBytes, key.range};
    const std::uint32_t place = posted(request, {request.source, request.destination}, {});
    messages_[place].request = true;
    if (separate_) return network_->carry(place);  // a real connection keeps messages in order
    Stream& ahead = stream(request.source, request.destination);
    if (ahead.in_flight.empty()) return network_->carry(place);
    ahead.requests.push_back({ahead.begun, place});
}

void Mailbox::requested(std::uint64_t meeting) {
    const Meeting waiting = take(meeting);
    if (separate_) {
        post_send(waiting.key, {waiting.key.source, waiting.key.destination}, {});
        if (waiting.callback) events_.at(events_.now(), waiting.callback);
        return;
    }
    Stream& own = stream(waiting.key.source, waiting.key.destination);
    own.in_flight.insert(++own.begun);
    const std::uint64_t arrives = keep(waiting.key, {});
    meetings_[arrives].number = own.begun;
    const Route route{waiting.key.source, waiting.key.destination};
    post_send(waiting.key, route, bind<&Mailbox::passed>(this, arrives),
              waiting.in_line ? line_up(route, waiting.key.size) : 0);
    // Once the mailbox has passed a message to the network, the send is complete for the sender.
    if (waiting.callback) events_.at(events_.now(), waiting.callback);
}

// Return the time at which a message of this size leaves, if it queues behind the in-line messages of
// the same path.
Time Mailbox::line_up(Route route, std::uint64_t size) {
    const auto whole = network_->delay(route, size);
    if (!whole) return 0;  // the network has queues
    Time& free = stream(route.source, route.destination).free;
    const Time leaves = std::max(events_.now(), free);
    free = leaves + *whole - *network_->delay(route, 0);
    return leaves;
}

// Process the arrival of a control message, and of requests that directly followed it.
void Mailbox::passed(std::uint64_t meeting) {
    const Meeting waiting = take(meeting);
    Stream& own = stream(waiting.key.source, waiting.key.destination);
    own.in_flight.erase(waiting.number);
    std::vector<std::uint32_t> come;
    while (!own.requests.empty() &&
           (own.in_flight.empty() || own.requests.front().behind < *own.in_flight.begin())) {
        come.push_back(own.requests.front().message);
        own.requests.pop_front();
    }
    for (const std::uint32_t request : come) arrived(request);
}

Mailbox::Stream& Mailbox::stream(std::int32_t source, std::int32_t destination) {
    return streams_[{source, destination}];
}

std::uint64_t Mailbox::keep(MessageKey key, Callback callback) {
    if (rendezvous_ && cuts_) key.size = cut(key.size);
    if (free_meetings_.empty()) {
        meetings_.push_back({key, callback});
        return meetings_.size() - 1;
    }
    const std::uint64_t place = free_meetings_.back();
    free_meetings_.pop_back();
    meetings_[place] = {key, callback};
    return place;
}

std::uint32_t Mailbox::create(const MessageKey& key) {
    std::uint32_t place = 0;
    if (free_.empty()) {
        place = static_cast<std::uint32_t>(messages_.size());
        messages_.emplace_back();
    } else {
        place = free_.back();
        free_.pop_back();
        messages_[place] = Message{};
    }
    messages_[place].key = key;
    return place;
}

// Return the oldest unmatched message with this key from the other side, or queue a new message for the
// other side.
std::uint32_t Mailbox::match(const MessageKey& key, bool sending) {
    const auto [entry, created] = unmatched_.find_or_add(key);
    Unmatched& list = unmatched_[entry];
    if (!created && messages_[list.first].sent != sending) {
        const std::uint32_t found = list.first;
        list.first = messages_[found].next;
        if (list.first == kNone) unmatched_.erase(entry);
        return found;
    }
    const std::uint32_t fresh = create(key);
    if (created) {
        list.first = fresh;
    } else {
        messages_[list.last].next = fresh;
    }
    list.last = fresh;
    return fresh;
}

std::uint32_t Mailbox::posted(const MessageKey& key, Route route, Callback delivered) {
    const std::uint32_t place = matches_by_arrival_ || separate_ ? create(key) : match(key, true);
    messages_[place].sent = true;
    messages_[place].begun = events_.now();
    messages_[place].route = route;
    messages_[place].delivered = delivered;
    return place;
}

void Mailbox::post_send(const MessageKey& key, Route route, Callback delivered, Time not_before) {
    const std::uint32_t place = posted(key, route, delivered);
    Time leaves = std::max(events_.now(), not_before);
    if (message_cost_ > 0) {
        const auto sender = static_cast<std::size_t>(route.source);
        if (sender_free_.size() <= sender) sender_free_.resize(sender + 1);
        sender_free_[sender] = std::max(sender_free_[sender], leaves) + message_cost_;
        leaves = sender_free_[sender];
    }
    if (leaves == events_.now()) return network_->carry(place);
    events_.at(leaves, bind<&Mailbox::depart>(this, place));
}

void Mailbox::depart(std::uint64_t place) { network_->carry(static_cast<std::uint32_t>(place)); }

void Mailbox::post_receive(const MessageKey& key, Callback received) {
    if (!take_arrived(key, received)) return;
    if (matches_by_arrival_) return received();
    events_.at(events_.now(), received);
}

// Return whether the message has arrived. If the message has not arrived, `received` runs at its
// arrival.
bool Mailbox::take_arrived(const MessageKey& key, Callback received) {
    if (matches_by_arrival_) return arrived_bytes_.take(key, received);
    const std::uint32_t place = match(key, false);
    Message& message = messages_[place];
    const bool there = message.there;
    if (there) {
        release(place);
    } else {
        message.received = received;
        message.awaited = events_.now();
        message.receiver = events_.origin();
    }
    return there;
}

void Mailbox::arrived(std::uint64_t place) {
    const Callback delivered = messages_[place].delivered;
    if (matches_by_arrival_) {
        const MessageKey key = messages_[place].key;
        release(static_cast<std::uint32_t>(place));
        if (delivered) delivered();
        return arrived_bytes_.add(key);
    }
    const Callback received = messages_[place].received;
    if (!received) messages_[place].there = true;
    begun_ = messages_[place].begun;
    if (delivered) delivered();
    if (received) hand_over(static_cast<std::uint32_t>(place), received);
    begun_ = kNow;
}

void Mailbox::hand_over(std::uint32_t place, Callback received) {
    // A receive that is posted in the tick in which its message arrives has not waited, regardless of
    // the order of the two events.
    const Origin sender = events_.origin();
    if (messages_[place].awaited == events_.now()) events_.set_origin(messages_[place].receiver);
    received();
    release(place);
    events_.set_origin(sender);
}

void Mailbox::delivered(std::uint64_t place) {
    const Callback done = messages_[place].delivered;
    release(static_cast<std::uint32_t>(place));
    if (done) done();
}

void Mailbox::came(const MessageKey& key) {
    const std::uint32_t place = match(key, true);
    Message& message = messages_[place];
    const Callback received = message.received;
    if (!received) {
        message.sent = message.there = true;
        return;
    }
    release(place);
    received();
}

void Mailbox::release(std::uint32_t message) { free_.push_back(message); }

}  // namespace chakrascope::engine
