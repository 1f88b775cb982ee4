// SPDX-License-Identifier: GPL-2.0-only
#include "simulator.h"

#include <ns3/make-event.h>
#include <ns3/simulator.h>

#include <algorithm>

namespace chakrascope::packet {
namespace {

constexpr std::size_t kFirstCapacity = 16;

// The order of a heap whose first element is the earliest.
constexpr auto kLater = [](const auto& a, const auto& b) { return b < a; };

}  // namespace

void EventQueue::Ring::grow() {
    std::vector<Entry> larger(std::max(kFirstCapacity, 2 * capacity_));
    for (std::size_t i = 0; i < count_; ++i) larger[i] = entries_[(first_ + i) & (capacity_ - 1)];
    entries_.swap(larger);
    capacity_ = entries_.size();
    first_ = 0;
}

void EventQueue::push(const Entry& entry, std::uint64_t delay) {
    const auto place = static_cast<std::uint32_t>((delay * 0x9e3779b97f4a7c15ull) >> 56);
    Queue& queue = queues_[place];
    if (queue.entries.empty()) {
        queue.delay = delay;
        queue.entries.push(entry);
        heads_.push_back({entry.time, entry.number, place});
        std::push_heap(heads_.begin(), heads_.end(), kLater);
    } else if (queue.delay == delay) {
        queue.entries.push(entry);
    } else {
        others_.push_back(entry);
        std::push_heap(others_.begin(), others_.end(), kLater);
    }
}

EventQueue::Entry EventQueue::pop() {
    if (others_.empty()) return pop_queue();
    if (heads_.empty()) return pop_others();
    const Head& head = heads_.front();
    return others_.front() < Entry{head.time, head.number, nullptr} ? pop_others() : pop_queue();
}

EventQueue::Entry EventQueue::pop_others() {
    std::pop_heap(others_.begin(), others_.end(), kLater);
    const Entry next = others_.back();
    others_.pop_back();
    return next;
}

EventQueue::Entry EventQueue::pop_queue() {
    Ring& entries = queues_[heads_.front().queue].entries;
    const Entry next = entries.front();
    entries.pop();
    if (entries.empty()) {
        std::pop_heap(heads_.begin(), heads_.end(), kLater);
        heads_.pop_back();
    } else {
        heads_.front().time = entries.front().time;
        heads_.front().number = entries.front().number;
        sink_first();
    }
    return next;
}

// Move the first head down to where it belongs, now that its queue has another.
void EventQueue::sink_first() {
    const Head moving = heads_.front();
    const std::size_t count = heads_.size();
    std::size_t place = 0;
    for (std::size_t child = 1; child < count; child = 2 * place + 1) {
        if (child + 1 < count && heads_[child + 1] < heads_[child]) ++child;
        if (!(heads_[child] < moving)) break;
        heads_[place] = heads_[child];
        place = child;
    }
    heads_[place] = moving;
}

ns3::TypeId PacketSimulator::GetTypeId() {
    static const ns3::TypeId id = ns3::TypeId("chakrascope::packet::PacketSimulator")
                                      .SetParent<ns3::SimulatorImpl>()
                                      .AddConstructor<PacketSimulator>();
    return id;
}

PacketSimulator& PacketSimulator::get() {
    static const ns3::Ptr<PacketSimulator> simulator = [] {
        auto made = ns3::CreateObject<PacketSimulator>();
        ns3::Simulator::SetImplementation(made);
        return made;
    }();
    return *simulator;
}

void PacketSimulator::Run() {
    stopped_ = false;
    while (!stopped_ && !queue_.empty()) {
        const EventQueue::Entry next = queue_.pop();
        now = next.time;
        running_ = next.number;
        ++executed_;
        next.event->Invoke();
        next.event->Unref();
    }
}

void PacketSimulator::Destroy() {
    for (ns3::EventImpl* event : std::exchange(at_the_end_, {})) {
        event->Invoke();
        event->Unref();
    }
}

PacketSimulator::Stopping PacketSimulator::Stop(const ns3::Time& delay) {
    return static_cast<Stopping>(ns3::Simulator::Schedule(delay, &ns3::Simulator::Stop));
}

ns3::EventId PacketSimulator::Schedule(const ns3::Time& delay, ns3::EventImpl* event) {
    const auto after = static_cast<std::uint64_t>(delay.GetTimeStep());
    // The handle shares the event with the queue.
    const ns3::Ptr<ns3::EventImpl> shared(event, true);
    const std::uint64_t number = post(after, event);
    return {shared, now + after, ns3::Simulator::NO_CONTEXT, static_cast<std::uint32_t>(number)};
}

void PacketSimulator::ScheduleWithContext(std::uint32_t, const ns3::Time& delay, ns3::EventImpl* event) {
    post(static_cast<std::uint64_t>(delay.GetTimeStep()), event);
}

ns3::EventId PacketSimulator::ScheduleNow(ns3::EventImpl* event) { return Schedule(ns3::Time(0), event); }

ns3::EventId PacketSimulator::ScheduleDestroy(ns3::EventImpl* event) {
    at_the_end_.push_back(event);
    return {ns3::Ptr<ns3::EventImpl>(event, true), now, ns3::Simulator::NO_CONTEXT, ns3::EventId::DESTROY};
}

void PacketSimulator::Cancel(const ns3::EventId& id) {
    if (!IsExpired(id)) id.PeekEventImpl()->Cancel();
}

// Handles keep 32 bits of an event's number; those of one instant lie close together.
bool PacketSimulator::IsExpired(const ns3::EventId& id) const {
    ns3::EventImpl* event = id.PeekEventImpl();
    if (event == nullptr || event->IsCancelled() || id.GetTs() < now) return true;
    return id.GetTs() == now &&
           static_cast<std::int32_t>(id.GetUid() - static_cast<std::uint32_t>(running_)) <= 0;
}

ns3::Time PacketSimulator::GetDelayLeft(const ns3::EventId& id) const {
    return ns3::TimeStep(IsExpired(id) ? 0 : id.GetTs() - now);
}

ns3::Time PacketSimulator::GetMaximumSimulationTime() const { return ns3::TimeStep(0x7fffffffffffffffLL); }

std::uint32_t PacketSimulator::GetContext() const { return ns3::Simulator::NO_CONTEXT; }

}  // namespace chakrascope::packet
