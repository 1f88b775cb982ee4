#include "mesh.h"

#include <algorithm>

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

Spread Mesh::spread(const std::vector<std::int32_t>& from, const std::vector<std::int32_t>& to) const {
    Spread spread;
    std::vector<double> shares(static_cast<std::size_t>(links()), 0);
    const double each = 1.0 / static_cast<double>(from.size() * to.size());
    bool first = true;
    for (const std::int32_t start : from) {
        for (const std::int32_t end : to) {
            double hops = 0;
            for (std::int32_t router = start; router != end; ++hops) {
                const std::int32_t link = next_link(router, end);
                shares[static_cast<std::size_t>(link)] += each;
                router = end_of(link);
            }
            spread.least_hops = first ? hops : std::min(spread.least_hops, hops);
            spread.most_hops = std::max(spread.most_hops, hops);
            first = false;
        }
    }
    for (std::int32_t link = 0; link < links(); ++link) {
        const double share = shares[static_cast<std::size_t>(link)];
        if (share > 0) spread.parts.push_back({link, share});
    }
    return spread;
}

}  // namespace chakrascope::gpu
