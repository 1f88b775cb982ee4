// A queue of events sorted by time. Events of one tick keep their order of insertion.
//
// The queue is a radix queue. The slot of an event is determined by the highest byte in which the
// event's time differs from the present time. As its time approaches, an event moves to lower levels.
// An event moves two or three times, regardless of the number of waiting events.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace chakrascope::engine {

template <class Event>
class Agenda {
  public:
    using Time = std::uint64_t;

    bool empty() const { return count_ == 0; }

    // Return the time of the last opened tick. Before the first tick, return the start time.
    Time present() const { return present_; }

    // Add an event at a time that is not before the present tick.
    void add(Time time, const Event& event) {
        place(time, event);
        ++count_;
        if (next_known_) next_ = std::min(next_, time);
    }

    // Return the time of the earliest tick. The queue must not be empty.
    Time next() {
        if (!next_known_) {
            next_ = find_next();
            next_known_ = true;
        }
        return next_;
    }

    // Make the earliest tick the present tick. `event` returns its events in order. Events can be added
    // to the present tick while its events run.
    void open() {
        const Time time = next();
        for (int level = level_of(time); level > 0; level = level_of(time)) {
            Slot& slot = slots_[level][digit(time, level)];
            present_ = time >> (8 * level) << (8 * level);
            spare_.swap(slot);
            mark(level, digit(time, level), false);
            for (const Item& item : spare_) place(item.time, item.event);
            spare_.clear();
        }
        present_ = time;
        next_known_ = false;
    }

    std::size_t size() const { return slots_[0][present_ & 255].size(); }
    const Event& event(std::size_t number) const { return slots_[0][present_ & 255][number].event; }

    // Remove the events of the present tick from the queue.
    void close() {
        Slot& slot = slots_[0][present_ & 255];
        count_ -= slot.size();
        slot.clear();
        mark(0, present_ & 255, false);
        next_known_ = false;
    }

  private:
    static constexpr int kLevels = 8;
    struct Item {
        Time time;
        Event event;
    };
    using Slot = std::vector<Item>;

    static std::size_t digit(Time time, int level) { return time >> (8 * level) & 255; }

    int level_of(Time time) const {
        return time == present_ ? 0 : (63 - std::countl_zero(time ^ present_)) / 8;
    }

    void place(Time time, const Event& event) {
        const int level = level_of(time);
        const std::size_t number = digit(time, level);
        slots_[level][number].push_back({time, event});
        mark(level, number, true);
    }

    void mark(int level, std::size_t number, bool used) {
        const std::uint64_t bit = std::uint64_t{1} << (number & 63);
        std::uint64_t& word = used_[level][number >> 6];
        word = used ? word | bit : word & ~bit;
    }

    // Every event of a higher level of the radix queue is later than all events of lower levels.
    Time find_next() const {
        for (int level = 0; level < kLevels; ++level) {
            for (std::size_t word = digit(present_, level) >> 6; word < 4; ++word) {
                const std::uint64_t bits = used_[level][word];
                if (bits == 0) continue;
                const Slot& slot =
                    slots_[level][word * 64 + static_cast<std::size_t>(std::countr_zero(bits))];
                Time least = slot.front().time;
                for (const Item& item : slot) least = std::min(least, item.time);
                return least;
            }
        }
        return present_;
    }

    std::array<std::array<Slot, 256>, kLevels> slots_;
    std::array<std::array<std::uint64_t, 4>, kLevels> used_{};
    Slot spare_;
    std::size_t count_ = 0;
    Time present_ = 0;
    Time next_ = 0;
    bool next_known_ = false;
};

}  // namespace chakrascope::engine
