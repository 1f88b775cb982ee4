#include "clock.h"

#include <poll.h>
#include <sched.h>

#include <ctime>

namespace chakrascope::emulation {
namespace {

constexpr Time kSecond = 1'000'000'000;
// Between the time that a process asked for and the one at which it is woken: measured by
// benchmarks/emulation.py.
constexpr Time kWakeUp = 150'000;

}  // namespace

Time monotonic_ns() {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<Time>(time.tv_sec) * kSecond + static_cast<Time>(time.tv_nsec);
}

void doze(int file, Time deadline) {
    const Time now = monotonic_ns();
    if (deadline <= now + kWakeUp) {
        // Let other ranks in between; without priority of its own, a process that yields may come back late.
        const int policy = sched_getscheduler(0);
        if (policy == SCHED_RR || policy == SCHED_FIFO) sched_yield();
        return;
    }
    const Time left = deadline - now - kWakeUp;
    const timespec limit{static_cast<std::time_t>(left / kSecond), static_cast<long>(left % kSecond)};
    pollfd ready{file, POLLIN, 0};
    ppoll(&ready, 1, &limit, nullptr);
}

}  // namespace chakrascope::emulation
