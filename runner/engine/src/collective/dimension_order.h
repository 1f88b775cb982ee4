// The order in which a chunk visits the dimensions of the network; ASTRA-sim always ascends.
//
// Source of the greedy order: Rashidi et al., Themis: A Network Bandwidth-Aware Collective
// Scheduling Policy for Distributed Training of DL Models (ISCA 2022).
#pragma once

#include <cstdint>
#include <vector>

#include "../config.h"
#include "implementation.h"

namespace chakrascope::engine {

class DimensionOrder {
  public:
    explicit DimensionOrder(const Config& config) : config_(config), loads_(config.topology.size(), 0.0) {}

    // Whether chunks may visit dimensions in another than ascending order.
    bool active() const { return config_.inter_dimension_policy != InterDimensionPolicy::Ascending; }

    // Order the dimensions, given in ascending order, for the reduction of a chunk; the gather
    // visits them in reverse. Chunk 0 of a collective starts with no load.
    std::vector<std::size_t> next(std::uint64_t chunk, const std::vector<std::size_t>& dimensions,
                                  Collective kind, std::uint64_t size);

  private:
    void add_loads(const std::vector<std::size_t>& order, Collective kind, std::uint64_t size);
    // How long a dimension is busy with a reduce-scatter of this many bytes, in arbitrary units.
    double load(std::size_t dimension, double size) const;

    const Config& config_;
    std::vector<double> loads_;
};

}  // namespace chakrascope::engine
