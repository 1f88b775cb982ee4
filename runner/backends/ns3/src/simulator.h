// SPDX-License-Identifier: GPL-2.0-only
// What makes ns-3's core fast for packets: a simulator whose queue of events knows how regular they are, and
// events that reuse memory.
#pragma once

#include <ns3/event-id.h>
#include <ns3/event-impl.h>
#include <ns3/simulator-impl.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

namespace chakrascope::packet {

// Most events are scheduled with one of a few delays: how long a packet of some size takes on a link. Those
// of one delay come due in the order in which they were scheduled, so each such delay has a queue, and only
// the heads of the queues are kept in order. All other events go into a heap. The order is ns-3's own: by
// time, then in the order of scheduling.
class EventQueue {
  public:
    struct Entry {
        std::uint64_t time;
        std::uint64_t number;  // of events scheduled before
        ns3::EventImpl* event;

        bool operator<(const Entry& other) const {
            return time != other.time ? time < other.time : number < other.number;
        }
    };

    bool empty() const { return heads_.empty() && others_.empty(); }
    void push(const Entry& entry, std::uint64_t delay);
    Entry pop();

  private:
    static constexpr std::size_t kQueues = 256;

    // First in, first out, in an array that grows.
    class Ring {
      public:
        bool empty() const { return count_ == 0; }
        const Entry& front() const { return entries_[first_]; }

        void push(const Entry& entry) {
            if (count_ == capacity_) grow();
            entries_[(first_ + count_++) & (capacity_ - 1)] = entry;
        }

        void pop() {
            first_ = (first_ + 1) & (capacity_ - 1);
            --count_;
        }

      private:
        void grow();

        std::vector<Entry> entries_;
        std::size_t capacity_ = 0;  // 0 or a power of two
        std::size_t first_ = 0;
        std::size_t count_ = 0;
    };
    struct Queue {
        std::uint64_t delay = 0;
        Ring entries;
    };
    struct Head {
        std::uint64_t time;
        std::uint64_t number;
        std::uint32_t queue;

        bool operator<(const Head& other) const {
            return time != other.time ? time < other.time : number < other.number;
        }
    };

    Entry pop_queue();
    Entry pop_others();
    void sink_first();

    std::array<Queue, kQueues> queues_;
    std::vector<Head> heads_;  // of the queues that are not empty: a heap
    std::vector<Entry> others_;
};

// Takes the place that ns-3 has for a simulator, without what its default one spends time on and packets do
// not need: contexts, events from other threads, and a choice of schedulers.
class PacketSimulator final : public ns3::SimulatorImpl {
  public:
    // The time of the event that runs.
    static inline std::uint64_t now = 0;

    static ns3::TypeId GetTypeId();
    // The one in use; made and given to ns-3 by the first call.
    static PacketSimulator& get();

    // Run the event, of which this takes possession, after so much time; returns its number.
    std::uint64_t post(std::uint64_t delay, ns3::EventImpl* event) {
        queue_.push({now + delay, ++scheduled_, event}, delay);
        return scheduled_;
    }

    void Destroy() override;
    bool IsFinished() const override { return stopped_ || queue_.empty(); }
    void Stop() override { stopped_ = true; }
    // In ns-3 3.37 it returns nothing.
    using Stopping = decltype(std::declval<ns3::SimulatorImpl&>().Stop(std::declval<const ns3::Time&>()));
    Stopping Stop(const ns3::Time& delay) override;
    ns3::EventId Schedule(const ns3::Time& delay, ns3::EventImpl* event) override;
    void ScheduleWithContext(std::uint32_t context, const ns3::Time& delay, ns3::EventImpl* event) override;
    ns3::EventId ScheduleNow(ns3::EventImpl* event) override;
    ns3::EventId ScheduleDestroy(ns3::EventImpl* event) override;
    void Remove(const ns3::EventId& id) override { Cancel(id); }
    void Cancel(const ns3::EventId& id) override;
    bool IsExpired(const ns3::EventId& id) const override;
    void Run() override;
    ns3::Time Now() const override { return ns3::TimeStep(now); }
    ns3::Time GetDelayLeft(const ns3::EventId& id) const override;
    ns3::Time GetMaximumSimulationTime() const override;
    void SetScheduler(ns3::ObjectFactory) override {}
    std::uint32_t GetSystemId() const override { return 0; }
    std::uint32_t GetContext() const override;
    std::uint64_t GetEventCount() const override { return executed_; }

  private:
    EventQueue queue_;
    std::vector<ns3::EventImpl*> at_the_end_;
    std::uint64_t scheduled_ = ns3::EventId::VALID;
    std::uint64_t running_ = 0;
    std::uint64_t executed_ = 0;
    bool stopped_ = false;
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
        // GCC's sanitizer takes a captured `this` for null here.
        const auto call = [object = object_, method = method_](const Parameters&... arguments) {
            (object->*method)(arguments...);
        };
        std::apply(call, arguments_);
    }

  private:
    static inline std::vector<void*> free_;

    const Method method_;
    Object* const object_;
    const std::tuple<Parameters...> arguments_;
};

}  // namespace chakrascope::packet
