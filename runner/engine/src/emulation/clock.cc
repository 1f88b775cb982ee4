#include "clock.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <ctime>

namespace chakrascope::emulation {
namespace {

constexpr Time kSecond = 1'000'000'000;
// Between the time that a process asked for and the one at which it is woken. A margin follows the latest of
// some dozens of awakenings: no less than what a machine with nothing to do needs, and no more than what may
// be looked at the clock for.
constexpr Time kLeastMargin = 100'000, kMostMargin = 1'000'000;
constexpr Time kRemembered = 64;

// Let other ranks in between; without priority of its own, a process that yields may come back late.
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

// Half as much again as an awakening that was later than the margin expects, which then shrinks slowly.
void Sleeper::learn(Time late) {
    const Time wanted = std::clamp(late + late / 2, kLeastMargin, kMostMargin);
    margin_ = std::max(wanted, margin_ - (margin_ - kLeastMargin) / kRemembered);
}

}  // namespace chakrascope::emulation
