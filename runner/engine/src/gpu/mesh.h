// The links of the on-chip network, and the ways over them: along the row first, then along the column.
#pragma once

#include <cstdint>
#include <cstdlib>

#include "machine.h"

namespace chakrascope::gpu {

class Mesh {
  public:
    explicit Mesh(const Machine& machine) : columns_(machine.columns), rows_(machine.rows) {}

    // Four directed links leave each router, whether or not there is a neighbour.
    std::int32_t links() const { return 4 * columns_ * rows_; }
    // The next link on the way between two routers that are not the same.
    std::int32_t next_link(std::int32_t from, std::int32_t to) const;
    std::int32_t end_of(std::int32_t link) const;
    std::int32_t hops(std::int32_t from, std::int32_t to) const {
        return std::abs(from % columns_ - to % columns_) + std::abs(from / columns_ - to / columns_);
    }

  private:
    enum Direction { kEast, kWest, kSouth, kNorth };

    std::int32_t columns_, rows_;
};

}  // namespace chakrascope::gpu
