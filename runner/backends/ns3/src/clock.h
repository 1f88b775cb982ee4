// SPDX-License-Identifier: GPL-2.0-only
// ns-3's simulator in picoseconds, and the one source of chance.
#pragma once

#include <ns3/simulator.h>

#include <random>
#include <type_traits>

#include "settings.h"
#include "simulator.h"

namespace chakrascope::packet {

inline Ticks now() { return static_cast<Ticks>(PacketSimulator::now); }

// Call the method of the object with these arguments when so much time has passed.
template <class Object, class... Parameters>
ns3::EventId after(Ticks delay, void (Object::*method)(Parameters...), Object* object,
                   std::type_identity_t<Parameters>... arguments) {
    return PacketSimulator::get().Schedule(ns3::TimeStep(static_cast<std::uint64_t>(delay)),
                                           new Call<Object, Parameters...>(method, object, arguments...));
}

// The same for what is never taken back, which spares its handle.
template <class Object, class... Parameters>
void post(Ticks delay, void (Object::*method)(Parameters...), Object* object,
          std::type_identity_t<Parameters>... arguments) {
    PacketSimulator::get().post(static_cast<std::uint64_t>(delay),
                                new Call<Object, Parameters...>(method, object, arguments...));
}

inline std::mt19937_64& random_engine() {
    static std::mt19937_64 engine;
    return engine;
}

// A number in [0, 1).
inline double chance() { return static_cast<double>(random_engine()() >> 11) * 0x1.0p-53; }

}  // namespace chakrascope::packet
