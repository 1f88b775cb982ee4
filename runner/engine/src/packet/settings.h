// The settings of a packet network.
#pragma once

#include <array>
#include <cstdint>
#include <map>

#include "../fabric/fabric.h"

namespace chakrascope::packet {

using engine::Ticks;

// Congestion control by its number in CC_MODE; all other numbers mean none.
enum class Control { None = 12, Dcqcn = 1, Hpcc = 3, Timely = 7, Dctcp = 8, HpccPint = 10 };
inline constexpr std::array kControls{Control::Dcqcn, Control::Hpcc, Control::Timely, Control::Dctcp,
                                      Control::HpccPint};

// Units of settings in config.txt. Flags and plain numbers have One. Rates may also name their unit, such as
// "50Mb/s".
enum class Unit { One, Microseconds, Mebibytes, MegabitsPerSecond };

constexpr double scale_of(Unit unit) {
    switch (unit) {
        case Unit::Microseconds:
            return 1e6;  // microseconds to ps
        case Unit::Mebibytes:
            return 1 << 20;
        case Unit::MegabitsPerSecond:
            return 1e6;
        default:
            return 1;
    }
}

template <class T>
constexpr T default_of(double value, Unit unit) {
    const double scaled = value * scale_of(unit);
    return static_cast<T>(scaled);
}

constexpr Ticks kAstraSimStep = 1000;  // 1 ns, the resolution of ASTRA-sim's clock

// The buffer space that a switch reserves for each port, in addition to the headroom of the port's link.
constexpr std::uint64_t kReserveBytes = 4096;

struct Settings {
    using ByRate = std::map<std::uint64_t, double>;
#define PACKET_SETTING(key, type, member, value, unit, smallest, largest) \
    type member = default_of<type>(value, Unit::unit);
#define PACKET_TABLE(key, member) ByRate member;
#include "settings.def"
#undef PACKET_SETTING
#undef PACKET_TABLE
    static constexpr Ticks nack_interval = 500'000'000;

    // Return whether senders adapt their rates to congestion.
    bool controlled() const;
    // Return the step of the clock, to which durations are rounded.
    Ticks time_step() const { return astra_sim_clock ? kAstraSimStep : 1; }

    // Return the header bytes of a data packet (`ack_bytes`: the size of an acknowledgement).
    std::uint32_t header_bytes() const { return 36 + telemetry_bytes(); }
    std::uint32_t ack_bytes() const { return control == Control::Hpcc ? 76 : 48; }
    std::uint32_t telemetry_bytes() const;

    Ticks round(Ticks time) const { return (time + time_step() / 2) / time_step() * time_step(); }
    // Return the time that a link of the given rate takes to transmit `bytes` bytes.
    Ticks transmission(std::uint64_t bytes, std::uint64_t bits_per_second) const;
};

}  // namespace chakrascope::packet
