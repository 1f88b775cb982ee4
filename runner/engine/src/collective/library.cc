#include "library.h"

#include <algorithm>

namespace chakrascope::engine {

Time library_time(const LibraryCosts& points, std::uint64_t size) {
    if (points.empty()) return 0;
    if (size <= points.front().first || points.size() == 1) return points.front().second;
    auto right = std::find_if(points.begin(), points.end(), [&](const auto& at) { return at.first >= size; });
    if (right == points.end()) --right;
    const auto left = right - 1;
    const double slope = (static_cast<double>(right->second) - static_cast<double>(left->second)) /
                         static_cast<double>(right->first - left->first);
    const double time = static_cast<double>(left->second) + slope * static_cast<double>(size - left->first);
    return truncate(std::max(0.0, time));
}

Time library_time(const Config& config, CommType kind, std::uint64_t size) {
    const auto known = config.collective_costs.find(static_cast<int>(kind));
    return known == config.collective_costs.end() ? 0 : library_time(known->second, size);
}

}  // namespace chakrascope::engine
