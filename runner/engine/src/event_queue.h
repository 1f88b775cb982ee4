// The event queue of a simulation, which determines the total order of all events.
//
// There is one global queue of ticks. Events of one tick run in the order in which they were inserted,
// including events inserted while the tick runs. In addition, each rank has a table of callbacks. The
// first callback that a rank registers for a tick inserts one global event. All later callbacks of the
// rank for that tick run at the position of that event, in the order in which they were registered.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "agenda.h"
#include "errors.h"

namespace chakrascope::engine {

using Time = std::uint64_t;

// The node at the origin of an event. The start of this node began the unbroken chain of events that
// led to the event.
struct Origin {
    std::int32_t rank = -1;
    std::int32_t node = -1;
};

struct Callback {
    void (*run)(void*, std::uint64_t) = nullptr;
    void* object = nullptr;
    std::uint64_t argument = 0;
    explicit operator bool() const { return run != nullptr; }
    void operator()() const { run(object, argument); }
};

// Bind a member function with one 64-bit argument to an object.
template <auto Method, class T>
Callback bind(T* object, std::uint64_t argument = 0) {
    return {[](void* target, std::uint64_t value) { (static_cast<T*>(target)->*Method)(value); }, object,
            argument};
}

// Convert a double to an unsigned integer as x86-64 does, but without undefined behaviour.
inline std::uint64_t truncate(double value) {
    if (value != value) return std::uint64_t{1} << 63;
    if (value >= 18446744073709551616.0) return 0;
    if (value < 0) return static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
    return static_cast<std::uint64_t>(value);
}

class EventQueue {
  public:
    explicit EventQueue(std::size_t ranks) : tables_(ranks) {}
    EventQueue(const EventQueue&) = delete;
    EventQueue& operator=(const EventQueue&) = delete;

    Time now() const { return now_; }
    std::uint64_t events() const { return events_; }
    Origin origin() const { return origin_; }
    void set_origin(Origin origin) { origin_ = origin; }

    // Run the callback at an absolute time, which must not be in the past.
    void at(Time time, Callback callback) {
        if (time < now_ && time != tick_) throw ConfigError(kOverflow);
        agenda_.add(time, {callback, origin_});
    }

    // Run the callback of a rank after `delay` ns, together with the other callbacks of the rank in the
    // same tick.
    void after(std::int32_t rank, Time delay, Callback callback) {
        enlist(rank, now_ + delay, now_, callback);
    }

    // Run the callback of a rank at an absolute time, as if the callback had been registered at the
    // time `registered`, which may be in the future.
    void enlist(std::int32_t rank, Time time, Time registered, Callback callback) {
        auto& table = tables_[static_cast<std::size_t>(rank)];
        for (auto entry = table.rbegin(); entry != table.rend(); ++entry) {
            if (entry->time == time) {
                if (entry->list == kNone) entry->list = acquire();
                lists_[entry->list].push_back({{callback, origin_}, registered});
                return;
            }
        }
        table.push_back({time, {{callback, origin_}, registered}, kNone});
        at(time, bind<&EventQueue::drain>(this, static_cast<std::uint64_t>(rank)));
    }

    // The time at which the rank registered the current callback; kUnregistered for events without a
    // rank.
    static constexpr Time kUnregistered = ~Time{0};
    Time registered() const { return registered_; }

    // Before every tick, call `source` to add external events up to that tick (-1: without a limit). The
    // source is called again if it returns true, which means that it has added events. A source may
    // install another source that replaces it.
    template <auto Method, class T>
    void set_source(T* source) {
        source_ = {[](void* target, std::int64_t limit) { return (static_cast<T*>(target)->*Method)(limit); },
                   source};
    }

    // Run callbacks in the real time of `clock`: never before their tick, usually slightly later. The
    // clock must be monotonic.
    void set_clock(std::function<Time()> clock) { clock_ = std::move(clock); }

    // Report the simulated time that a long-running source of events has reached. Returns false if the
    // source must stop.
    bool keep_going(Time reached) {
        reached_ = reached;
        stopped_ = stopped_ || !(*poll_)();
        return !stopped_;
    }

    // Stop the simulation. A source of events calls this function if its results would be wrong.
    void stop() { stopped_ = true; }

    // Return the time that the simulation has reached, in this queue or in its source of events.
    Time reached() const { return std::max(now_, reached_); }

    // Run the simulation until no events are left. `poll` is called every few thousand events. The loop
    // also stops if `poll` returns false.
    bool run(const std::function<bool()>& poll) {
        poll_ = &poll;
        while (!exhausted()) {
            agenda_.open();
            tick_ = agenda_.present();
            now_ = clock_ ? std::max(now_, tick_) : tick_;
            for (std::size_t i = 0; i < agenda_.size(); ++i) {
                execute(agenda_.event(i));
                if (events_ < next_poll_) continue;
                next_poll_ = events_ + kPollInterval;
                if (!poll()) return false;
            }
            agenda_.close();
        }
        return !stopped_;
    }

  private:
    struct Source {
        bool (*ask)(void*, std::int64_t) = nullptr;
        void* object = nullptr;
    };
    struct Event {
        Callback callback;
        Origin origin;
    };
    struct Registered {
        Event event;
        Time when;
    };
    // The callbacks of a rank in one tick. Usually, a rank has only one callback in a tick.
    struct Own {
        Time time;
        Registered first;
        std::uint32_t list;  // index of the list of further callbacks
    };

    bool exhausted() {
        while (
            source_.ask != nullptr && !stopped_ &&
            source_.ask(source_.object, agenda_.empty() ? -1 : static_cast<std::int64_t>(agenda_.next()))) {
        }
        return stopped_ || agenda_.empty();
    }

    void execute(Event event) {
        origin_ = event.origin;
        ++events_;
        if (clock_) now_ = std::max(now_, clock_());
        event.callback();
    }

    void drain(std::uint64_t rank) {
        auto& table = tables_[rank];
        std::size_t place = 0;
        while (table[place].time != tick_) ++place;
        if (table[place].list != kNone) sort(table[place]);
        // Running callbacks may add entries to the table and reallocate the list of further callbacks.
        run(table[place].first);
        for (std::size_t i = 0; table[place].list != kNone && i < lists_[table[place].list].size(); ++i)
            run(lists_[table[place].list][i]);
        if (table[place].list != kNone) recycle(table[place].list);
        table[place] = table.back();
        table.pop_back();
        registered_ = kUnregistered;
    }

    // Sort the further callbacks by time of registration; the list is usually already sorted.
    void sort(Own& own) {
        std::vector<Registered>& list = lists_[own.list];
        const auto earlier = [](const Registered& a, const Registered& b) { return a.when < b.when; };
        if (own.first.when <= list.front().when && std::is_sorted(list.begin(), list.end(), earlier)) return;
        list.insert(list.begin(), own.first);
        std::stable_sort(list.begin(), list.end(), earlier);
        own.first = list.front();
        list.erase(list.begin());
    }

    void run(Registered registered) {
        registered_ = registered.when;
        execute(registered.event);
    }

    std::uint32_t acquire() {
        if (free_.empty()) {
            lists_.emplace_back();
            return static_cast<std::uint32_t>(lists_.size() - 1);
        }
        const std::uint32_t list = free_.back();
        free_.pop_back();
        return list;
    }

    void recycle(std::uint32_t list) {
        lists_[list].clear();
        free_.push_back(list);
    }

    static constexpr std::uint32_t kNone = ~std::uint32_t{0};
    static constexpr std::uint64_t kPollInterval = 16384;
    static constexpr const char* kOverflow =
        "The simulated time exceeds 2^64 ns, so that no figure of it would be right; check the sizes, the "
        "bandwidths and the delays for a mistaken unit.";

    Source source_;
    std::function<Time()> clock_;
    const std::function<bool()>* poll_ = nullptr;
    bool stopped_ = false;
    Time now_ = 0;
    Time tick_ = 0;  // tick of the running callbacks; equal to now_ unless a real-time clock is ahead
    Time reached_ = 0;
    Time registered_ = kUnregistered;
    std::uint64_t next_poll_ = kPollInterval;
    Origin origin_;
    std::uint64_t events_ = 0;
    Agenda<Event> agenda_;
    std::vector<std::vector<Registered>> lists_;
    std::vector<std::uint32_t> free_;
    std::vector<std::vector<Own>> tables_;
};

}  // namespace chakrascope::engine
