// The messages of rings and direct exchanges.
#pragma once

#include <cstdint>

#include "stream.h"

namespace chakrascope::engine {

// How many messages a member sends.
std::uint64_t count_sends(Collective kind, bool direct, std::uint64_t members);
// The size of each message in bytes.
std::uint64_t message_size(const Phase& phase);

}  // namespace chakrascope::engine
