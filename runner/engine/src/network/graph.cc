#include <unordered_map>

#include "../errors.h"
#include "../fabric/routes.h"
#include "network.h"
#include "topology.h"

namespace chakrascope::engine {
namespace {

constexpr std::size_t kNoLink = ~std::size_t{0};

class Graph final : public Topology {
  public:
    explicit Graph(const Config& config)
        : share_(config.wire_share),
          routes_(config.fabric),
          devices_(number_devices(config.fabric)),
          nodes_(devices_.size()) {
        for (std::size_t node = 0; node < devices_.size(); ++node)
            nodes_[static_cast<std::size_t>(devices_[node])] = static_cast<std::int32_t>(node);
        for (const Direction& link : routes_.directions()) {
            links_.push_back({device(link.from), device(link.to), bandwidth(link.rate_bps),
                              static_cast<double>(link.delay) / kTicksPerNs});
        }
    }

    std::size_t next(std::int32_t device, std::int32_t destination) override {
        const std::size_t link = way(device, destination);
        if (link == kNoLink) {
            const std::string remedy =
                changed_ ? " over the links that are up by then, so that a message can never arrive; let a "
                           "failure of these links end ('until'), or leave links that join them."
                         : "; add the missing links.";
            throw ConfigError(std::string("The network has no path from ") +
                              (changed_ ? "rank " : "device ") + std::to_string(device) + " to rank " +
                              std::to_string(destination) + remedy);
        }
        return link;
    }

    bool reaches(std::int32_t device, std::int32_t destination) override {
        return way(device, destination) != kNoLink;
    }

    void change(std::uint32_t link, std::uint64_t rate_bps) override {
        links_[2 * link].bandwidth = links_[2 * link + 1].bandwidth = bandwidth(rate_bps);
        routes_.set_rate(link, rate_bps);
        ways_.clear();
        changed_ = true;
    }

  private:
    std::int32_t device(std::int32_t node) const { return devices_[static_cast<std::size_t>(node)]; }

    // Return the bandwidth of a link in bytes per ns.
    double bandwidth(std::uint64_t rate_bps) const { return static_cast<double>(rate_bps) * share_ / 8e9; }

    std::size_t way(std::int32_t device, std::int32_t destination) {
        if (ways_.empty() && changed_) routes_.refresh();
        auto& ways = ways_[destination];
        if (ways.empty()) ways = find_ways(destination);
        return ways[static_cast<std::size_t>(device)];
    }

    // Return for every device the outgoing link on a shortest path to the destination. On a tie, the
    // link leads to the device with the lowest number.
    std::vector<std::size_t> find_ways(std::int32_t destination) {
        std::vector<std::size_t> ways(nodes_.size(), kNoLink);
        for (std::size_t from = 0; from < nodes_.size(); ++from) {
            std::size_t& best = ways[from];
            for (const std::uint32_t way :
                 routes_.ways(nodes_[from], nodes_[static_cast<std::size_t>(destination)])) {
                if (best == kNoLink || links_[way].destination < links_[best].destination) best = way;
            }
        }
        return ways;
    }

    const double share_;
    Routes routes_;
    const std::vector<std::int32_t> devices_;  // device of each node
    std::vector<std::int32_t> nodes_;          // node of each device
    std::unordered_map<std::int32_t, std::vector<std::size_t>> ways_;
    bool changed_ = false;
};

}  // namespace

std::unique_ptr<Topology> make_graph(const Config& config) { return std::make_unique<Graph>(config); }

}  // namespace chakrascope::engine
