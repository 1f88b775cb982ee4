#include "clock.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <ctime>

namespace chakrascope::emulation {
namespace {

constexpr Time kSecond = 1'000'000'000;
// The time from the deadline that a process asked for to its wake-up. The margin follows the latest
// of some dozens of wake-ups. It is at least what an idle machine needs, and at most the time for
// which polling the clock is acceptable.
constexpr Time kLeastMargin = 100'000, kMostMargin = 1'000'000;
constexpr Time kRemembered = 64;

// Yield to other ranks; without real-time priority, a process that yields may be resumed late.
void give_way() {
    const int policy = sched_getscheduler(0) & ~SCHED_RESET_ON_FORK;  // comes with it
    if (policy == SCHED_RR || policy == SCHED_FIFO) sched_yield();
}

}  // namespace

Time monotonic_ns() {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<Time>(time.tv_sec) * kSecond + static_cast<Time>(time.tv_nsec);
}

void Sleeper::doze(int file, Until until) {
    const Time now = monotonic_ns(), margin = until.exact ? margin_ : 0;
    if (until.at <= now + margin) {
        give_way();
        return;
    }
    const Time left = until.at - now - margin;
    const timespec limit{static_cast<std::time_t>(left / kSecond), static_cast<long>(left % kSecond)};
    pollfd ready{file, POLLIN, 0};
    if (ppoll(&ready, 1, &limit, nullptr) == 0) learn(monotonic_ns() - now - left);
}

// Grow to 1.5 times a wake-up that was later than the margin, then shrink slowly.
void Sleeper::learn(Time late) {
    const Time wanted = std::clamp(late + late / 2, kLeastMargin, kMostMargin);
    margin_ = std::max(wanted, margin_ - (margin_ - kLeastMargin) / kRemembered);
}

}  // namespace chakrascope::emulation
