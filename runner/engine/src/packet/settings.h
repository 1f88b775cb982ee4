// The configuration of a packet network; each entry is one of ASTRA-sim's config.txt for ns-3.
#pragma once

#include <cstdint>
#include <map>

#include "../fabric/description.h"

namespace chakrascope::packet {

using engine::Ticks;

// Congestion control by its number in CC_MODE; every other number is none.
enum class Control { None = 12, Dcqcn = 1, Hpcc = 3, Timely = 7, Dctcp = 8, HpccPint = 10 };

struct Settings {
    // Durations are rounded to multiples of this: 1 ps, or 1000 to repeat the results of a clock of
    // 1 ns.
    Ticks time_step = 1;
    Control control = Control::None;
    std::uint32_t payload_bytes = 1000;
    std::uint32_t ack_interval_bytes = 1;
    std::uint32_t chunk_bytes = 0;
    bool back_to_zero = false;
    Ticks retransmit_timeout = 0;  // 0: a lost tail is never retransmitted
    Ticks nack_interval = 500'000'000;
    bool ack_high_priority = false;
    // Windows.
    bool window = true;
    bool global_window = true;
    bool variable_window = false;
    bool rate_bound = true;
    // Switches.
    bool mark = true;
    std::uint64_t buffer_bytes = 16ull << 20;
    std::uint64_t headroom_factor = 3;
    std::map<std::uint64_t, double> mark_low_kb;
    std::map<std::uint64_t, double> mark_high_kb;
    std::map<std::uint64_t, double> mark_probability;
    // DCQCN; DCTCP uses the gain too.
    Ticks alpha_interval = 55'000'000;
    Ticks decrease_interval = 4'000'000;
    Ticks increase_interval = 0;
    double gain = 0;
    std::uint32_t fast_recovery_times = 5;
    double additive_bps = 5e7;
    double hyper_bps = 1e8;
    double minimum_bps = 1e8;
    bool clamp_target = false;
    double dctcp_additive_bps = 1e9;
    // HPCC.
    bool fast_react = true;
    double target_utilisation = 0.95;
    std::uint32_t stages = 5;
    std::uint32_t telemetry_scale = 1;
    bool rate_per_hop = true;
    bool skip_empty_queues = false;
    double pint_base = 1.05;
    double pint_probability = 1.0;
    std::uint32_t seed = 1;
    // The most packets of a message that may travel as one event; 1: no trains.
    std::uint32_t train = 1;

    // Whether senders adapt their rates.
    bool controlled() const;
    bool repeats_astra_sim() const { return time_step > 1; }

    // The header bytes of a data packet, and the size of an acknowledgement.
    std::uint32_t header_bytes() const { return 36 + telemetry_bytes(); }
    std::uint32_t ack_bytes() const { return control == Control::Hpcc ? 76 : 48; }
    std::uint32_t telemetry_bytes() const;

    Ticks round(Ticks time) const { return (time + time_step / 2) / time_step * time_step; }
    // The time of these bytes on a link of that rate.
    Ticks transmission(std::uint64_t bytes, std::uint64_t bits_per_second) const;
};

}  // namespace chakrascope::packet
