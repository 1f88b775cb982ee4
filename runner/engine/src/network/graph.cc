#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "../errors.h"
#include "network.h"
#include "topology.h"

namespace chakrascope::engine {
namespace {

constexpr std::size_t kNone = ~std::size_t{0};

class Graph final : public Topology {
  public:
    explicit Graph(const Config& config) : ranks_(static_cast<std::int32_t>(config.num_ranks())) {
        std::int32_t devices = ranks_;
        for (const ConfigLink& link : config.links) {
            check(link);
            devices = std::max({devices, link.a + 1, link.b + 1});
            links_.push_back({link.a, link.b, bytes_per_ns(link.bandwidth), link.latency});
            links_.push_back({link.b, link.a, bytes_per_ns(link.bandwidth), link.latency});
        }
        incoming_.resize(static_cast<std::size_t>(devices));
        for (std::size_t i = 0; i < links_.size(); ++i) incoming_[links_[i].destination].push_back(i);
        const auto by_source = [this](std::size_t a, std::size_t b) {
            return links_[a].source < links_[b].source;
        };
        for (auto& list : incoming_) std::stable_sort(list.begin(), list.end(), by_source);
    }

    std::size_t next(std::int32_t device, std::int32_t destination) override {
        const std::size_t link = way(device, destination);
        if (link == kNone) {
            const std::string remedy =
                changed_ ? " over the links that are up by then, so that a message can never arrive; let a "
                           "failure of these links end ('until'), or leave links that join them."
                         : "; add the missing links.";
            throw ConfigError(std::string("The network has no way from ") + (changed_ ? "rank " : "device ") +
                              std::to_string(device) + " to rank " + std::to_string(destination) + remedy);
        }
        return link;
    }

    bool reaches(std::int32_t device, std::int32_t destination) override {
        return way(device, destination) != kNone;
    }

    void change(std::uint32_t link, double bandwidth_bytes_per_ns) override {
        links_[2 * link].bandwidth = links_[2 * link + 1].bandwidth = bandwidth_bytes_per_ns;
        ways_.clear();
        changed_ = true;
    }

  private:
    std::size_t way(std::int32_t device, std::int32_t destination) {
        auto& ways = ways_[destination];
        if (ways.empty()) ways = find_ways(destination);
        return ways[static_cast<std::size_t>(device)];
    }

    static void check(const ConfigLink& link) {
        const std::string name =
            "The link between " + std::to_string(link.a) + " and " + std::to_string(link.b);
        constexpr std::int32_t kMostDevices = 10'000'000;
        if (link.a < 0 || link.b < 0 || link.a == link.b || std::max(link.a, link.b) > kMostDevices) {
            throw ConfigError(
                name + " must join two different devices, numbered from 0: ranks first, then switches.");
        }
        if (!(link.bandwidth > 0) || !(link.latency >= 0) || std::isinf(link.latency)) {
            throw ConfigError(name + " needs a bandwidth above 0 and a latency that is not negative.");
        }
    }

    // The first link from every device on its shortest path to the destination, by breadth-first
    // search from the destination.
    std::vector<std::size_t> find_ways(std::int32_t destination) const {
        std::vector<std::size_t> ways(incoming_.size(), kNone);
        std::vector<std::int32_t> hops(incoming_.size(), -1);
        hops[destination] = 0;
        std::vector<std::int32_t> front{destination}, next;
        while (!front.empty()) {
            // Devices in ascending order, so that on a tie the path through the lowest number is
            // found first.
            std::sort(front.begin(), front.end());
            for (const std::int32_t device : front) {
                for (const std::size_t link : incoming_[device]) {
                    const std::int32_t source = links_[link].source;
                    if (hops[source] >= 0 || links_[link].bandwidth <= 0) continue;
                    hops[source] = hops[device] + 1;
                    ways[source] = link;
                    // Other ranks do not forward.
                    if (source >= ranks_) next.push_back(source);
                }
            }
            front.swap(next);
            next.clear();
        }
        return ways;
    }

    const std::int32_t ranks_;
    std::vector<std::vector<std::size_t>> incoming_;
    std::unordered_map<std::int32_t, std::vector<std::size_t>> ways_;
    bool changed_ = false;
};

}  // namespace

std::unique_ptr<Topology> make_graph(const Config& config) { return std::make_unique<Graph>(config); }

}  // namespace chakrascope::engine
