// The number and size of messages in rings and direct exchanges.
#pragma once

#include <cstdint>

#include "stream.h"

namespace chakrascope::engine {

// Return the number of messages that a member sends.
std::uint64_t count_sends(Collective kind, bool direct, std::uint64_t members);
// Return the size of each message of the phase, in bytes.
std::uint64_t message_size(const Phase& phase);

}  // namespace chakrascope::engine
