// The directed links of a network, and the routes of messages over them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "../config.h"

namespace chakrascope::engine {

// The topology of one dimension, and its name in configurations.
enum class Shape : std::uint8_t { Ring, FullyConnected, Switch };
inline constexpr std::array<const char*, 3> kTopologies = {"Ring", "FullyConnected", "Switch"};

// Return the shape of that name, which has to be one of the topologies.
inline Shape shape_of(const std::string& name) {
    return static_cast<Shape>(std::find(kTopologies.begin(), kTopologies.end(), name) - kTopologies.begin());
}

struct Link {
    std::int32_t source;
    std::int32_t destination;
    double bandwidth;  // bytes per ns
    double latency;    // ns
};

// Devices are numbered: the ranks first, then the switches.
class Topology {
  public:
    virtual ~Topology() = default;
    // The outgoing link of a message at a device on its way to its destination.
    virtual std::size_t next(std::int32_t device, std::int32_t destination) = 0;
    // Whether the link exists.
    virtual bool reaches(std::int32_t, std::int32_t) { return true; }
    // Both directions of a link of the fabric change to another rate, in bit/s (0: it is down).
    // Dimensions have no such links.
    virtual void change(std::uint32_t, std::uint64_t) {}
    const std::vector<Link>& links() const { return links_; }

  protected:
    std::vector<Link> links_;
};

// The dimensions of the configuration; a message corrects its coordinates in ascending dimensions.
std::unique_ptr<Topology> make_dimensions(const Config& config);
// The links of the fabric; a message takes the fewest hops, and on a tie the path through the device
// with the lowest number. Raises ConfigError for ranks without a path to each other.
std::unique_ptr<Topology> make_graph(const Config& config);

}  // namespace chakrascope::engine
