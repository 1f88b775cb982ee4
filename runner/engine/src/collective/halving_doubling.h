// The exchanges of recursive halving and doubling. The exchanges of all members are the same, except
// for the partner.
#pragma once

#include <cstdint>

#include "implementation.h"
#include "ring.h"

namespace chakrascope::engine {

class HalvingDoublingSteps {
  public:
    // A step of halving or doubling: data passes through the endpoint and is then sent. The last step
    // sends no data.
    struct Step {
        std::uint64_t size;
        std::int32_t offset;  // distance to the partner in the ring
        bool plain;           // true: data moves to memory; false: received data moves from memory
        bool processed;
        bool send_back;
    };

    HalvingDoublingSteps(Collective kind, std::int32_t members, std::uint64_t size);

    int sends() const { return kind_ == Collective::AllReduce ? 2 * rounds_ : rounds_; }
    Step next();

  private:
    void advance();

    Collective kind_;
    std::int32_t members_;
    int rounds_;
    bool halving_;
    std::uint64_t message_;
    std::int32_t offset_;
    int plain_left_ = 0, reduced_left_ = 0;
    bool reducing_ = false;
};

// Return the partner's position in the ring.
inline std::int32_t partner_of(const Ring& ring, std::int32_t offset) {
    if (offset == 0 || offset >= ring.count) return ring.position;
    return ring.neighbour((ring.position / offset) % 2 == 0 ? offset : -offset);
}

}  // namespace chakrascope::engine
