#include "mesh.h"

namespace chakrascope::gpu {

std::int32_t Mesh::next_link(std::int32_t from, std::int32_t to) const {
    const std::int32_t column = from % columns_, aim = to % columns_;
    if (column != aim) return 4 * from + (column < aim ? kEast : kWest);
    return 4 * from + (from < to ? kSouth : kNorth);
}

std::int32_t Mesh::end_of(std::int32_t link) const {
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

}  // namespace chakrascope::gpu
