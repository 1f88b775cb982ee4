#include "network.h"

#include <algorithm>
#include <utility>

#include "clock.h"

namespace chakrascope::engine {
namespace {

using emulation::Header;
using emulation::kPatience;
using emulation::MessageKind;
using emulation::monotonic_ns;

}  // namespace

EmulatedNetwork::EmulatedNetwork(EventQueue& events, Mailbox& mailbox, emulation::Transport& transport,
                                 std::int32_t rank, emulation::Time start, Traffic& traffic)
    : events_(events),
      mailbox_(mailbox),
      transport_(transport),
      rank_(rank),
      start_(start),
      traffic_(traffic) {
    events_.set_clock(
        [this] { return static_cast<Time>(std::max<std::int64_t>(since_start(monotonic_ns()), 0)); });
    events_.set_source<&EmulatedNetwork::advance>(this);
}

std::int64_t EmulatedNetwork::since_start(emulation::Time time) const {
    return static_cast<std::int64_t>(time - start_);
}

void EmulatedNetwork::carry(std::uint32_t message) {
    const MessageKey& key = mailbox_.key(message);
    if (key.destination == rank_) {  // a message from a rank to itself bypasses the network
        events_.at(events_.now(), bind<&EmulatedNetwork::passed>(this, message));
        return;
    }
    const Origin origin = events_.origin();
    if (mailbox_.is_request(message)) {
        transport_.post(key.destination, {key.size, key.tag, 0, rank_, MessageKind::Request, origin.rank,
                                          origin.node, key.range});
        return mailbox_.delivered(message);
    }
    Header header{key.size,          key.tag,     traffic_.sent.size(), rank_,
                  MessageKind::Data, origin.rank, origin.node,          key.range};
    traffic_.sent.push_back({key.destination, -1, key.size, key.tag, since_start(monotonic_ns()), -1, -1});
    if (mailbox_.is_awaited(message)) {
        header.kind = MessageKind::Answered;
        awaited_.emplace(header.number, message);
    }
    transport_.post(key.destination, header);
    if (header.kind == MessageKind::Data) mailbox_.delivered(message);
}

// Wait until the limit, which is the time of the next tick. If there is no next tick (-1), wait for
// messages.
bool EmulatedNetwork::advance(std::int64_t limit) {
    for (;;) {
        const emulation::Time now = monotonic_ns();
        const bool due = limit >= 0 && limit <= since_start(now);
        if (due && std::exchange(served_, limit) == limit) return false;
        traffic_.waiting = limit < 0 && transport_.idle();
        if (!due && !events_.keep_going(static_cast<Time>(std::max<std::int64_t>(since_start(now), 0))))
            return false;
        emulation::Until until{due ? now : now + kPatience, false};
        if (limit >= 0 && !due) {
            const emulation::Time tick = start_ + static_cast<emulation::Time>(limit);
            if (tick <= until.at) until = {tick, true};
        }
        transport_.progress(until, happened_);
        const bool found = take_in();
        if (found || due) return found;
    }
}

// Turn notices of the transport into events, and return whether there were any notices.
bool EmulatedNetwork::take_in() {
    const Origin outer = events_.origin();
    bool found = false;
    for (const emulation::Event& event : happened_) {
        const Header& header = event.header;
        if (header.kind != MessageKind::Answer && header.kind != MessageKind::Request) note(event);
        if (event.kind == emulation::Event::Kind::Sent) continue;
        const Time now =
            std::max(events_.now(), static_cast<Time>(std::max<std::int64_t>(since_start(event.ended), 0)));
        events_.set_origin({header.origin_rank, header.origin_node});
        if (header.kind == MessageKind::Answer) {
            events_.at(now, bind<&EmulatedNetwork::answered>(this, header.number));
        } else {
            const MessageKey key{header.tag, header.source, rank_, header.size, header.range};
            events_.at(now, bind<&EmulatedNetwork::came>(this, hold(key)));
        }
        if (header.kind == MessageKind::Answered) {
            Header answer = header;
            answer.size = 0;
            answer.source = rank_;
            answer.kind = MessageKind::Answer;
            transport_.post(header.source, answer);
        }
        found = true;
    }
    happened_.clear();
    events_.set_origin(outer);
    return found;
}

void EmulatedNetwork::note(const emulation::Event& event) {
    const Header& header = event.header;
    const std::int64_t begun = since_start(event.begun), ended = since_start(event.ended);
    if (event.kind == emulation::Event::Kind::Came) {
        traffic_.received.push_back({header.source, event.path, header.number, begun, ended});
        return;
    }
    SentMessage& message = traffic_.sent[header.number];
    message.path = event.path;
    message.begun_ns = begun;
    message.sent_ns = ended;
}

void EmulatedNetwork::came(std::uint64_t arrival) {
    const MessageKey key = arrivals_[arrival];
    free_.push_back(arrival);
    mailbox_.came(key);
}

void EmulatedNetwork::answered(std::uint64_t number) {
    const auto entry = awaited_.find(number);
    if (entry == awaited_.end()) return;
    const std::uint32_t place = entry->second;
    awaited_.erase(entry);
    mailbox_.delivered(place);
}

void EmulatedNetwork::passed(std::uint64_t message) {
    const MessageKey key = mailbox_.key(static_cast<std::uint32_t>(message));
    mailbox_.delivered(message);
    mailbox_.came(key);
}

std::uint64_t EmulatedNetwork::hold(const MessageKey& key) {
    if (free_.empty()) {
        arrivals_.push_back(key);
        return arrivals_.size() - 1;
    }
    const std::uint64_t place = free_.back();
    free_.pop_back();
    arrivals_[place] = key;
    return place;
}

}  // namespace chakrascope::engine
