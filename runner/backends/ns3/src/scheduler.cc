// SPDX-License-Identifier: GPL-2.0-only
#include "scheduler.h"

#include <algorithm>

namespace packetnet {
namespace {

using Event = ns3::Scheduler::Event;

constexpr std::size_t kFirstCapacity = 16;

// The order of a heap whose first element is the earliest.
constexpr auto kLater = [](const auto& a, const auto& b) { return b.key < a.key; };

}  // namespace

void EventRing::grow() {
    std::vector<Event> larger(std::max(kFirstCapacity, 2 * capacity_));
    for (std::size_t i = 0; i < count_; ++i) larger[i] = events_[(first_ + i) & (capacity_ - 1)];
    events_.swap(larger);
    capacity_ = events_.size();
    first_ = 0;
}

ns3::TypeId DelayScheduler::GetTypeId() {
    static const ns3::TypeId id =
        ns3::TypeId("packetnet::DelayScheduler").SetParent<ns3::Scheduler>().AddConstructor<DelayScheduler>();
    return id;
}

void DelayScheduler::Insert(const Event& event) {
    const std::uint64_t delay = event.key.m_ts - now;
    const auto place = static_cast<std::uint32_t>((delay * 0x9e3779b97f4a7c15ull) >> 56);
    Queue& queue = queues_[place];
    if (queue.events.empty()) {
        queue.delay = delay;
        queue.events.push(event);
        heads_.push_back({event.key, place});
        std::push_heap(heads_.begin(), heads_.end(), kLater);
    } else if (queue.delay == delay) {
        queue.events.push(event);
    } else {
        others_.push_back(event);
        std::push_heap(others_.begin(), others_.end(), kLater);
    }
}

bool DelayScheduler::others_first() const {
    return !others_.empty() && (heads_.empty() || others_.front().key < heads_.front().key);
}

Event DelayScheduler::PeekNext() const {
    return others_first() ? others_.front() : queues_[heads_.front().queue].events.front();
}

Event DelayScheduler::RemoveNext() {
    const Event next = others_first() ? pop_others() : pop_queue();
    now = next.key.m_ts;
    return next;
}

Event DelayScheduler::pop_others() {
    std::pop_heap(others_.begin(), others_.end(), kLater);
    const Event next = others_.back();
    others_.pop_back();
    return next;
}

Event DelayScheduler::pop_queue() {
    EventRing& events = queues_[heads_.front().queue].events;
    const Event next = events.front();
    events.pop();
    if (events.empty()) {
        std::pop_heap(heads_.begin(), heads_.end(), kLater);
        heads_.pop_back();
    } else {
        heads_.front().key = events.front().key;
        sink_first();
    }
    return next;
}

// Move the first head down to where it belongs, now that its queue has another.
void DelayScheduler::sink_first() {
    const Head moving = heads_.front();
    const std::size_t count = heads_.size();
    std::size_t place = 0;
    for (std::size_t child = 1; child < count; child = 2 * place + 1) {
        if (child + 1 < count && heads_[child + 1].key < heads_[child].key) ++child;
        if (!(heads_[child].key < moving.key)) break;
        heads_[place] = heads_[child];
        place = child;
    }
    heads_[place] = moving;
}

// Nothing here removes events, ns-3 itself may: all that are left become others.
void DelayScheduler::Remove(const Event& event) {
    for (const Head& head : heads_) {
        for (EventRing& events = queues_[head.queue].events; !events.empty(); events.pop()) {
            others_.push_back(events.front());
        }
    }
    heads_.clear();
    std::erase_if(others_, [&event](const Event& other) { return other.key.m_uid == event.key.m_uid; });
    std::make_heap(others_.begin(), others_.end(), kLater);
}

}  // namespace packetnet
