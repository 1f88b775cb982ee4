// The clock of a packet simulation: events, timers that can be cancelled, and random numbers.
#pragma once

#include <functional>
#include <random>
#include <vector>

#include "settings.h"
#include "timeline.h"

namespace chakrascope::packet {

// Identifies a scheduled event.
struct Timer {
    std::uint64_t number = 0;
    std::uint32_t slot = 0;
    Ticks time = 0;
};

class Clock {
  public:
    Clock() = default;
    Clock(const Clock&) = delete;
    Clock& operator=(const Clock&) = delete;

    // Return the time of the current event.
    Ticks now() const { return now_; }
    std::uint64_t events() const { return executed_; }

    // Call a method of an object after `delay`.
    template <auto Method, class Object>
    void post(Ticks delay, Object* object) {
        add(delay, without_argument<Method>(object));
    }

    // Call a method of an object with an argument after `delay`.
    template <auto Method, class Object, class Argument>
    void post(Ticks delay, Object* object, Argument* argument) {
        const auto call = [](void* target, void* value) {
            (static_cast<Object*>(target)->*Method)(static_cast<Argument*>(value));
        };
        add(delay, {call, object, argument});
    }

    // Call a method of an object after `delay`; the returned timer can cancel the event.
    template <auto Method, class Object>
    Timer after(Ticks delay, Object* object) {
        return keep(delay, without_argument<Method>(object));
    }

    // Whether the timer's event has neither run nor been cancelled.
    bool pending(const Timer& timer) const {
        if (timer.number == 0) return false;
        const Slot& slot = slots_[timer.slot];
        return slot.number == timer.number && !slot.cancelled;
    }
    void cancel(const Timer& timer) {
        if (pending(timer)) slots_[timer.slot].cancelled = true;
    }

    // Run events until `stop` is called or no events are left. `keep_going` is called regularly with the
    // current time; if `keep_going` returns false, so does this function.
    bool run(const std::function<bool(Ticks)>& keep_going);
    void stop() { stopped_ = true; }

    void seed(std::uint32_t number) { random_.seed(number); }
    // Return a pseudo-random number in [0, 1).
    double chance() { return static_cast<double>(random_() >> 11) * 0x1.0p-53; }

  private:
    struct Slot {
        Event event;
        std::uint64_t number = 0;  // number of the event; 0: the slot is free
        bool cancelled = false;
    };

    template <auto Method, class Object>
    static Event without_argument(Object* object) {
        return {[](void* target, void*) { (static_cast<Object*>(target)->*Method)(); }, object, nullptr};
    }

    void add(Ticks delay, const Event& event) {
        const auto later = static_cast<std::uint64_t>(delay);
        timeline_.push({static_cast<std::uint64_t>(now_) + later, ++scheduled_, event}, later);
    }
    Timer keep(Ticks delay, const Event& event);
    void fire(void* slot);

    Timeline timeline_;
    std::vector<Slot> slots_;
    std::vector<std::uint32_t> free_;
    Ticks now_ = 0;
    std::uint64_t scheduled_ = 0;
    std::uint64_t executed_ = 0;
    bool stopped_ = false;
    std::mt19937_64 random_;
};

}  // namespace chakrascope::packet
