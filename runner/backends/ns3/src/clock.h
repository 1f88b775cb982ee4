// SPDX-License-Identifier: GPL-2.0-only
// ns-3's scheduler in picoseconds, and the one source of chance.
#pragma once

#include <ns3/simulator.h>

#include <random>

#include "settings.h"

namespace packetnet {

inline Ticks now() { return ns3::Simulator::Now().GetTimeStep(); }

template <class... Arguments>
ns3::EventId after(Ticks delay, Arguments&&... arguments) {
    return ns3::Simulator::Schedule(ns3::TimeStep(static_cast<std::uint64_t>(delay)),
                                    std::forward<Arguments>(arguments)...);
}

inline std::mt19937_64& random_engine() {
    static std::mt19937_64 engine;
    return engine;
}

// A number in [0, 1).
inline double chance() { return static_cast<double>(random_engine()() >> 11) * 0x1.0p-53; }

}  // namespace packetnet
