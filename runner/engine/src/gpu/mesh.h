// The links of the on-chip network, and the ways over them: along the row first, then along the column.
#pragma once

#include <cstdint>
#include <vector>

#include "machine.h"

namespace chakrascope::gpu {

// How the requests of one operation spread over links: which share of them each carries, and how many hops
// the nearest and the farthest take.
struct Spread {
    struct Part {
        std::int32_t link;
        double share;
    };
    std::vector<Part> parts;
    double least_hops = 0, most_hops = 0;
};

class Mesh {
  public:
    explicit Mesh(const Machine& machine) : columns_(machine.columns), rows_(machine.rows) {}

    // Four directed links leave each router, whether or not there is a neighbour.
    std::int32_t links() const { return 4 * columns_ * rows_; }
    // The next link on the way between two routers that are not the same.
    std::int32_t next_link(std::int32_t from, std::int32_t to) const;
    std::int32_t end_of(std::int32_t link) const;
    // How requests spread that go from each of some routers to each of others, equally often.
    Spread spread(const std::vector<std::int32_t>& from, const std::vector<std::int32_t>& to) const;

  private:
    enum Direction { kEast, kWest, kSouth, kNorth };

    std::int32_t columns_, rows_;
};

}  // namespace chakrascope::gpu
