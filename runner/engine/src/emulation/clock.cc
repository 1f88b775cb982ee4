#include "clock.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <ctime>

namespace chakrascope::emulation {
namespace {

constexpr Time kSecond = 1'000'000'000;
// Bounds of the margin for the delay between the requested and the actual wake-up of a process. The
// margin follows the largest delay of recent wake-ups. The margin is at least the delay of an idle
// machine, and at most the time for which polling the clock is acceptable.
constexpr Time kLeastMargin = 100'000, kMostMargin = 1'000'000;
constexpr Time kRemembered = 64;

// Yield the processor to other ranks, but only with real-time priority. Without real-time priority, a
// process that yields may be resumed late.
void give_way() {
    const int policy = sched_getscheduler(0) & ~SCHED_RESET_ON_FORK;  // flag returned with the policy
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

// Adapt the margin: set it to 1.5 times the delay of a late wake-up, or shrink it slowly after a
// punctual wake-up.
void Sleeper::learn(Time late) {
    const Time wanted = std::clamp(late + late / 2, kLeastMargin, kMostMargin);
    margin_ = std::max(wanted, margin_ - (margin_ - kLeastMargin) / kRemembered);
}

}  // namespace chakrascope::emulation
