#include "flow.h"

#include <algorithm>

#include "host.h"

namespace chakrascope::packet {

bool Flow::window_full() const {
    if (window_bytes == 0) return false;
    std::uint64_t limit = window_bytes;
    if (world.settings.variable_window && rate_bps < line_bps) {
        const auto wide = static_cast<unsigned __int128>(window_bytes) * static_cast<std::uint64_t>(rate_bps);
        limit = std::max<std::uint64_t>(
            1, static_cast<std::uint64_t>(wide / static_cast<std::uint64_t>(line_bps)));
    }
    const std::uint64_t in_flight = sent - acknowledged;
    if (in_flight < limit || train == 1) return in_flight >= limit;
    const std::uint64_t payload = world.settings.payload_bytes;
    return in_flight >= limit + held_back * payload || train_now() == 1;
}

void Flow::left_as_train() {
    if (timed_until > 0) return;
    timed_until = sent;
    timed_since = world.clock.now();
}

void Flow::answered_until(std::uint64_t sequence) {
    if (timed_until == 0 || sequence < timed_until) return;
    timed_until = 0;
    hold_back(world.clock.now() - timed_since);
}

// Enlarge the window of a message that does not queue by the packets whose acknowledgement a train delays: a
// train is acknowledged only as a whole. A message that queues behind others does not need a larger window.
void Flow::hold_back(Ticks round_trip) {
    const auto followers = static_cast<Ticks>(train - 1);
    const Ticks unhindered = base_rtt + 2 * followers * full_time;
    held_back =
        static_cast<std::uint64_t>(std::clamp<Ticks>((unhindered - round_trip) / full_time, 0, followers));
}

std::uint32_t Flow::train_now() const {
    if (train == 1 || world.train == 1) return 1;
    if (!out().splits_trains()) return train;
    world.split_trains = true;
    return 1;
}

Ticks Flow::gap(double bits_per_second) const {
    return world.settings.transmission(last_bytes, static_cast<std::uint64_t>(bits_per_second));
}

void Flow::change_rate(double bits_per_second) {
    next_send += gap(bits_per_second) - gap(rate_bps);
    rate_bps = bits_per_second;
    source.wake_by(out(), next_send);
}

void Flow::change_line(double bits_per_second) {
    const bool unhindered = rate_bps >= line_bps;
    line_bps = bits_per_second;
    rate_bps = unhindered ? line_bps : std::min(rate_bps, line_bps);
}

void Flow::lost() {
    if (world.settings.retransmit_timeout <= 0 || timer_armed || done) return;
    timer_armed = true;
    world.clock.post<&Flow::check_progress>(world.settings.retransmit_timeout, this);
}

void Flow::check_progress() {
    timer_armed = false;
    if (done) return;
    const Ticks silent = world.clock.now() - last_progress;
    timer_armed = true;
    if (silent < world.settings.retransmit_timeout) {
        world.clock.post<&Flow::check_progress>(world.settings.retransmit_timeout - silent, this);
        return;
    }
    sent = acknowledged;
    last_progress = world.clock.now();
    world.clock.post<&Flow::check_progress>(world.settings.retransmit_timeout, this);
    out().kick();
}

}  // namespace chakrascope::packet
