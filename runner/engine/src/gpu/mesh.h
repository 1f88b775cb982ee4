// The links of the on-chip network, and routes over them: along a row first, then along a column.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "machine.h"

namespace chakrascope::gpu {

class Mesh {
  public:
    explicit Mesh(const Machine& machine) : columns_(machine.columns), rows_(machine.rows) {
        for (std::int32_t router = 0; router < columns_ * rows_; ++router)
            places_.push_back({router % columns_, router / columns_});
    }

    // Return the number of directed links, four per router even at the borders.
    std::int32_t links() const { return 4 * columns_ * rows_; }
    // Return the first link of the route between two different routers.
    std::int32_t next_link(std::int32_t from, std::int32_t to) const {
        const std::int32_t column = from % columns_, aim = to % columns_;
        if (column != aim) return 4 * from + (column < aim ? kEast : kWest);
        return 4 * from + (from < to ? kSouth : kNorth);
    }
    std::int32_t end_of(std::int32_t link) const {
        const std::int32_t router = link / 4;
        switch (link % 4) {
            case kEast:
                return router + 1;
            case kWest:
                return router - 1;
            case kSouth:
                return router + columns_;
            default:
                return router - columns_;
        }
    }
    // Call `function` for each link of a route, in order.
    template <class Function>
    void for_each_link(std::int32_t from, std::int32_t to, Function function) const {
        const Place begin = places_[static_cast<std::size_t>(from)];
        const Place end = places_[static_cast<std::size_t>(to)];
        const bool east = begin.column < end.column, south = begin.row < end.row;
        for (std::int32_t left = std::abs(end.column - begin.column); left > 0; --left) {
            function(4 * from + (east ? kEast : kWest));
            from += east ? 1 : -1;
        }
        for (std::int32_t left = std::abs(end.row - begin.row); left > 0; --left) {
            function(4 * from + (south ? kSouth : kNorth));
            from += south ? columns_ : -columns_;
        }
    }
    std::int32_t hops(std::int32_t from, std::int32_t to) const {
        return std::abs(from % columns_ - to % columns_) + std::abs(from / columns_ - to / columns_);
    }

  private:
    enum Direction { kEast, kWest, kSouth, kNorth };

    struct Place {
        std::int32_t column, row;
    };

    std::int32_t columns_, rows_;
    std::vector<Place> places_;  // column and row of each router
};

}  // namespace chakrascope::gpu
