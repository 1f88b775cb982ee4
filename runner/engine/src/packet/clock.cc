#include "clock.h"

namespace chakrascope::packet {
namespace {

constexpr std::uint64_t kPollMask = (1u << 16) - 1;

}  // namespace

Timer Clock::keep(Ticks delay, const Event& event) {
    std::uint32_t place = 0;
    if (free_.empty()) {
        place = static_cast<std::uint32_t>(slots_.size());
        slots_.emplace_back();
    } else {
        place = free_.back();
        free_.pop_back();
    }
    const auto call = [](void* clock, void* slot) { static_cast<Clock*>(clock)->fire(slot); };
    add(delay, {call, this, reinterpret_cast<void*>(std::uintptr_t{place})});
    slots_[place] = {event, scheduled_, false};
    return {scheduled_, place, now_ + delay};
}

// Run the event in a slot, which is freed first because the event may set the timer again.
void Clock::fire(void* slot) {
    const auto place = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(slot));
    const Slot due = slots_[place];
    slots_[place].number = 0;
    free_.push_back(place);
    if (!due.cancelled) due.event.run(due.event.object, due.event.argument);
}

bool Clock::run(const std::function<bool(Ticks)>& keep_going) {
    stopped_ = false;
    while (!stopped_ && !timeline_.empty()) {
        const Timeline::Entry next = timeline_.pop();
        now_ = static_cast<Ticks>(next.time);
        ++executed_;
        next.event.run(next.event.object, next.event.argument);
        if ((executed_ & kPollMask) == 0 && !keep_going(now_)) return false;
    }
    return true;
}

}  // namespace chakrascope::packet
