#include "dimension_order.h"

#include <algorithm>

namespace chakrascope::engine {
namespace {
// Loads that differ by less than this fraction of a chunk on the slowest dimension count as equal.
constexpr double kThreshold = 1.0 / 16;
}  // namespace

std::vector<std::size_t> DimensionOrder::next(std::uint64_t chunk, const std::vector<std::size_t>& dimensions,
                                              Collective kind, std::uint64_t size) {
    std::vector<std::size_t> order = dimensions;
    if (order.size() < 2) return order;
    if (config_.inter_dimension_policy == InterDimensionPolicy::RoundRobin) {
        std::rotate(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(chunk % order.size()),
                    order.end());
        return order;
    }
    if (chunk == 0) std::fill(loads_.begin(), loads_.end(), 0.0);
    const auto less = [this](std::size_t a, std::size_t b) { return loads_[a] < loads_[b]; };
    const auto [low, high] = std::minmax_element(order.begin(), order.end(), less);
    double threshold = 0;
    for (const std::size_t d : order)
        threshold = std::max(threshold, load(d, kThreshold * static_cast<double>(size)));
    if (loads_[*high] - loads_[*low] >= threshold) std::stable_sort(order.begin(), order.end(), less);
    add_loads(order, kind, size);
    return order;
}

// The chunk shrinks with every dimension along which it is reduced; a gather meets the same sizes
// in reverse.
void DimensionOrder::add_loads(const std::vector<std::size_t>& order, Collective kind, std::uint64_t size) {
    double bytes = static_cast<double>(size);
    if (kind == Collective::AllGather) {
        for (const std::size_t d : order) bytes *= config_.npus_count[d];
    }
    for (const std::size_t d : order) {
        loads_[d] += load(d, bytes);
        bytes /= config_.npus_count[d];
    }
}

double DimensionOrder::load(std::size_t dimension, double size) const {
    const double ranks = config_.npus_count[dimension];
    return size * (ranks - 1) / ranks / config_.reached_bandwidth(dimension);
}

}  // namespace chakrascope::engine
