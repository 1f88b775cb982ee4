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

// The topology of one network dimension. kTopologies are the names in configurations.
enum class Shape : std::uint8_t { Ring, FullyConnected, Switch };
inline constexpr std::array<const char*, 3> kTopologies = {"Ring", "FullyConnected", "Switch"};

// Return the shape of a topology name, which must be one of kTopologies.
inline Shape shape_of(const std::string& name) {
    return static_cast<Shape>(std::find(kTopologies.begin(), kTopologies.end(), name) - kTopologies.begin());
}

struct Link {
    std::int32_t source;
    std::int32_t destination;
    double bandwidth;  // bytes per ns
    double latency;    // ns
};

// A topology of devices and links. Ranks have the first device numbers, and switches have the next
// numbers.
class Topology {
  public:
    virtual ~Topology() = default;
    // Return the next link on the path of a message from a device to its destination.
    virtual std::size_t next(std::int32_t device, std::int32_t destination) = 0;
    // Whether the device has a path to the destination.
    virtual bool reaches(std::int32_t, std::int32_t) { return true; }
    // Change the rate of both directions of a fabric link, in bit/s (0: the link is down). Networks of
    // dimensions have no link changes.
    virtual void change(std::uint32_t, std::uint64_t) {}
    const std::vector<Link>& links() const { return links_; }

  protected:
    std::vector<Link> links_;
};

// Create the topology of the configured dimensions. Messages are routed in ascending order of
// dimensions.
std::unique_ptr<Topology> make_dimensions(const Config& config);
// Create the topology of the configured fabric. A message takes a path with the fewest hops, and on a
// tie the path through the device with the lowest number. Raises ConfigError if two ranks are not
// connected.
std::unique_ptr<Topology> make_graph(const Config& config);

}  // namespace chakrascope::engine
