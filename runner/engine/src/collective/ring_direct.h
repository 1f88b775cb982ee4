// The messages of rings and direct exchanges.
#pragma once

#include <cstdint>

#include "stream.h"

namespace chakrascope::engine {

// How many messages a member sends.
std::uint64_t count_sends(Collective kind, bool direct, std::uint64_t members);
// How many bytes each of them has.
std::uint64_t message_size(const Phase& phase);

}  // namespace chakrascope::engine
