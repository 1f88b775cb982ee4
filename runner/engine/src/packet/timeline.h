// A queue of events in order of time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace chakrascope::packet {

struct Event {
    void (*run)(void* object, void* argument) = nullptr;
    void* object = nullptr;
    void* argument = nullptr;
};

// Most events have one of few delays, such as the transmission time of a full packet. Events with the same
// delay become due in the order in which they were scheduled. Therefore, each common delay has a FIFO queue,
// and a heap contains only the heads of the queues. Events of less common delays are in a second heap. Events
// of the same time run in the order in which they were scheduled.
class Timeline {
  public:
    struct Entry {
        std::uint64_t time;
        std::uint64_t number;  // number of events that were scheduled before
        Event event;

        bool operator<(const Entry& other) const {
            return time != other.time ? time < other.time : number < other.number;
        }
    };

    bool empty() const { return heads_.empty() && others_.empty(); }
    void push(const Entry& entry, std::uint64_t delay);
    Entry pop();

  private:
    static constexpr std::size_t kQueues = 256;

    // A FIFO queue in a growing ring buffer.
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
        std::size_t capacity_ = 0;  // capacity: 0 or a power of two
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
    void push_others(const Entry& entry);
    void sink_first();

    std::array<Queue, kQueues> queues_;
    std::vector<Head> heads_;    // heap of the non-empty queues
    std::vector<Entry> others_;  // a heap in which each element has four children
};

}  // namespace chakrascope::packet
