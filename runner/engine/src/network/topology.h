// The directed links of a network, and which of them a message takes.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "../config.h"

namespace chakrascope::engine {

// What a dimension can look like.
inline constexpr std::array<const char*, 3> kTopologies = {"Ring", "FullyConnected", "Switch"};

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
    // The link that takes a message at a device towards its destination.
    virtual std::size_t next(std::int32_t device, std::int32_t destination) = 0;
    // Whether there is such a link.
    virtual bool reaches(std::int32_t, std::int32_t) { return true; }
    // Both directions of a link of the configuration have another bandwidth from now on, in bytes per ns (0:
    // it is down). Dimensions have no such links.
    virtual void change(std::uint32_t, double) {}
    const std::vector<Link>& links() const { return links_; }

  protected:
    std::vector<Link> links_;
};

// The dimensions of the configuration; a message corrects its coordinates in ascending dimensions.
std::unique_ptr<Topology> make_dimensions(const Config& config);
// The links of the configuration; a message takes the fewest hops, and of equal ways the one through the
// device with the lowest number. Raises ConfigError for a link to nowhere and for ranks that cannot reach
// each other.
std::unique_ptr<Topology> make_graph(const Config& config);

}  // namespace chakrascope::engine
