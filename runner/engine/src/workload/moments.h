// Detects events of a rank in one tick that could run in another order if every message were simulated.
//
// The callbacks of a rank in a tick run in the order of the ticks in which they were registered, at the
// position of the first callback. A message arrives at the position of the tick in which it was sent.
// The order of events with the same position depends on all events of a simulation, including omitted
// events. An omitted callback may also be the first callback of a tick.
#pragma once

#include <cstdint>

#include "../event_queue.h"

namespace chakrascope::engine {

class Moments {
  public:
    // The following functions are called for an event, and return whether the order of the event is
    // certain.

    // Record that a callback that was registered at `registered` ends a node.
    bool node(Time now, Time registered) {
        const bool certain = begin(now, registered) && group_.phases == 0;
        group_.nodes = true;
        return certain;
    }
    // Record that the arrival of a message ends a node.
    bool message(Time now, Time sent) {
        begin(now);
        const bool certain = (!own_ || first_ < sent) && (!messages_ || sent_ != sent);
        messages_ = true;
        sent_ = sent;
        return certain;
    }
    // Record that a chunk ends its phase.
    bool phase(Time now, Time registered) {
        const bool certain = begin(now, registered) && !group_.nodes && !group_.collective;
        ++group_.phases;
        return certain;
    }
    // Record that a phase of a collective with omitted callbacks begins (`leave_out`) or ends
    // (`take_up`).
    void leave_out() { ++left_out_; }
    void take_up(Time now) {
        --left_out_;
        taken_up_ = now;
    }
    // Record that the phase that is ending is the last phase of its collective.
    bool collective() {
        group_.collective = true;
        return group_.phases == 1;
    }
    // Record that a chunk leaves or joins a queue. `mixed` is true if chunks of several collectives
    // wait in the queue.
    bool leave(std::int32_t queue, bool mixed) {
        const std::uint64_t bit = bit_of(queue);
        const bool certain = (group_.left & bit) == 0 && ((group_.come & bit) == 0 || !mixed);
        group_.left |= bit;
        return certain;
    }
    bool come(std::int32_t queue, bool mixed) {
        const std::uint64_t bit = bit_of(queue);
        const bool certain = (group_.come & bit) == 0 && ((group_.left & bit) == 0 || !mixed);
        group_.come |= bit;
        return certain;
    }

  private:
    static std::uint64_t bit_of(std::int32_t queue) { return std::uint64_t{1} << (queue & 63); }

    void begin(Time now) {
        if (time_ == now) return;
        time_ = now;
        own_ = messages_ = false;
    }
    bool begin(Time now, Time registered) {
        begin(now);
        const bool certain = !messages_ || (left_out_ == 0 && taken_up_ != now && sent_ < registered);
        if (!own_) first_ = registered;
        if (!own_ || registered_ != registered) group_ = Group{};
        own_ = true;
        registered_ = registered;
        return certain;
    }

    // The callbacks that were registered in one tick.
    struct Group {
        std::uint32_t phases = 0;
        bool nodes = false;
        bool collective = false;
        std::uint64_t left = 0, come = 0;
    };

    Time time_ = ~Time{0};
    bool own_ = false, messages_ = false;  // whether callbacks or messages occurred in this tick
    Time first_ = 0, registered_ = 0;      // registration tick of the rank's first and last callback
    Time sent_ = 0;                        // send tick of the last message
    std::uint32_t left_out_ = 0;           // number of running phases with omitted callbacks
    Time taken_up_ = ~Time{0};             // tick at which the last phase with omitted callbacks ended
    Group group_;
};

}  // namespace chakrascope::engine
