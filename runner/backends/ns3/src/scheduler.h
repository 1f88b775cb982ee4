// SPDX-License-Identifier: GPL-2.0-only
// What makes ns-3's core fast for packets: a scheduler that knows how regular they are, and events that reuse
// memory.
#pragma once

#include <ns3/event-impl.h>
#include <ns3/scheduler.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

namespace packetnet {

// Events first in, first out, in an array that grows.
class EventRing {
  public:
    bool empty() const { return count_ == 0; }
    const ns3::Scheduler::Event& front() const { return events_[first_]; }

    void push(const ns3::Scheduler::Event& event) {
        if (count_ == capacity_) grow();
        events_[(first_ + count_++) & (capacity_ - 1)] = event;
    }

    void pop() {
        first_ = (first_ + 1) & (capacity_ - 1);
        --count_;
    }

  private:
    void grow();

    std::vector<ns3::Scheduler::Event> events_;
    std::size_t capacity_ = 0;  // 0 or a power of two
    std::size_t first_ = 0;
    std::size_t count_ = 0;
};

// Most events are scheduled with one of a few delays: how long a packet of some size takes on a link. Those
// of one delay come due in the order in which they were scheduled, so each such delay has a queue, and only
// the heads of the queues are kept in order. All other events go into a heap. The order is ns-3's own: by
// time, then by number.
class DelayScheduler final : public ns3::Scheduler {
  public:
    // The time of the event that runs, which is ns-3's now.
    static inline std::uint64_t now = 0;

    static ns3::TypeId GetTypeId();
    void Insert(const Event& event) override;
    bool IsEmpty() const override { return heads_.empty() && others_.empty(); }
    Event PeekNext() const override;
    Event RemoveNext() override;
    void Remove(const Event& event) override;

  private:
    static constexpr std::size_t kQueues = 256;

    struct Queue {
        std::uint64_t delay = 0;
        EventRing events;
    };
    struct Head {
        EventKey key;
        std::uint32_t queue;
    };

    bool others_first() const;
    Event pop_others();
    Event pop_queue();
    void sink_first();

    std::array<Queue, kQueues> queues_;
    std::vector<Head> heads_;  // of the queues that are not empty: a heap
    std::vector<Event> others_;
};

// A call of a member function as an event; the memory of past ones of its kind is used again.
template <class Object, class... Parameters>
class Call final : public ns3::EventImpl {
  public:
    using Method = void (Object::*)(Parameters...);

    Call(Method method, Object* object, Parameters... arguments)
        : method_(method), object_(object), arguments_(arguments...) {}

    static void* operator new(std::size_t size) {
        if (free_.empty()) return ::operator new(size);
        void* memory = free_.back();
        free_.pop_back();
        return memory;
    }

    static void operator delete(void* memory) { free_.push_back(memory); }

  protected:
    void Notify() override {
        std::apply([this](const Parameters&... arguments) { (object_->*method_)(arguments...); }, arguments_);
    }

  private:
    static inline std::vector<void*> free_;

    const Method method_;
    Object* const object_;
    const std::tuple<Parameters...> arguments_;
};

}  // namespace packetnet
